"""The change log: what writes record, how the log is read, and the numbers of slots."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.claims.claim import delete_allocations
from placement.cmd import manage
from placement.db import change_log, change_log_reader, errors, tables
from placement.db.api import Database
from placement.db.change_log import NO_PROVIDER, ChangeKind, SlotState
from placement.db.change_log_reader import LogPosition, Position, Relation
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support import logs
from tests.support.fixtures import PointCommandsAt
from tests.support.objects import claim, create_provider

Logged = Callable[[], dict[int, int]]


@pytest.fixture
def logged(db: Database) -> Logged:
    """What was logged since the last call."""

    def read_changes() -> dict[int, int]:
        with db.reader() as tx:
            newest = change_log_reader.read_log_position(tx)
            changes = change_log_reader.read_since(tx, log_positions[-1], newest)
        log_positions.append(newest)
        return changes

    log_positions = [LogPosition()]
    read_changes()
    return read_changes


def test_writes_record_no_more_than_they_change(context: RequestContext, logged: Logged) -> None:
    """Every process reads all of a provider again, unless only its usage changed."""
    host, other = create_provider(context, VCPU=8), create_provider(context)
    child = create_provider(context, 'child', other.uuid)
    logged()
    consumer = claim(context, {host.uuid: {'VCPU': 1}})
    assert logged() == {host.id: ChangeKind.USAGE}
    delete_allocations(context.db, consumer)
    assert logged() == {host.id: ChangeKind.USAGE}
    ResourceProvider.rename_and_move(context, other.uuid, 'another', host.uuid)
    assert logged() == {other.id: ChangeKind.PROVIDER, child.id: ChangeKind.PROVIDER}


def test_provider_entry_replaces_usage_entry(db: Database, logged: Logged) -> None:
    def work(tx: sa.Connection) -> None:
        change_log.record_providers(tx, [1, 2])
        change_log.record_usage(tx, [2, 3])
        change_log.record_providers(tx, [3])
        change_log.record_names(tx)
        change_log.record_reload(tx)
        change_log.record_names(tx)

    db.write(work)
    db.write(lambda tx: change_log.record_usage(tx, [1, 4]))
    assert logged() == {
        1: ChangeKind.PROVIDER,
        2: ChangeKind.PROVIDER,
        3: ChangeKind.PROVIDER,
        4: ChangeKind.USAGE,
        NO_PROVIDER: ChangeKind.RELOAD,
    }


def newest(db: Database) -> dict[int, int]:
    with db.reader() as tx:
        return logs.sequences(tx)


def test_a_failed_commit_uses_no_number(db: Database, context: RequestContext) -> None:
    """Its entry was inserted before the COMMIT failed. The next attempt inserts it again, with the same number."""
    provider = create_provider(context, 'host')
    attempts: list[int] = []

    def work(tx: sa.Connection) -> None:
        attempts.append(1)
        change_log.record_providers(tx, [provider.id])
        if len(attempts) < 3:
            # A foreign key error, which SQLite reports only at COMMIT.
            tx.exec_driver_sql('PRAGMA defer_foreign_keys = ON')
            row = {'resource_provider_id': provider.id, 'aggregate_id': 77}
            tx.execute(tables.resource_provider_aggregates.insert(), row)

    before = newest(db)
    db.write(work)
    assert len(attempts) == 3
    assert newest(db) == {slot: number + 1 for slot, number in before.items()}


@pytest.fixture
def slots(db: Database) -> None:
    """Slots 1 to 5, which have a transaction each, with an entry of a provider with the id of the slot."""
    with db.engine.begin() as tx:
        tx.execute(tables.change_log.delete())
        tx.execute(tables.change_log_slots.delete())
        rows = [{'slot_id': id_, 'sequence': 1, 'token': id_, 'provider_id': id_, 'kind': 1} for id_ in range(1, 6)]
        tx.execute(tables.change_log.insert(), rows)
        slots = [{'id': row['slot_id'], 'sequence': 1, 'token': row['token']} for row in rows]
        tx.execute(tables.change_log_slots.insert(), slots)


def go_on(tx: sa.Connection, slot: int, sequence: int, token: int, provider: int) -> None:
    """Commit a transaction under a slot, as another process would."""
    values = {'sequence': sequence, 'token': token}
    tx.execute(tables.change_log_slots.update().where(tables.change_log_slots.c.id == slot).values(values))
    tx.execute(tables.change_log.insert(), values | {'slot_id': slot, 'provider_id': provider, 'kind': 2})


@pytest.mark.usefixtures('slots')
def test_entries_that_are_missing_or_of_another_transaction(db: Database) -> None:
    """The known entry has to be there with its token, and every entry after it."""
    with db.reader() as tx:
        before = change_log_reader.read_log_position(tx)
    with db.engine.begin() as tx:
        for number in (2, 3, 4):
            go_on(tx, 2, number, number * 10, 20 + number)
    with db.reader() as tx:
        upto = change_log_reader.read_log_position(tx)
        assert change_log_reader.read_since(tx, before, upto) == dict.fromkeys((22, 23, 24), ChangeKind.PROVIDER)
        assert change_log_reader.read_since(tx, upto, upto) == {}
        later = LogPosition({**upto.slots, 2: Position(3, 30)})
        assert change_log_reader.read_since(tx, later, upto) == {24: ChangeKind.PROVIDER}
        new = LogPosition({id_: position for id_, position in upto.slots.items() if id_ != 2})
        assert change_log_reader.read_since(tx, new, upto) == {2: ChangeKind.USAGE} | dict.fromkeys(
            (22, 23, 24), ChangeKind.PROVIDER
        )
        with pytest.raises(change_log_reader.LogTruncated, match='number 3 of slot 2'):
            change_log_reader.read_since(tx, LogPosition({**upto.slots, 2: Position(3, 31)}), upto)
    for missing, readable in ((1, Position(2, 20)), (3, Position(4, 40))):
        with db.engine.begin() as tx:
            log = tables.change_log.c
            tx.execute(tables.change_log.delete().where(log.slot_id == 2, log.sequence == missing))
        with db.reader() as tx:
            for start in (before, new, *([later] if missing == 3 else [])):
                with pytest.raises(change_log_reader.LogTruncated):
                    change_log_reader.read_since(tx, start, upto)
            change_log_reader.read_since(tx, LogPosition({**upto.slots, 2: readable}), upto)


def test_relations() -> None:
    current = LogPosition({1: Position(5, 50), 2: Position(7, 70), 40: Position(0, 0)})

    def relation(**changed: Position | None) -> Relation:
        positions = {**current.slots, **{int(name[1:]): position for name, position in changed.items()}}
        return current.relation(LogPosition({id_: position for id_, position in positions.items() if position}))

    assert relation() is Relation.SAME
    assert relation(_1=Position(6, 1)) is Relation.NEWER
    assert relation(_99=Position(0, 0)) is Relation.NEWER
    assert relation(_40=Position(1, 9), _99=Position(3, 1)) is Relation.NEWER
    assert relation(_1=Position(4, 41)) is Relation.OLDER
    assert relation(_1=None) is Relation.OLDER
    assert relation(_40=None) is Relation.OLDER
    assert relation(_1=Position(5, 52)) is Relation.DIVERGED
    assert relation(_1=Position(4, 41), _2=Position(8, 80)) is Relation.DIVERGED
    # No slot is ever deleted.
    assert relation(_1=None, _99=Position(1, 1)) is Relation.DIVERGED
    assert relation(_1=None, _2=Position(6, 60), _99=Position(1, 1)) is Relation.DIVERGED
    # The sums of the numbers are equal.
    assert relation(_1=Position(6, 51), _2=Position(6, 71)) is Relation.DIVERGED


def test_tables_that_were_created_again() -> None:
    """Their numbers say nothing. Nobody deletes all slots."""
    slots = {1: Position(5, 50)}
    current = LogPosition(slots, table_id=7)
    for other in (slots, {1: Position(6, 60)}, {1: Position(4, 40)}):
        assert current.relation(LogPosition(other, table_id=8)) is Relation.REPLACED
    assert LogPosition().relation(current) is Relation.NEWER
    assert current.relation(LogPosition()) is Relation.REPLACED


def test_a_write_with_more_entries_than_one_statement_takes(db: Database, logged: Logged) -> None:
    """Every provider is recorded once, also where one statement ends and the next begins."""
    many = range(1, 25_000)
    db.write(lambda tx: change_log.record_providers(tx, many))
    assert logged() == dict.fromkeys(many, ChangeKind.PROVIDER)


def test_a_slot_that_somebody_deleted_is_replaced(db: Database) -> None:
    db.write(lambda tx: change_log.record_usage(tx, [1]))
    with db.engine.begin() as tx:
        tx.execute(tables.change_log.delete())
        tx.execute(tables.change_log_slots.delete())
        tx.execute(tables.change_log_slots.insert().values(sequence=0, token=0))
    db.write(lambda tx: change_log.record_usage(tx, [1]))
    assert list(newest(db).values()) == [1]


def test_without_slots_nothing_is_read_or_written_until_a_command_says_that_the_rows_are_complete(
    db: Database, point_commands_at: PointCommandsAt
) -> None:
    db.write(lambda tx: change_log.record_usage(tx, [1]))
    provider_cache = ProviderCache(db)
    provider_cache.up_to_date()
    with db.engine.begin() as tx:
        tx.execute(tables.change_log_slots.delete())
    for _ in range(2):
        for process in (provider_cache, ProviderCache(db)):
            with pytest.raises(errors.IncompleteDatabase) as raised:
                process.up_to_date()
            assert 'the table placement_writer_slots has no rows' in raised.value.for_operators
        with pytest.raises(errors.IncompleteDatabase):
            db.write(lambda tx: change_log.record_usage(tx, [1]))
    point_commands_at(db.engine.url)
    assert manage.main(['db', 'invalidate-caches']) == 0
    assert provider_cache.up_to_date().provider_count == 0
    db.write(lambda tx: change_log.record_usage(tx, [1]))


def test_the_slots_are_the_last_table_so_that_a_backup_restores_them_after_all_others() -> None:
    assert max(tables.metadata.tables) == tables.change_log_slots.name


def test_a_slot_that_a_restored_database_has_for_another_transaction(db: Database) -> None:
    """The number is the one that the process knows, the token is not: it writes under another slot."""
    db.write(lambda tx: change_log.record_usage(tx, [1]))
    with db.reader() as tx:
        ((slot, position),) = change_log_reader.read_log_position(tx).slots.items()
    with db.engine.begin() as connection:
        connection.execute(tables.change_log_slots.update().values(token=position.token + 1))
    db.write(lambda tx: change_log.record_usage(tx, [2]))
    with db.reader() as tx:
        positions = dict(change_log_reader.read_log_position(tx).slots)
    assert positions.pop(slot) == (position.sequence, position.token + 1)
    assert [position.sequence for position in positions.values()] == [1]


def test_a_slot_whose_transaction_may_still_be_open_is_not_used_again(db: Database) -> None:
    """When the connection broke before COMMIT was sent, the server may not have noticed and still lock the row."""
    slot = db.slots.lease()
    slot.state = SlotState.SENT
    db.slots.failed(slot, exception.DatabaseUnavailable())
    assert logs.next_slot(db).slot_id != slot.slot_id
