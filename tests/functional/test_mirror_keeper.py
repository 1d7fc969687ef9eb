"""How the mirror of a process follows its database, and when it is built anew."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import logging
import pathlib
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc

from placement import conf as placement_conf
from placement.claims.request import ConsumerClaim
from placement.db import changes, tables
from placement.db.api import Database
from placement.mirror import keeper
from placement.mirror.keeper import Mirror
from placement.mirror.state import State
from placement.objects.allocation import AllocationList
from placement.objects.inventory import Inventory
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support.mirror_equality import assert_same, compare


class Counting(Mirror):
    """A mirror that counts how often it was built and brought forward, and can be made to wait before a step."""

    def __init__(self, db: Database) -> None:
        super().__init__(db)
        self.builds = 0
        self.steps = 0
        self.gate = threading.Event()
        self.gate.set()

    def _load(self, tx: sa.Connection) -> Any:
        self.builds += 1
        return super()._load(tx)

    def _follow(self, tx: sa.Connection, held: Any) -> Any:
        self.steps += 1
        assert self.gate.wait(10)
        return super()._follow(tx, held)


@pytest.fixture
def host(context: RequestContext) -> ResourceProvider:
    made = ResourceProvider.create(context, name='host', uuid=str(uuid.uuid4()))
    made.set_inventories([Inventory.from_request('VCPU', {'total': 100})])
    return made


@pytest.fixture
def mirror(db: Database, host: ResourceProvider) -> Counting:
    """The mirror of a database with one host, built."""
    made = Counting(db)
    made.current()
    assert made.builds == 1
    return made


Open = Callable[[pathlib.Path], Database]


@pytest.fixture
def open_database() -> Iterator[Open]:
    """Opens a SQLite file as another process would; closed at the end."""
    with contextlib.ExitStack() as stack:

        def opened(path: pathlib.Path) -> Database:
            overrides = {'placement_database': {'connection': f'sqlite:///{path}'}}
            made = Database(placement_conf.load(environ={}, config_files=[], overrides=overrides))
            stack.callback(made.dispose)
            return made

        yield opened


@pytest.fixture
def copy(conf: cfg.ConfigOpts, tmp_path: pathlib.Path, open_database: Open) -> Callable[[], Database]:
    """Copies the database as it is now; the copy serves as a node that lags, or as a backup."""

    def copied() -> Database:
        path = tmp_path / f'{uuid.uuid4()}.sqlite'
        with (
            contextlib.closing(sqlite3.connect(tmp_path / 'placement.sqlite')) as source,
            contextlib.closing(sqlite3.connect(path)) as target,
        ):
            source.backup(target)
        return open_database(path)

    return copied


@pytest.fixture
def another(tmp_path: pathlib.Path, open_database: Open, conf: cfg.ConfigOpts) -> RequestContext:
    """A context as that of another process on the same database."""
    return RequestContext(conf=conf, db=open_database(tmp_path / 'placement.sqlite'), roles=['admin'])


def rename(context: RequestContext, host: ResourceProvider, name: str) -> None:
    ResourceProvider.get_by_uuid(context, host.uuid).update(name)


def claim(context: RequestContext, host: ResourceProvider) -> None:
    AllocationList.replace_all(context, [ConsumerClaim(str(uuid.uuid4()), 'project', 'user', {host.uuid: {'VCPU': 1}})])


def name_in(state: State, host: ResourceProvider) -> str | None:
    record = state.find(host.uuid)
    assert record is not None
    return record.name


def scratch(db: Database) -> State:
    return Mirror(db).current()


# A database that is older than the mirror ----------------------------------------------------------------


def test_the_state_of_a_lagging_node_is_not_taken(
    mirror: Counting, context: RequestContext, host: ResourceProvider, copy: Callable[[], Database]
) -> None:
    older = copy()
    rename(context, host, 'renamed')
    newest = mirror.current()
    mirror._db = older
    assert mirror.current() is newest
    mirror._db = context.db
    claim(context, host)
    assert_same(mirror.current(), scratch(context.db))
    assert mirror.builds == 1


def test_a_node_that_lags_repeatedly_is_not_taken_for_a_restored_database(
    mirror: Counting,
    context: RequestContext,
    host: ResourceProvider,
    copy: Callable[[], Database],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, 'PATIENCE', 0.2)
    older = copy()
    rename(context, host, 'renamed')
    newest = mirror.current()
    for db in (older, context.db):
        mirror._db = db
        assert mirror.current() is newest
    time.sleep(0.3)
    mirror._db = older
    assert mirror.current() is newest
    assert mirror.builds == 1


def test_the_mirror_is_built_anew_when_a_database_stays_older(
    mirror: Counting,
    context: RequestContext,
    host: ResourceProvider,
    copy: Callable[[], Database],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keeper, 'PATIENCE', 0.2)
    backup = copy()
    rename(context, host, 'renamed')
    newest = mirror.current()
    mirror._db = backup
    assert mirror.current() is newest
    time.sleep(0.3)
    assert_same(mirror.current(), scratch(backup))
    assert mirror.builds == 2
    mirror.current()
    assert mirror.builds == 2


def test_the_mirror_is_built_anew_at_once_when_a_restored_database_was_written_to(
    mirror: Counting,
    context: RequestContext,
    host: ResourceProvider,
    copy: Callable[[], Database],
    conf: cfg.ConfigOpts,
) -> None:
    backup = copy()
    rename(context, host, 'renamed')
    mirror.current()
    rename(RequestContext(conf=conf, db=backup, roles=['admin']), host, 'renamed otherwise')
    mirror._db = backup
    assert name_in(mirror.current(), host) == 'renamed otherwise'
    assert mirror.builds == 2
    assert_same(mirror.current(), scratch(backup))


# Changes that the log does not hold ----------------------------------------------------------------------


def test_the_mirror_is_built_anew_when_entries_of_the_log_are_missing(
    mirror: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    for number in range(3):
        rename(context, host, f'host-{number}')
    with context.db.engine.begin() as tx:
        newest = sa.select(sa.func.max(tables.changes.c.sequence)).scalar_subquery()
        tx.execute(tables.changes.delete().where(tables.changes.c.sequence < newest))
    assert name_in(mirror.current(), host) == 'host-2'
    assert mirror.builds == 2
    rename(context, host, 'host')
    compare(mirror, context.db)
    assert mirror.builds == 3  # Building the mirror that it was compared with.


def test_changes_by_hand_are_seen_after_rebuild_mirrors(
    mirror: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    with context.db.engine.begin() as tx:
        tx.execute(tables.resource_providers.update().values(name='by hand'))
    assert name_in(mirror.current(), host) == 'host'
    context.db.write(changes.rebuild)
    assert name_in(mirror.current(), host) == 'by hand'
    mirror.current()
    assert mirror.builds == 2


# Writers that are removed --------------------------------------------------------------------------------


def grow_old(db: Database, hours: float) -> None:
    """Set the time of every entry of the log to so many hours ago."""
    at = dt.datetime.now(dt.timezone.utc).replace(tzinfo=None) - dt.timedelta(hours=hours)
    with db.engine.begin() as tx:
        tx.execute(tables.changes.update().values(created_at=at))


def remove_writers(db: Database) -> None:
    with db.engine.begin() as tx:
        tx.execute(tables.changes.delete())
        tx.execute(tables.writers.delete())


def test_removing_a_writer_without_recent_entries_does_not_rebuild_the_mirror(
    context: RequestContext, host: ResourceProvider, another: RequestContext
) -> None:
    grow_old(context.db, hours=20)
    mirror = Counting(context.db)
    before = mirror.current()
    remove_writers(context.db)
    for _ in range(2):
        assert mirror.current() is before
    rename(another, host, 'renamed')
    assert name_in(mirror.current(), host) == 'renamed'
    assert mirror.builds == 1
    # The writers of now are new, so the mirror takes their removal for a restored database.
    remove_writers(context.db)
    rename(another, host, 'renamed again')
    assert name_in(mirror.current(), host) == 'renamed again'
    assert mirror.builds == 2


def test_removing_an_idle_writer_while_others_write(
    context: RequestContext, host: ResourceProvider, another: RequestContext
) -> None:
    grow_old(context.db, hours=20)
    mirror = Counting(context.db)
    mirror.current()
    remove_writers(context.db)
    rename(another, host, 'renamed')
    compare(mirror, context.db)
    assert name_in(mirror.current(), host) == 'renamed'


def test_removing_a_writer_that_wrote_since_rebuilds_the_mirror(
    context: RequestContext, host: ResourceProvider, another: RequestContext
) -> None:
    """It wrote after the mirror was built, so it is missing because the database was restored."""
    grow_old(context.db, hours=20)
    mirror = Counting(context.db)
    mirror.current()
    rename(context, host, 'lost')
    assert name_in(mirror.current(), host) == 'lost'
    with context.db.engine.begin() as tx:
        tx.execute(tables.resource_providers.update().values(name='restored'))
    remove_writers(context.db)
    other = ResourceProvider.create(another, name='other', uuid=str(uuid.uuid4()))
    assert name_in(mirror.current(), other) == 'other'
    assert name_in(mirror.current(), host) == 'restored'
    assert mirror.builds == 2


def test_removing_a_writer_long_after_the_last_search_rebuilds_the_mirror(
    context: RequestContext, host: ResourceProvider, another: RequestContext
) -> None:
    """It may have written after the last search."""
    grow_old(context.db, hours=20)
    mirror = Counting(context.db)
    mirror.current()
    held = mirror._version
    assert held is not None
    mirror._version = dataclasses.replace(held, clock=held.clock - dt.timedelta(hours=30))
    rename(context, host, 'renamed')
    remove_writers(context.db)
    assert name_in(mirror.current(), host) == 'renamed'
    assert mirror.builds == 2


def test_the_clock_of_the_database_is_read_once_per_interval(mirror: Counting, context: RequestContext) -> None:
    held = mirror._version
    assert held is not None
    mirror._version = dataclasses.replace(
        held, clock=held.clock - dt.timedelta(hours=2), asked_clock=held.asked_clock - 7200
    )
    assert mirror.current() is held.state
    assert mirror._version.clock >= held.clock
    assert (mirror.builds, mirror.steps) == (1, 1)
    mirror.current()
    assert mirror.steps == 1


# Other processes and threads -----------------------------------------------------------------------------


def test_names_changed_by_another_process_are_followed(mirror: Counting, another: RequestContext, db: Database) -> None:
    ResourceClass.create(another, 'CUSTOM_ONE').rename('CUSTOM_OTHER')
    Trait.create(another, 'CUSTOM_ONE')
    names = mirror.current().names
    assert 'CUSTOM_OTHER' in names.class_ids
    assert 'CUSTOM_ONE' not in names.class_ids
    assert 'CUSTOM_ONE' in names.traits
    ResourceClass.destroy(another, 'CUSTOM_OTHER')
    Trait.destroy(another, 'CUSTOM_ONE')
    compare(mirror, db)
    assert 'CUSTOM_OTHER' not in mirror.current().names.class_ids


def test_threads_that_wait_share_one_step_of_the_mirror(
    mirror: Counting, context: RequestContext, host: ResourceProvider
) -> None:
    rename(context, host, 'renamed')
    mirror.gate.clear()
    found: list[State] = []
    threads = [threading.Thread(target=lambda: found.append(mirror.current())) for _ in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(0.3)
    assert found == []
    mirror.gate.set()
    for thread in threads:
        thread.join()
    assert {name_in(state, host) for state in found} == {'renamed'}
    assert len({id(state) for state in found}) == 1
    assert mirror.steps == 1


def test_a_thread_finds_its_own_last_write(mirror: Counting, context: RequestContext, host: ResourceProvider) -> None:
    """Threads write and search at the same time."""
    failures: list[object] = []

    def act(number: int) -> None:
        own = ResourceProvider.create(context, name=f'own-{number}', uuid=str(uuid.uuid4()))
        for turn in range(15):
            own.update(f'own-{number}-{turn}')
            found = name_in(mirror.current(), own)
            if found != f'own-{number}-{turn}':
                failures.append((number, turn, found))

    threads = [threading.Thread(target=act, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert mirror.builds == 1
    compare(mirror, context.db)


# Faults --------------------------------------------------------------------------------------------------


class Planted(Exception):
    """An error that no code handles."""


@contextlib.contextmanager
def failing(db: Database, table: str) -> Iterator[None]:
    """Make every statement that reads this table fail."""

    def fail(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if f'FROM {table}' in statement:
            raise Planted('planted')

    sa.event.listen(db.engine, 'before_cursor_execute', fail)
    try:
        yield
    finally:
        sa.event.remove(db.engine, 'before_cursor_execute', fail)


@pytest.mark.parametrize(
    'table',
    [
        'placement_inventories',
        'placement_resource_provider_traits',
        'placement_resource_providers',
        'changes',
        'writers',
    ],
)
def test_a_failed_step_is_made_again_by_the_next_search(
    mirror: Counting, context: RequestContext, host: ResourceProvider, table: str
) -> None:
    claim(context, host)
    rename(context, host, 'renamed')
    with failing(context.db, table):
        for _ in range(2):
            with pytest.raises(db_exc.DBError, match='planted'):
                mirror.current()
    assert name_in(mirror.current(), host) == 'renamed'
    assert mirror.builds == 1
    compare(mirror, context.db)


def test_a_failure_at_commit_keeps_the_whole_new_state(
    mirror: Counting, context: RequestContext, host: ResourceProvider, copy: Callable[[], Database]
) -> None:
    """The database that is read next may be older than the one before."""

    def fail(_connection: Any) -> None:
        raise Planted

    claim(context, host)
    between = copy()
    claim(context, host)
    ResourceProvider.create(context, name='other', uuid=str(uuid.uuid4()))
    sa.event.listen(context.db.engine, 'commit', fail)
    with pytest.raises(Planted):
        mirror.current()
    sa.event.remove(context.db.engine, 'commit', fail)
    mirror._db = between
    # All of the newer state, and nothing of the older one.
    assert_same(mirror.current(), scratch(context.db))
    mirror._db = context.db
    claim(context, host)
    compare(mirror, context.db)


def test_a_damaged_state_is_built_anew_at_the_next_search(
    mirror: Counting, context: RequestContext, host: ResourceProvider, caplog: pytest.LogCaptureFixture
) -> None:
    held = mirror._version
    assert held is not None
    held.next._root_of.clear()
    claim(context, host)
    with caplog.at_level(logging.ERROR):
        assert_same(mirror.current(), scratch(context.db))
    assert 'is built anew' in caplog.text
    assert mirror.builds == 2
