"""Provider caches on each database: equal to the tables, never outdated, also after a fork."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement.cache.refresh import ProviderCache
from placement.db import change_log
from placement.db.api import Database
from placement.observability.metrics import Metrics
from tests.integration import caches
from tests.support import applications, databases, servers
from tests.support.cache_equality import compare


@pytest.fixture(scope='module')
def pair(
    setting: databases.Setting, database: sa.URL, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[servers.Server]]:
    """Two servers of one worker each."""
    directory: pathlib.Path = tmp_path_factory.mktemp('placement-api')
    url = setting.session_url(database)
    started = [servers.launch(url, directory, workers=1, metrics=False) for _ in range(2)]
    with servers.ready(*started):
        yield started


@pytest.fixture
def db(database: sa.URL, pair: list[servers.Server]) -> Iterator[Database]:
    """The database, as another process."""
    with applications.database(database) as opened:
        yield opened


@databases.EVERYWHERE
def test_answered_changes_are_found(setting: databases.Setting, pair: list[servers.Server]) -> None:
    """With fewer rounds on SQLite, in the default suite."""
    caches.answered_changes_are_found(
        [server.url for server in pair], rounds=2 if setting == databases.SQLITE else 5, callers=3
    )


@databases.EVERYWHERE
def test_caches_equal_the_tables_while_writers_are_killed(pair: list[servers.Server], db: Database) -> None:
    caches.stay_equal(pair, [db])


@databases.EVERYWHERE
def test_a_forked_child_has_connections_and_slots_of_its_own(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parent and child search and write at the same time after a fork. If they shared a connection, both would fail.

    If they shared a slot of the change log, transactions would be retried.
    """
    metrics = Metrics()
    monkeypatch.setattr(db, 'metrics', metrics)
    db.write(change_log.record_names)
    provider_cache = ProviderCache(db)
    provider_cache.up_to_date()
    child = os.fork()
    right = _search_and_write(provider_cache, db)
    [retries] = metrics.transaction_retries.collect()
    right &= not retries.samples
    if not child:
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert right
    assert os.waitstatus_to_exitcode(status) == 0
    compare(provider_cache, db)


def _search_and_write(provider_cache: ProviderCache, db: Database) -> bool:
    try:
        for _ in range(60):
            provider_cache.up_to_date()
            db.write(change_log.record_names)
        compare(provider_cache, db)
    except BaseException as error:
        print(f'{os.getpid()}: {error!r}')
        return False
    return True
