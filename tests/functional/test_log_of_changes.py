"""The log of changes: what each write notes, how the log is read, and the numbers of writers."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from oslo_config import cfg

from placement.cmd import manage, manage_audit
from placement.db import changes, generation, tables
from placement.db.api import Database, TryAgain
from placement.db.changes import NO_PROVIDER, What
from placement.db.together import Together
from placement.objects.allocation import AllocationList
from placement.objects.inventory import Inventory
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.web.context import RequestContext
from tests.support import damage
from tests.support.fixtures import PointCommandsAt
from tests.support.objects import claim, create_provider

Logged = Callable[[], dict[int, What]]


@pytest.fixture
def logged(db: Database) -> Logged:
    """What was logged since the last call."""

    def ask() -> dict[int, What]:
        with db.reader() as tx:
            newest = changes.newest(tx)
            found = changes.since(tx, known[-1], newest)
        known.append(newest)
        return found

    known: list[changes.Vector] = [{}]
    ask()
    return ask


def test_writes_to_providers_and_their_parts_are_logged(context: RequestContext, logged: Logged) -> None:
    one, other = create_provider(context), create_provider(context)
    child = create_provider(context, 'child', other.uuid)
    assert logged() == {provider.id: What.PROVIDER for provider in (one, other, child)}
    one.set_inventories([Inventory.from_request('VCPU', {'total': 8})])
    one.set_traits(['HW_CPU_X86_AVX2'])
    one.set_aggregates([str(uuid.uuid4())], bump=True)
    assert logged() == {one.id: What.PROVIDER}
    one.set_aggregates([], bump=False)
    assert logged() == {one.id: What.PROVIDER}
    one.set_traits(['HW_CPU_X86_AVX2'])
    assert logged() == {}
    other.update('another', parent=one.uuid)
    assert logged() == {other.id: What.PROVIDER, child.id: What.PROVIDER}
    ResourceProvider.destroy(context, child.uuid)
    assert logged() == {child.id: What.PROVIDER}


def test_claims(context: RequestContext, logged: Logged) -> None:
    one, other = create_provider(context, VCPU=8), create_provider(context, VCPU=8)
    logged()
    consumer = claim(context, {one.uuid: {'VCPU': 1}})
    assert logged() == {one.id: What.USAGE}
    claim(context, {other.uuid: {'VCPU': 1}}, consumer)
    assert logged() == {one.id: What.USAGE, other.id: What.USAGE}
    AllocationList.delete_all_by_consumer(context, consumer)
    assert logged() == {other.id: What.USAGE}


def test_names(context: RequestContext, logged: Logged) -> None:
    trait, made = Trait.create(context, 'CUSTOM_ONE'), ResourceClass.create(context, 'CUSTOM_ONE')
    assert logged() == {NO_PROVIDER: What.NAMES}
    made.rename('CUSTOM_OTHER')
    assert logged() == {NO_PROVIDER: What.NAMES}
    Trait.destroy(context, trait.name)
    ResourceClass.destroy(context, 'CUSTOM_OTHER')
    assert logged() == {NO_PROVIDER: What.NAMES}


def test_the_note_that_covers_more_wins(db: Database, logged: Logged) -> None:
    def work(tx: sa.Connection) -> None:
        changes.providers(tx, [1, 2])
        changes.usage(tx, [2, 3])
        changes.providers(tx, [3])
        changes.names(tx)
        changes.rebuild(tx)
        changes.names(tx)

    db.write(work)
    db.write(lambda tx: changes.usage(tx, [1, 4]))
    assert logged() == {
        1: What.PROVIDER,
        2: What.PROVIDER,
        3: What.PROVIDER,
        4: What.USAGE,
        NO_PROVIDER: What.REBUILD,
    }


def test_rebuild_mirrors_is_logged(
    conf: cfg.ConfigOpts, logged: Logged, point_commands_at: PointCommandsAt, capsys: pytest.CaptureFixture[str]
) -> None:
    point_commands_at(conf.placement_database.connection)
    assert manage.main(['db', 'rebuild-mirrors']) == 0
    assert capsys.readouterr().out.endswith('before its next search.\n')
    assert logged() == {NO_PROVIDER: What.REBUILD}


def test_a_repair_is_logged(conf: cfg.ConfigOpts, logged: Logged, point_commands_at: PointCommandsAt) -> None:
    url = point_commands_at(conf.placement_database.connection)
    damage.plant(url, *damage.SOUND, *damage.ALL['usage too high'].statements, *damage.ALL['wrong root'].statements)
    assert logged() == {}
    assert manage.main(['audit', '--repair']) == manage_audit.REPAIRED
    assert logged() == {1: What.USAGE, 2: What.PROVIDER}


def test_a_note_outside_of_a_write_is_an_error(db: Database) -> None:
    with db.reader() as tx, pytest.raises(changes.Unlogged):
        changes.names(tx)


def test_a_write_without_a_note_fails(db: Database, context: RequestContext) -> None:
    provider = create_provider(context, 'host')
    rename = tables.resource_providers.update().values(name='renamed')
    with pytest.raises(changes.Unlogged, match='resource_providers'):
        db.write(lambda tx: tx.execute(rename))
    with pytest.raises(changes.Unlogged, match='traits'):
        db.write(lambda tx: tx.execute(tables.traits.insert().values(name='CUSTOM_ONE')))
    assert ResourceProvider.get_by_uuid(context, provider.uuid).name == 'host'
    db.write(lambda tx: tx.execute(rename.where(tables.resource_providers.c.id == -1)))


def test_nothing_is_noted_after_the_end(db: Database, context: RequestContext) -> None:
    """As two parts would that each take themselves for the last one of the transaction."""
    provider = create_provider(context, 'host')

    def work(tx: sa.Connection) -> None:
        for _ in range(2):
            last = Together(tx)
            generation.bump(last, provider)
            last.run_last()

    with pytest.raises(changes.Unlogged, match='after the last'):
        db.write(work)
    assert ResourceProvider.get_by_uuid(context, provider.uuid).generation == 0


def newest(db: Database) -> dict[int, int]:
    with db.reader() as tx:
        return changes.newest(tx)


def test_numbers_have_no_gaps(db: Database) -> None:
    """Also when writes are refused or tried again in between."""
    before = newest(db)
    attempts: list[int] = []

    def refused(tx: sa.Connection) -> None:
        changes.usage(tx, [1])
        raise ZeroDivisionError

    def second_time(tx: sa.Connection) -> None:
        changes.usage(tx, [1])
        attempts.append(1)
        if len(attempts) < 2:
            raise TryAgain

    with pytest.raises(ZeroDivisionError):
        db.write(refused)
    db.write(second_time)
    db.write(lambda _tx: None)
    db.write(lambda tx: changes.usage(tx, [1]))
    ((writer, number),) = before.items()
    assert newest(db) == {writer: number + 2}


def test_a_failed_commit_uses_no_number(db: Database, context: RequestContext) -> None:
    """Its entry was inserted before the COMMIT failed. The next attempt inserts it again, with the same number."""
    provider = create_provider(context, 'host')
    attempts = 0

    def work(tx: sa.Connection) -> None:
        nonlocal attempts
        attempts += 1
        changes.providers(tx, [provider.id])
        if attempts < 3:
            # A foreign key error, which SQLite reports only at COMMIT.
            tx.exec_driver_sql('PRAGMA defer_foreign_keys = ON')
            row = {'resource_provider_id': provider.id, 'aggregate_id': 77}
            tx.execute(tables.resource_provider_aggregates.insert(), row)

    with db.reader() as tx:
        before = changes.newest(tx)
    db.write(work)
    db.write(work)
    assert attempts == 4
    with db.reader() as tx:
        after = changes.newest(tx)
        assert changes.since(tx, before, after) == {provider.id: What.PROVIDER}
    assert after.keys() == before.keys()
    assert sum(after.values()) == sum(before.values()) + 2


def test_missing_entries_are_a_gap(db: Database, logged: Logged) -> None:
    (writer,) = newest(db)
    db.write(lambda tx: changes.usage(tx, [1]))
    number = newest(db)[writer]
    with db.reader() as tx:
        upto = changes.newest(tx)
        assert changes.since(tx, {writer: number - 1}, upto) == {1: What.USAGE}
        assert changes.since(tx, {writer: number}, upto) == {}
        with pytest.raises(changes.Gap):
            changes.since(tx, {writer: number + 1}, upto)
    with db.engine.begin() as tx:
        tx.execute(tables.changes.delete().where(tables.changes.c.sequence < number))
    with db.reader() as tx:
        for vector in ({writer: number - 1}, {}):
            with pytest.raises(changes.Gap):
                changes.since(tx, vector, upto)


def test_the_log_of_hundreds_of_writers_is_read(db: Database, logged: Logged) -> None:
    with db.engine.begin() as tx:
        for number in range(1, 251):
            tx.execute(tables.writers.insert().values(id=number))
            changes.enter(tx, number, 1, {number: What.USAGE, number + 1: What.PROVIDER})
    found = logged()
    assert found == {1: What.USAGE} | dict.fromkeys(range(2, 252), What.PROVIDER)


def test_a_write_with_more_entries_than_one_statement_takes(db: Database, logged: Logged) -> None:
    """Every provider is noted once, also where one statement ends and the next begins."""
    many = range(1, 25_000)
    db.write(lambda tx: changes.providers(tx, many))
    assert logged() == dict.fromkeys(many, What.PROVIDER)


def test_a_writer_that_was_removed_is_replaced(db: Database) -> None:
    db.write(lambda tx: changes.usage(tx, [1]))
    with db.engine.begin() as tx:
        tx.execute(tables.changes.delete())
        tx.execute(tables.writers.delete())
    db.write(lambda tx: changes.usage(tx, [1]))
    assert list(newest(db).values()) == [1]
