"""How the provider cache is refreshed, and when it is loaded again."""

from __future__ import annotations

import concurrent.futures
import contextlib
import gc
import logging
import pathlib
import re
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.cache import refresh
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.candidates.providers import Provider
from placement.db import change_log, tables
from placement.db.api import Database
from placement.objects.inventory import Inventory
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support import applications
from tests.support.cache_equality import assert_same, compare
from tests.support.event_hooks import listening
from tests.support.fixtures import Counter
from tests.support.objects import claim, create_provider


class Counting(ProviderCache):
    """A provider cache that counts how often it was loaded and refreshed, and can be made to wait before a step."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.builds = 0
        self.steps = 0
        self.gate = threading.Event()
        self.gate.set()

    def _load(self, tx: sa.Connection) -> Any:
        self.builds += 1
        return super()._load(tx)

    def _refresh(self, tx: sa.Connection, version: Any) -> Any:
        self.steps += 1
        assert self.gate.wait(60)
        return super()._refresh(tx, version)


@pytest.fixture
def host(context: RequestContext) -> ResourceProvider:
    return create_provider(context, 'host', VCPU=100)


@pytest.fixture
def provider_cache(db: Database, host: ResourceProvider) -> Counting:
    """The loaded provider cache of a database with one host."""
    made = Counting(db)
    made.current()
    assert made.builds == 1
    return made


Reasons = Callable[[], list[str]]


@pytest.fixture
def reasons(caplog: pytest.LogCaptureFixture) -> Reasons:
    """Why the cache was reloaded so far, as the log says at the default level."""
    caplog.set_level(logging.INFO, refresh.__name__)
    found = re.compile(r'Reloading the cache: (.*)')
    return lambda: [match[1] for record in caplog.records if (match := found.fullmatch(record.getMessage()))]


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
    made = copy()
    rename(context, host, 'renamed')
    provider_cache.current()
    return made


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database that stays older for 0.2 s is taken for a restored one."""
    monkeypatch.setattr(refresh, 'STALE_READ_GRACE_SECONDS', 0.2)


def rename(context: RequestContext, host: ResourceProvider, name: str) -> None:
    ResourceProvider.get_by_uuid(context, host.uuid).rename(name)


def claim_one(context: RequestContext, host: ResourceProvider) -> None:
    claim(context, {host.uuid: {'VCPU': 1}})


def name_in(state: Snapshot, host: ResourceProvider) -> str | None:
    record = state.find_provider(host.uuid)
    assert record is not None
    return record.name


def scratch(db: Database) -> Snapshot:
    return ProviderCache(db).current()


# A database that is older than the cache ----------------------------------------------------------------


def test_the_state_of_a_lagging_node_is_not_taken(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, older: Database
) -> None:
    newest = provider_cache.current()
    provider_cache._db = older
    assert provider_cache.current() is newest
    provider_cache._db = context.db
    claim_one(context, host)
    assert_same(provider_cache.current(), scratch(context.db))
    assert provider_cache.builds == 1


@pytest.mark.usefixtures('short_grace')
def test_a_node_that_lags_repeatedly_is_not_taken_for_a_restored_database(
    provider_cache: Counting, context: RequestContext, older: Database
) -> None:
    newest = provider_cache.current()
    for db in (older, context.db):
        provider_cache._db = db
        assert provider_cache.current() is newest
    time.sleep(0.3)
    provider_cache._db = older
    assert provider_cache.current() is newest
    assert provider_cache.builds == 1


@pytest.mark.usefixtures('short_grace')
def test_the_cache_is_loaded_again_when_a_database_stays_older(
    provider_cache: Counting, older: Database, reasons: Reasons
) -> None:
    newest = provider_cache.current()
    provider_cache._db = older
    assert provider_cache.current() is newest
    time.sleep(0.3)
    assert_same(provider_cache.current(), scratch(older))
    assert provider_cache.builds == 2
    provider_cache.current()
    assert provider_cache.builds == 2
    (reason,) = reasons()
    assert reason.startswith('the database has been older than the cache for ')


