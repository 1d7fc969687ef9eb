"""How the provider cache is refreshed, and when it is loaded again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import gc
import logging
import pathlib
import re
import sqlite3
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.cache import loader, refresh
from placement.cache.providers import Provider
from placement.cache.refresh import CacheState, ProviderCache
from placement.cache.snapshot import Snapshot
from placement.cmd import manage
from placement.db import change_log, change_log_reader, tables
from placement.db.api import Database
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support import applications, corruption
from tests.support.cache_equality import assert_cached_properties, assert_same, compare
from tests.support.event_hooks import listening
from tests.support.fixtures import Counter, PointCommandsAt
from tests.support.objects import claim, create_provider, set_traits
from tests.support.waiting import wait_until


class Counting(ProviderCache):
    """A provider cache that counts how often it was loaded and refreshed, and can be made to wait before a step."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.builds = 0
        self.steps = 0
        self.gate = threading.Event()
        self.gate.set()
        #: Threads that have found the cache outdated.
        self.outdated: list[threading.Thread] = []

    def _refreshed(self, refreshes: int, sums: change_log_reader.Sums) -> Snapshot:
        self.outdated.append(threading.current_thread())
        return super()._refreshed(refreshes, sums)

    def _load(self, tx: sa.Connection) -> Any:
        self.builds += 1
        return super()._load(tx)

    def _read(self, state: CacheState | None) -> Snapshot:
        self.steps += state is not None
        assert self.gate.wait(60)
        return super()._read(state)


@pytest.fixture
def host(context: RequestContext) -> ResourceProvider:
    return create_provider(context, 'host', VCPU=100)


@pytest.fixture
def provider_cache(db: Database, host: ResourceProvider) -> Counting:
    """The loaded provider cache of a database with one host."""
    provider_cache = Counting(db)
    provider_cache.up_to_date()
    assert provider_cache.builds == 1
    return provider_cache


Reasons = Callable[[], list[str]]


@pytest.fixture
def reasons(caplog: pytest.LogCaptureFixture) -> Reasons:
    """Why the cache was reloaded so far, as the log says at the default level."""
    caplog.set_level(logging.INFO, refresh.__name__)
    pattern = re.compile(r'Reloading the cache: (.*)')
    return lambda: [match[1] for record in caplog.records if (match := pattern.fullmatch(record.getMessage()))]


@pytest.fixture
def copy(db: Database, tmp_path: pathlib.Path) -> Iterator[Callable[[], Database]]:
    """Copies the database as it is now; the copy serves as a node that lags, or as a backup."""
    with contextlib.ExitStack() as stack:

        def copied() -> Database:
            path = tmp_path / f'{uuid.uuid4()}.sqlite'
            with (
                contextlib.closing(sqlite3.connect(tmp_path / 'placement.sqlite')) as source,
                contextlib.closing(sqlite3.connect(path)) as target,
            ):
                source.backup(target)
            return stack.enter_context(applications.database(path))

        yield copied


@pytest.fixture
def older(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, copy: Callable[[], Database]
) -> Database:
    """A copy from before the host was renamed; the cache knows its new name."""
    database = copy()
    rename(context, host, 'renamed')
    provider_cache.up_to_date()
    return database


def let_grace_pass(provider_cache: ProviderCache) -> None:
    """From now on a database that has been older than the cache until now is taken for a restored one."""
    provider_cache._clock = lambda: time.monotonic() + refresh.STALE_READ_GRACE_SECONDS


def rename(context: RequestContext, host: ResourceProvider, name: str) -> None:
    ResourceProvider.rename(context, host.uuid, name)


def claim_one(context: RequestContext, host: ResourceProvider) -> None:
    claim(context, {host.uuid: {'VCPU': 1}})


def name_in(state: Snapshot, host: ResourceProvider) -> str | None:
    record = state.find_provider(host.uuid)
    assert record is not None
    return record.name


def scratch(db: Database) -> Snapshot:
    return ProviderCache(db).up_to_date()


# A database that is older than the cache ----------------------------------------------------------------


def test_a_node_that_lags_repeatedly_is_not_taken_for_a_restored_database(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, older: Database
) -> None:
    newest = provider_cache.up_to_date()
    for db in (older, context.db):
        provider_cache._db = db
        assert provider_cache.up_to_date() is newest
    let_grace_pass(provider_cache)
    provider_cache._db = older
    assert provider_cache.up_to_date() is newest
    provider_cache._db = context.db
    claim_one(context, host)
    assert_same(provider_cache.up_to_date(), scratch(context.db))
    assert provider_cache.builds == 1


