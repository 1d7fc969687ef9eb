"""Races, provider caches and random load on SQLite with several processes, in the default suite: fewer rounds."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.support import applications, assertions, caches, servers


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the database file and the logs."""
    return tmp_path_factory.mktemp('sqlite')


@pytest.fixture(scope='module')
def url(directory: pathlib.Path) -> str:
    """The database URL."""
    return f'sqlite:///{directory}/placement.db'


@pytest.fixture(scope='module')
def server(directory: pathlib.Path, url: str) -> Iterator[servers.Server]:
    """Four worker processes on one database file."""
    with servers.serving(url, directory, workers=4, threads=4) as running:
        yield running


def test_servers_that_start_at_once_on_an_empty_database_all_become_ready(tmp_path: pathlib.Path) -> None:
    assertions.all_came_up([f'sqlite:///{tmp_path}/placement.db'] * 4, tmp_path)


@pytest.mark.parametrize('race', assertions.RACES)
def test_race(server: servers.Server, race: str) -> None:
    assertions.RACES[race]([server.url], divisor=4)


def test_random_load_has_no_violations(
    server: servers.Server, url: str, record_property: Callable[[str, str], None]
) -> None:
    assertions.random_load_has_no_violations(server, record_property, name='sqlite', database=url, requests=200)


def test_answered_changes_are_found(server: servers.Server, directory: pathlib.Path, url: str) -> None:
    with servers.serving(url, directory, workers=1, metrics=False) as other:
        caches.answered_changes_are_found([server.url, other.url], rounds=2, callers=3)


def test_caches_equal_the_tables_while_writers_are_killed(server: servers.Server, url: str) -> None:
    with applications.database(url) as db:
        caches.stay_equal([server], [db])