def test_the_cache_is_loaded_again_at_once_when_a_restored_database_was_written_to(
    provider_cache: Counting, host: ResourceProvider, older: Database, reasons: Reasons
) -> None:
    rename(applications.administrator(older), host, 'renamed otherwise')
    provider_cache._db = older
    assert name_in(provider_cache.current(), host) == 'renamed otherwise'
    assert provider_cache.builds == 2
    assert reasons() == ['the change log is partly older and partly newer than the cache']
    assert_same(provider_cache.current(), scratch(older))


# Changes that the log does not hold ----------------------------------------------------------------------


def test_the_cache_is_loaded_again_when_entries_of_the_log_are_missing(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, reasons: Reasons
) -> None:
    for number in range(3):
        rename(context, host, f'host-{number}')
    with context.db.engine.begin() as tx:
        newest = sa.select(sa.func.max(tables.change_log.c.sequence)).scalar_subquery()
        tx.execute(tables.change_log.delete().where(tables.change_log.c.sequence < newest))
    assert name_in(provider_cache.current(), host) == 'host-2'
    assert provider_cache.builds == 2
    assert reasons() == ['the change log does not have all entries since the version of the cache']
    rename(context, host, 'host')
    compare(provider_cache, context.db)
    assert provider_cache.builds == 3  # Loading the cache that it was compared with.


def test_changes_by_hand_are_seen_after_invalidate_caches(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, reasons: Reasons
) -> None:
    with context.db.engine.begin() as tx:
        tx.execute(tables.resource_providers.update().values(name='by hand'))
    assert name_in(provider_cache.current(), host) == 'host'
    context.db.write(change_log.record_reload)
    assert name_in(provider_cache.current(), host) == 'by hand'
    provider_cache.current()
    assert provider_cache.builds == 2
    assert reasons() == ['a command requested it']


# Other processes and threads -----------------------------------------------------------------------------


def test_names_changed_by_another_process_are_followed(
    provider_cache: Counting, other_process: RequestContext, db: Database
) -> None:
    ResourceClass.create(other_process, 'CUSTOM_ONE').rename('CUSTOM_OTHER')
    Trait.create(other_process, 'CUSTOM_ONE')
    names = provider_cache.current().names
    assert 'CUSTOM_OTHER' in names.class_ids
    assert 'CUSTOM_ONE' not in names.class_ids
    assert 'CUSTOM_ONE' in names.traits
    ResourceClass.destroy(other_process, 'CUSTOM_OTHER')
    Trait.destroy(other_process, 'CUSTOM_ONE')
    compare(provider_cache, db)
    assert 'CUSTOM_OTHER' not in provider_cache.current().names.class_ids


