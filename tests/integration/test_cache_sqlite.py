"""Provider caches of several processes on one SQLite file, as part of the default suite."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support import applications, caches, servers


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the database file and the logs."""
    return tmp_path_factory.mktemp('sqlite')


@pytest.fixture(scope='module')
def url(directory: pathlib.Path) -> str:
    """The database URL."""
    return f'sqlite:///{directory}/placement.db'


@pytest.fixture(scope='module')
def pair(directory: pathlib.Path, url: str) -> Iterator[list[servers.Server]]:
    """Two servers of one worker each."""
    with (
        servers.serving(url, directory, workers=1, metrics=False) as first,
        servers.serving(url, directory, workers=1, metrics=False) as second,
    ):
        yield [first, second]


def test_answered_changes_are_found(pair: list[servers.Server]) -> None:
    caches.answered_changes_are_found([server.url for server in pair], rounds=2, callers=3)


def test_caches_equal_the_tables_while_writers_are_killed(pair: list[servers.Server], url: str) -> None:
    with applications.database(url) as db:
        caches.stay_equal(pair, [db])
