"""Races and random load on SQLite with four worker processes, in the default suite: a quarter as long as on servers."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator

import pytest

from tests.support import assertions, servers


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the database file and the logs."""
    return tmp_path_factory.mktemp('sqlite')


@pytest.fixture(scope='module')
def server(directory: pathlib.Path) -> Iterator[servers.Server]:
    """Four worker processes on one database file."""
    url = f'sqlite:///{directory}/placement.db'
    with servers.serving(url, directory, workers=4, threads=4) as running:
        yield running


def test_servers_that_start_at_once_on_an_empty_database_all_become_ready(tmp_path: pathlib.Path) -> None:
    assertions.all_came_up([f'sqlite:///{tmp_path}/placement.db'] * 4, tmp_path)


@pytest.mark.parametrize('race', assertions.RACES)
def test_race(server: servers.Server, race: str) -> None:
    assertions.RACES[race]([server.url], divisor=4)


def test_history_of_random_load_has_no_violations(
    server: servers.Server, directory: pathlib.Path, record_property: Callable[[str, str], None]
) -> None:
    database = f'sqlite:///{directory}/placement.db'
    assertions.random_load_has_no_violations(server, record_property, name='sqlite', database=database, requests=200)
