"""Races and random load on SQLite with four worker processes, as part of the default suite."""

from __future__ import annotations

import pathlib
import time
from collections.abc import Callable, Iterator

import pytest

from tests.support import assertions, servers
from tests.support.history import report
from tests.support.history.workload import Load


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the database file and the logs."""
    return tmp_path_factory.mktemp('sqlite')


@pytest.fixture(scope='module')
def server(directory: pathlib.Path) -> Iterator[servers.Server]:
    """Four worker processes on one database file."""
    with servers.serving(f'sqlite:///{directory}/placement.db', directory, workers=4, threads=4) as running:
        yield running


def test_forty_claims_for_ten_units(server: servers.Server) -> None:
    assertions.last_units_are_given_once(server)


@pytest.mark.parametrize('existing', [True, False])
def test_concurrent_writes_with_one_consumer_generation(server: servers.Server, existing: bool) -> None:
    assertions.a_generation_is_moved_once(server, existing=existing)


def test_concurrent_writes_in_opposite_orders(server: servers.Server) -> None:
    assertions.opposite_orders_make_progress(server)


def test_names_that_are_created_renamed_and_deleted_under_load(server: servers.Server) -> None:
    assertions.names_keep_their_meaning(server)


def test_history_of_random_load_has_no_violations(
    server: servers.Server, directory: pathlib.Path, record_property: Callable[[str, str], None]
) -> None:
    retries = server.retries()
    load = Load.start([server.url], clients=10)
    time.sleep(6)
    history = load.finish()
    judged = report.of(
        history,
        unsent=load.unsent,
        retries=server.retries_since(retries),
        databases=[f'sqlite:///{directory}/placement.db'],
    )
    record_property('history', f'sqlite\n{judged.text()}')
    assert judged.violations == []
    assert judged.server_errors == 0
    assert judged.unknown == 0
    assert judged.accepted > 100