def test_threads_that_wait_share_one_refresh_of_the_cache(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    rename(context, host, 'renamed')
    provider_cache.gate.clear()
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        waiting = [pool.submit(provider_cache.current) for _ in range(6)]
        time.sleep(0.3)
        assert not any(one.done() for one in waiting)
        provider_cache.gate.set()
    found = [one.result() for one in waiting]
    assert {name_in(state, host) for state in found} == {'renamed'}
    assert len({id(state) for state in found}) == 1
    assert provider_cache.steps == 1


def test_a_thread_finds_its_own_last_write(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    """Threads write and search at the same time."""

    def act(number: int) -> None:
        own = create_provider(context, f'own-{number}')
        for turn in range(15):
            own.rename(f'own-{number}-{turn}')
            assert name_in(provider_cache.current(), own) == f'own-{number}-{turn}'

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        list(pool.map(act, range(6)))
    assert provider_cache.builds == 1
    compare(provider_cache, context.db)


# Faults --------------------------------------------------------------------------------------------------


class Planted(Exception):
    """An error that no code handles."""


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
        'placement_change_log_slots',
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
                provider_cache.current()
    assert name_in(provider_cache.current(), host) == 'renamed'
    assert provider_cache.builds == 1
    compare(provider_cache, context.db)


def test_a_load_leaves_the_garbage_collector_on(db: Database) -> None:
    with failing(db, 'placement_inventories'), pytest.raises(db_exc.DBError, match='planted'):
        ProviderCache(db).current()
    assert gc.isenabled()
    ProviderCache(db).current()
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
        provider_cache.current()
    provider_cache._db = between
    # All of the newer state, and nothing of the older one.
    assert_same(provider_cache.current(), scratch(context.db))
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
    loaded = provider_cache._version
    assert loaded is not None
    loaded.builder._root_id_of.clear()
    claim_one(context, host)
    assert_same(provider_cache.current(), scratch(context.db))
    assert 'The cache could not be refreshed' in caplog.text
    assert reasons() == ['the refresh failed']
    assert provider_cache.builds == 2


# The cost of a check -------------------------------------------------------------------------------------


@pytest.mark.parametrize('slots', [5, 500, 2000])
def test_a_check_is_one_statement_whatever_the_number_of_slots(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider, queries: Counter, slots: int
) -> None:
    """It returns one row. A refresh of many slots takes one statement more than of few."""
    with context.db.engine.begin() as tx:
        rows = [{'id': id_, 'sequence': 0, 'token': 0, 'owner': 1} for id_ in range(2, slots + 1)]
        tx.execute(tables.change_log_slots.insert(), rows)
    provider_cache.current()
    with queries(at_most=1) as seen:
        provider_cache.current()
    assert len(seen) == 1
    assert len(context.db.fetch_all(change_log.CHECK)) == 1
    claim_one(context, host)
    with queries(at_most=4 + (slots > 64)):
        provider_cache.current()
    assert provider_cache.builds == 1
    compare(provider_cache, context.db)


@pytest.mark.parametrize('claims', [1, 40])
def test_a_refresh_after_claims_is_four_statements(
    provider_cache: Counting, context: RequestContext, queries: Counter, claims: int
) -> None:
    """Check, slots, entries of the log, usages."""
    hosts = [create_provider(context, VCPU=8, MEMORY_MB=64, DISK_GB=8) for _ in range(claims)]
    provider_cache.current()
    for host in hosts:
        claim(context, {host.uuid: {'VCPU': 1, 'MEMORY_MB': 2, 'DISK_GB': 3}})
    with queries(at_most=4) as seen:
        provider_cache.current()
    assert len(seen) == 4
    assert provider_cache.builds == 1
    compare(provider_cache, context.db)


def test_providers_that_a_claim_does_not_change_are_kept(
    provider_cache: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    """A claim neither makes new objects of other providers nor removes their cached JSON."""
    other = create_provider(context, VCPU=8)
    before = provider_cache.current()
    [partition] = before.partitions
    both = [partition.by_uuid[one.uuid] for one in (host, other)]
    list(partition.fragments('generation', both, lambda one: b'%d' % one.generation))
    claim_one(context, host)
    after = provider_cache.current()
    assert after.find_provider(other.uuid) is before.find_provider(other.uuid)
    written: list[str] = []

    def write(one: Provider) -> bytes:
        written.append(one.uuid)
        return b'%d' % one.generation

    assert list(after.partitions[0].fragments('generation', both, write)) == [b'2', b'1']
    assert written == [host.uuid]


@pytest.mark.parametrize('last', [2, 19], ids=['a range of ids', 'a list of ids'])
def test_a_provider_between_those_of_claims_is_refreshed_on_its_own(
    db: Database, context: RequestContext, last: int
) -> None:
    hosts = [create_provider(context, VCPU=100) for _ in range(20)]
    provider_cache = Counting(db)
    provider_cache.current()
    # Not the same kind of change: the cache has no column yet for its usage of this class.
    hosts[1].set_inventories([Inventory.from_request('DISK_GB', {'total': 7})])
    claim(context, {hosts[0].uuid: {'VCPU': 1}, hosts[last].uuid: {'VCPU': 2}})
    claim(context, {hosts[1].uuid: {'DISK_GB': 3}})
    assert_same(provider_cache.current(), scratch(db))
    assert (provider_cache.builds, provider_cache.steps) == (1, 1)