def test_the_cache_is_loaded_again_when_a_database_stays_older(
    provider_cache: Counting, older: Database, reasons: Reasons
) -> None:
    newest = provider_cache.up_to_date()
    provider_cache._db = older
    assert provider_cache.up_to_date() is newest
    let_grace_pass(provider_cache)
    assert_same(provider_cache.up_to_date(), scratch(older))
    assert provider_cache.builds == 2
    provider_cache.up_to_date()
    assert provider_cache.builds == 2
    (reason,) = reasons()
    assert reason.startswith('the database has been older than the cache for ')


def test_the_cache_is_loaded_again_at_once_when_a_restored_database_was_written_to(
    provider_cache: Counting, host: ResourceProvider, older: Database, reasons: Reasons
) -> None:
    rename(applications.administrator(older), host, 'renamed otherwise')
    provider_cache._db = older
    assert name_in(provider_cache.up_to_date(), host) == 'renamed otherwise'
    assert provider_cache.builds == 2
    assert reasons() == ['the change log is partly older and partly newer than the cache']
    assert_same(provider_cache.up_to_date(), scratch(older))


def test_a_new_process_does_not_wait_for_a_database_that_is_older(
    provider_cache: Counting, older: Database, reasons: Reasons
) -> None:
    """Its cache is that of the process from which it was forked, before a backup was restored."""
    state = provider_cache.state
    forked = ProviderCache(older, state=state)
    assert_same(forked.up_to_date(), scratch(older))
    assert len(reasons()) == 1
    # From now on it waits for a node that lags, as all do.
    forked._state = state
    assert state is not None
    assert forked.up_to_date() is state.snapshot


# Changes that the log does not hold ----------------------------------------------------------------------


def test_the_cache_is_loaded_again_when_entries_of_the_log_are_missing(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, reasons: Reasons
) -> None:
    for number in range(3):
        rename(context, host, f'host-{number}')
    with context.db.engine.begin() as tx:
        newest = sa.select(sa.func.max(tables.change_log.c.sequence)).scalar_subquery()
        tx.execute(tables.change_log.delete().where(tables.change_log.c.sequence < newest))
    assert name_in(provider_cache.up_to_date(), host) == 'host-2'
    assert provider_cache.builds == 2
    (reason,) = reasons()
    assert reason.startswith('the change log does not have all entries since number ')
    rename(context, host, 'host')
    compare(provider_cache, context.db)
    assert provider_cache.builds == 3  # Loading the cache that it was compared with.


def test_changes_by_hand_are_seen_after_invalidate_caches(
    provider_cache: Counting,
    context: RequestContext,
    host: ResourceProvider,
    reasons: Reasons,
    point_commands_at: PointCommandsAt,
) -> None:
    point_commands_at(context.db.engine.url)
    with context.db.engine.begin() as tx:
        tx.execute(tables.resource_providers.update().values(name='by hand'))
    assert name_in(provider_cache.up_to_date(), host) == 'host'
    assert manage.main(['db', 'invalidate-caches']) == 0
    assert name_in(provider_cache.up_to_date(), host) == 'by hand'
    provider_cache.up_to_date()
    assert provider_cache.builds == 2
    assert reasons() == ['a command requested it']


def test_a_change_that_cannot_be_read_reloads_the_cache(
    provider_cache: Counting, db: Database, reasons: Reasons
) -> None:
    """The log names a provider that does not exist, as after a restore. The next searches do not repeat the error."""
    db.write(lambda tx: change_log.record_usage(tx, [12345]))
    for _ in range(2):
        assert_same(provider_cache.up_to_date(), scratch(db))
    assert provider_cache.builds == 2
    assert reasons() == ['the refresh failed']


def test_tables_that_contradict_each_other_are_an_outage(
    provider_cache: Counting, db: Database, host: ResourceProvider, caplog: pytest.LogCaptureFixture
) -> None:
    """An inventory has a class that does not exist. When it exists again, the next search is right."""
    corruption.plant(db.engine.url, 'UPDATE placement_inventories SET resource_class_id = 999')
    db.write(change_log.record_reload)
    for _ in range(2):
        with pytest.raises(exception.DatabaseUnavailable):
            provider_cache.up_to_date()
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    reason = f'an inventory of provider {host.id} has the resource class 999, which does not exist'
    assert lines == [f'The database is not available at the moment. The data are not complete: {reason}.']
    corruption.plant(db.engine.url, 'UPDATE placement_inventories SET resource_class_id = 0')
    assert_same(provider_cache.up_to_date(), scratch(db))


# Other processes and threads -----------------------------------------------------------------------------


def test_threads_that_wait_share_one_refresh_of_the_cache(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    rename(context, host, 'renamed')
    provider_cache.gate.clear()
    provider_cache.outdated.clear()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(provider_cache.up_to_date) for _ in range(6)]
        wait_until(lambda: len(provider_cache.outdated) == 6)
        assert not any(future.done() for future in waiting)
        provider_cache.gate.set()
    snapshots = [future.result() for future in waiting]
    assert {name_in(state, host) for state in snapshots} == {'renamed'}
    assert len({id(state) for state in snapshots}) == 1
    assert provider_cache.steps == 1


def test_a_refresh_that_began_before_a_write_is_not_shown_to_the_writer(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    """It has read what was committed before. The writer waits for it, and then reads its own write."""
    has_read, written = threading.Event(), threading.Event()

    def wait(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if 'recent AS' in statement and not has_read.is_set():
            has_read.set()
            assert written.wait(60)

    claim_one(context, host)
    with (
        concurrent.futures.ThreadPoolExecutor(2) as pool,
        listening(context.db.engine, 'after_cursor_execute', wait),
    ):
        earlier = pool.submit(provider_cache.up_to_date)
        assert has_read.wait(60)
        claim_one(context, host)
        later = pool.submit(provider_cache.up_to_date)
        wait_until(lambda: len(provider_cache.outdated) == 3)
        written.set()
        snapshots = [earlier.result(), later.result()]
    providers = [snapshot.find_provider(host.uuid) for snapshot in snapshots]
    assert [provider and provider.inventories['VCPU'].used for provider in providers] == [1, 2]


# Faults --------------------------------------------------------------------------------------------------


class Planted(db_exc.DBError):
    """An error that no code handles. Until SQLAlchemy 2.0.42 nothing translates the errors of listeners."""


def failing(db: Database, table: str) -> contextlib.AbstractContextManager[None]:
    """Make every statement that reads this table fail."""

    def fail(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if re.search(rf'FROM {table}\b', statement):
            raise Planted('planted')

    return listening(db.engine, 'before_cursor_execute', fail)


@pytest.mark.parametrize(
    'table',
    [
        'placement_inventories',
        'placement_resource_provider_traits',
        'placement_resource_providers',
        'placement_change_log',
        'placement_writer_slots',
    ],
)
def test_a_failed_step_is_made_again_by_the_next_search(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, table: str
) -> None:
    claim_one(context, host)
    rename(context, host, 'renamed')
    with failing(context.db, table):
        for _ in range(2):
            with pytest.raises(db_exc.DBError, match='planted'):
                provider_cache.up_to_date()
    assert name_in(provider_cache.up_to_date(), host) == 'renamed'
    assert provider_cache.builds == 1
    compare(provider_cache, context.db)


def test_threads_that_wait_fail_with_the_refresh_for_which_they_wait(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    """They do not repeat it one after the other, each for as long as the database does not answer."""
    rename(context, host, 'renamed')
    with concurrent.futures.ThreadPoolExecutor(6) as pool, failing(context.db, 'placement_resource_providers'):
        with provider_cache._lock:
            calls = [pool.submit(provider_cache.up_to_date) for _ in range(6)]
            wait_until(lambda: len(provider_cache._waiting) == len(calls))
        for call in calls:
            with pytest.raises(db_exc.DBError, match='planted'):
                call.result()
        assert provider_cache.steps == 1
        # A call that begins after the failure reads by itself.
        with pytest.raises(db_exc.DBError, match='planted'):
            provider_cache.up_to_date()
        assert provider_cache.steps == 2
    assert name_in(provider_cache.up_to_date(), host) == 'renamed'


def test_a_failed_refresh_keeps_nothing(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    """The traceback of its error has frames, which have the rows that were read."""
    rename(context, host, 'renamed')
    with failing(context.db, 'placement_resource_providers'), pytest.raises(db_exc.DBError) as raised:
        provider_cache.up_to_date()
    error = weakref.ref(raised.value)
    del raised
    gc.collect()
    assert error() is None


def test_a_load_leaves_the_garbage_collector_on(db: Database) -> None:
    with failing(db, 'placement_inventories'), pytest.raises(db_exc.DBError, match='planted'):
        ProviderCache(db).up_to_date()
    assert gc.isenabled()
    ProviderCache(db).up_to_date()
    assert gc.isenabled()


def test_a_failure_at_commit_keeps_the_whole_new_state(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, copy: Callable[[], Database]
) -> None:
    """The database that is read next may be older than the one before."""

    def fail(_connection: Any) -> None:
        raise Planted

    claim_one(context, host)
    between = copy()
    claim_one(context, host)
    create_provider(context)
    with listening(context.db.engine, 'commit', fail), pytest.raises(exception.DatabaseUnavailable):
        provider_cache.up_to_date()
    provider_cache._db = between
    # All of the newer state, and nothing of the older one.
    assert_same(provider_cache.up_to_date(), scratch(context.db))
    provider_cache._db = context.db
    claim_one(context, host)
    compare(provider_cache, context.db)


def test_a_damaged_state_is_loaded_again_at_the_next_search(
    provider_cache: Counting,
    context: RequestContext,
    host: ResourceProvider,
    caplog: pytest.LogCaptureFixture,
    reasons: Reasons,
) -> None:
    loaded = provider_cache._state
    assert loaded is not None
    for partition in loaded.snapshot.partitions:
        partition.__dict__['by_id'] = {}
    claim_one(context, host)
    assert_same(provider_cache.up_to_date(), scratch(context.db))
    assert 'The cache could not be refreshed' in caplog.text
    assert reasons() == ['the refresh failed']
    assert provider_cache.builds == 2


def test_a_refresh_after_many_entries_of_the_log_is_a_transaction(
    provider_cache: Counting, context: RequestContext, queries: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which adds three statements: slots, entries of the log, usages."""
    monkeypatch.setattr(change_log_reader, '_MAX_RECENT_ENTRIES', 3)
    hosts = [create_provider(context, VCPU=8) for _ in range(3)]
    # The last entry that the cache knows is among those that a refresh selects.
    provider_cache.up_to_date()
    for count, statements in ((1, 2), (2, 5), (1, 2), (3, 5)):
        for host in hosts[:count]:
            claim_one(context, host)
        with queries(at_most=5) as seen:
            provider_cache.up_to_date()
        assert len(seen) == statements
        assert_same(provider_cache.up_to_date(), scratch(context.db))
    assert provider_cache.builds == 1


def test_forked_processes_share_the_index_that_a_refresh_needs(context: RequestContext) -> None:
    create_provider(context, VCPU=8)
    assert ['by_id' in vars(partition) for partition in scratch(context.db).partitions] == [True]


def test_usages_of_close_ids_are_read_in_ranges(
    provider_cache: Counting, context: RequestContext, queries: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the providers between them, whose generations may be newer than the usages that the cache has."""
    monkeypatch.setattr(loader, '_MAX_RANGE', 3)
    ids = [create_provider(context, VCPU=8).id for _ in range(9)]
    del ids[2:5]
    names = provider_cache.up_to_date().names
    with queries(at_most=3) as seen, context.db.reader() as tx:
        assert [*loader.load_usages(tx, ids, names.classes)] == ids
    ranges = [map(int, ends) for statement in seen for ends in re.findall(r'BETWEEN (\d+) AND (\d+)', str(statement))]
    assert {last - first for first, last in ranges} == {2}


def test_claims_keep_all_cached_properties_of_a_partition(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    [before] = provider_cache.up_to_date().partitions
    assert_cached_properties(before)
    claim_one(context, host)
    [after] = provider_cache.up_to_date().partitions
    changed = {name for name, value in vars(before).items() if vars(after)[name] is not value}
    assert changed == {'providers', 'inventory_columns', '_fragments'}
    assert vars(before).keys() > {field.name for field in dataclasses.fields(before)}
    assert_cached_properties(after)


@pytest.mark.parametrize('change', ['claim', 'traits'])
def test_providers_that_a_write_does_not_change_are_kept(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, change: str
) -> None:
    """A write neither makes new objects of other providers nor removes their cached JSON."""
    other = create_provider(context, VCPU=8)
    before = provider_cache.up_to_date()
    [partition] = before.partitions
    both = [partition.by_uuid[provider.uuid] for provider in (host, other)]
    list(partition.fragments('generation', both, lambda provider: b'%d' % provider.generation))
    if change == 'claim':
        claim_one(context, host)
    else:
        set_traits(host, ['HW_CPU_X86_VMX'])
    after = provider_cache.up_to_date()
    assert after.find_provider(other.uuid) is before.find_provider(other.uuid)
    written: list[str] = []

    def write(provider: Provider) -> bytes:
        written.append(provider.uuid)
        return b'%d' % provider.generation

    assert list(after.partitions[0].fragments('generation', both, write)) == [b'2', b'1']
    assert written == [host.uuid]
