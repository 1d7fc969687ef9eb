"""The change log: which resource providers each transaction changed, so that every snapshot can be refreshed.

Each transaction of ``Database.write`` records here what it changes. Its last statements increment the sequence number
of a *slot* (``db.change_log_slots``) and insert the entries of the transaction under that number. Only one transaction
at a time uses a slot, so the numbers of a slot become visible in order and without gaps. The slot and the entries also
have a random token for each number, because after a restore of the database another transaction may get this number.

A reader keeps a ``LogPosition``: sequence number and token of each slot. It compares the sums of these (``CHECK``, one
statement that returns one row), reads the slots that differ (``read_log_position``), and then the entries in between
(``read_since``). ``recent_log`` has the queries for both in one statement. doc/database.md#the-change-log has the
protocol.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.db import connections, sql, tables
from placement.db.errors import IncompleteDatabase, RetryTransaction

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ChangeKind(enum.IntEnum):
    """The kind of change in an entry. If one ``provider_id`` has two kinds, the larger includes the smaller."""

    #: Only ``inventories.used`` and the generation of the provider changed.
    USAGE = 1
    #: Something else of the provider changed, or it was created, deleted or moved.
    PROVIDER = 2
    #: Names of resource classes or traits changed. ``provider_id`` is ``NO_PROVIDER``, or encodes the id of a new name.
    NAMES = 3
    #: Anything may have changed. ``provider_id`` is ``NO_PROVIDER``.
    RELOAD = 4
    #: A slot that was not in use was deleted. ``provider_id`` is the id of the slot. Readers of the log see no change.
    SLOT_DELETED = 0


#: The ``provider_id`` of entries that are not about a provider. The ids of providers begin at 1.
NO_PROVIDER = 0

#: Execution option of a connection: the ``PendingChanges`` of its transaction.
_PENDING = 'placement_pending_changes'

_INTO = sql.statement('INSERT INTO {log} (slot_id, sequence, token, provider_id, kind)', log=tables.change_log)
#: The largest number of entries that one statement inserts. SQLite rejects a text of more than a megabyte.
_MAX_ENTRIES_PER_STATEMENT = 10000
#: The largest number of slots whose entries one statement reads.
MAX_SLOTS_PER_STATEMENT = 64
#: The maximum number of entries that ``recent_log`` selects. The providers of all claims among them are read.
_MAX_RECENT_ENTRIES = 300


class LogTruncated(exception.PlacementError):
    """The log lacks entries after the reader's position, so the reader has to read all tables."""

    template = 'the change log does not have all entries since number {sequence} of slot {slot}'


class MissingLogEntry(RuntimeError):
    """A bug: a transaction changed a table that searches read, but recorded it too late or not at all."""


# Recorded by transactions --------------------------------------------------------------------------------


@dataclasses.dataclass
class Slot:
    """A row of ``placement_writer_slots``."""

    slot_id: int
    #: The number and the token of the newest committed transaction.
    sequence: int = 0
    token: int = 0
    #: The token of the running transaction; None until its last statements are made, and after it was rolled back.
    next_token: int | None = None
    #: Whether another process has written under the slot.
    is_taken: bool = False

    def advance(self) -> None:
        """Count the transaction that was committed, if it has written under the slot."""
        if self.next_token is not None:
            self.sequence, self.token, self.next_token = self.sequence + 1, self.next_token, None

    def statements(self, dialect: str, changes: Mapping[int, ChangeKind]) -> Iterator[tuple[str, int]]:
        """Yield the last statements of a transaction, which increment the slot and insert its entries.

        Each comes with the number of rows that it has to change. If the slot has another sequence number or token, the
        first one changes none, and the caller has to raise ``taken``. On PostgreSQL one statement both increments and
        inserts up to 10,000 entries. These are texts, because every claim executes them, and SQLAlchemy's INSERT would
        take twice the time.

        :param changes: the kinds of change by provider id, at least one.
        """
        self.next_token = secrets.randbelow(2**48 - 1) + 1
        increment = sql.statement(
            'UPDATE {slots} SET sequence = {slot.sequence} + 1, token = {slot.next_token}, updated_at = {now}'
            ' WHERE id = {slot.slot_id} AND sequence = {slot.sequence} AND token = {slot.token}',
            slots=tables.change_log_slots,
            slot=self,
            now=sql.UTC_NOW[dialect],
        )
        key = f'{self.slot_id}, {self.sequence + 1}, {self.next_token}'
        rows = [f'({key}, {int(id_)}, {int(kind)})' for id_, kind in sorted(changes.items())]
        chunks = [(', '.join(chunk), len(chunk)) for chunk in sql.chunks(rows, _MAX_ENTRIES_PER_STATEMENT)]
        if dialect == 'postgresql':
            entries, count = chunks.pop(0)
            template = (
                'WITH slot AS ({increment} RETURNING id)'
                ' {into} SELECT entries.* FROM slot, (VALUES {entries}) AS entries'
            )
            yield sql.statement(template, increment=increment, into=_INTO, entries=entries), count
        else:
            yield increment, 1
        for entries, count in chunks:
            yield f'{_INTO} VALUES {entries}', count

    def taken(self) -> RetryTransaction:
        """Remember that another process has written under the slot, and return the exception to raise."""
        self.is_taken = True
        return RetryTransaction()


@dataclasses.dataclass(eq=False)
class PendingChanges:
    """The changes that one transaction recorded, and which tables its statements changed."""

    #: Whether the database has answered a statement of the transaction.
    answered: bool = False
    #: The kinds of change by provider id.
    changes: dict[int, ChangeKind] = dataclasses.field(default_factory=dict)
    #: The changed tables that searches read.
    tables: set[str] = dataclasses.field(default_factory=set)

    def verify_recorded(self) -> None:
        """Verify that a change was recorded for each changed table. Only tests can verify that it is the right one.

        :raises MissingLogEntry: nothing was recorded for a table.
        """
        kinds = set(self.changes.values())
        for table in self.tables:
            if not kinds & _CACHED_TABLES[table]:
                raise MissingLogEntry(f'The transaction changed {table} without an entry in the change log.')


_OF_PROVIDERS = frozenset({ChangeKind.USAGE, ChangeKind.PROVIDER, ChangeKind.RELOAD})
_OF_NAMES = frozenset({ChangeKind.NAMES, ChangeKind.RELOAD})
#: For each table, the kinds of change. A transaction that changes the table has to record at least one of them.
_CACHED_TABLES = {
    tables.resource_providers.name: _OF_PROVIDERS,
    tables.inventories.name: _OF_PROVIDERS,
    tables.resource_provider_traits.name: _OF_PROVIDERS,
    tables.resource_provider_aggregates.name: _OF_PROVIDERS,
    tables.resource_classes.name: _OF_NAMES,
    tables.traits.name: _OF_NAMES,
}


def record_usage(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Record that only ``inventories.used`` and the generation of these providers changed.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, provider_ids, ChangeKind.USAGE)


def record_providers(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Record that these providers changed in any way, or were created, deleted or moved.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, provider_ids, ChangeKind.PROVIDER)


def record_names(tx: sa.Connection) -> None:
    """Record that resource classes or traits were created, renamed or deleted.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, [NO_PROVIDER], ChangeKind.NAMES)


def record_new_class(tx: sa.Connection, class_id: int) -> None:
    """Record that a resource class was created.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    # Negative numbers are not ids of providers. Odd ones are for classes, even ones for traits.
    _record(tx, [-2 * class_id - 1], ChangeKind.NAMES)


def record_new_trait(tx: sa.Connection, trait_id: int) -> None:
    """Record that a trait was created.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, [-2 * trait_id], ChangeKind.NAMES)


def new_names(provider_ids: Iterable[int]) -> tuple[list[int], list[int]] | None:
    """Return the ids of the new classes and of the new traits; None if other names also changed.

    :param provider_ids: the ``provider_id`` of each entry of the kind ``NAMES``.
    """
    class_ids: list[int] = []
    trait_ids: list[int] = []
    for id_ in provider_ids:
        if id_ == NO_PROVIDER:
            return None
        (class_ids if id_ % 2 else trait_ids).append(-id_ // 2)
    return class_ids, trait_ids


def record_reload(tx: sa.Connection) -> None:
    """Record that anything may have changed, so that every process reads all tables again.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, [NO_PROVIDER], ChangeKind.RELOAD)


def _record(tx: sa.Connection, provider_ids: Iterable[int], kind: ChangeKind) -> None:
    pending: PendingChanges | None = tx.get_execution_options().get(_PENDING)
    if pending is None:
        raise MissingLogEntry('Changes can be recorded only in a transaction of Database.write.')
    for id_ in provider_ids:
        pending.changes[id_] = max(kind, pending.changes.get(id_, kind))


def attach(tx: sa.Connection) -> PendingChanges:
    """Attach empty ``PendingChanges`` to the transaction that begins on ``tx``, as an execution option."""
    pending = PendingChanges()
    tx.execution_options(**{_PENDING: pending})
    return pending


def observe(tx: sa.Connection, cursor: Any, text: str, _parameters: Any, context: Any, _many: bool) -> None:
    """Record in ``PendingChanges`` which tables a text has changed. The engine calls this after each text."""
    pending: PendingChanges | None = tx.get_execution_options().get(_PENDING)
    if pending is None:
        return
    pending.answered = True
    counts = context.execution_options.get(connections.ROW_COUNTS)
    statements = [text] if counts is None else text.split(connections.SEPARATOR)
    for statement, count in zip(statements, counts or [cursor.rowcount], strict=True):
        change = _CHANGE.match(statement)
        if change is not None and change[1] in _CACHED_TABLES and count != 0:
            pending.tables.add(change[1])


#: A statement that changes rows, and the table whose rows it changes.
_CHANGE = re.compile(r'(?:WITH .*\) )?(?:INSERT (?:IGNORE )?INTO|UPDATE|DELETE FROM) "?(\w+)', re.DOTALL)


# Read by snapshots ---------------------------------------------------------------------------------------
#
# These statements are text, because every search waits for them, and building and compiling them would take longer than
# running them.

#: By name of the dialect, the SQL for the id of the table of slots, another one after it was created again; by default
#: the constant 0.
_TABLE_ID = {'postgresql': 'CAST(tableoid AS BIGINT)'}


#: The check before each search: the number of slots, the sums of their sequence numbers and tokens, and the id of the
#: table, in one row.
_CHECK, _CHECK_ON_POSTGRESQL = (
    sql.statement(
        'SELECT COUNT(*), SUM(sequence), SUM(token), MAX({id}) FROM {slots}',
        id=_TABLE_ID.get(dialect, '0'),
        slots=tables.change_log_slots,
    )
    for dialect in ('', 'postgresql')
)


def _slots_query(dialect: sa.Dialect) -> sql.IntegerQuery:
    return ('id', 'sequence', 'token', _TABLE_ID.get(dialect.name, '0')), tables.change_log_slots.name


_ENTRIES = ('slot_id', 'sequence', 'token', 'provider_id', 'kind')


class Position(NamedTuple):
    """The sequence number and token of the newest transaction of a slot; zeros if the slot was never used."""

    sequence: int
    token: int


_UNUSED = Position(0, 0)
#: A position after all others.
_LAST = Position(2**63 - 1, 0)


class Sums(NamedTuple):
    """The number of all slots, the sums of their sequence numbers and of their tokens, and the id of their table."""

    slots: int
    sequences: int
    tokens: int
    table_id: int


class Relation(enum.Enum):
    """How the position of a database compares to the position that a reader knows."""

    SAME = 'same'
    NEWER = 'newer'
    #: A node of a cluster has not applied all changes yet, or the database was restored from a backup.
    OLDER = 'older'
    #: The database was restored from a backup, and written to since then.
    DIVERGED = 'diverged'
    #: The tables were created again, as when a backup is restored.
    REPLACED = 'replaced'


@dataclasses.dataclass(frozen=True)
class LogPosition:
    """What a reader of the log knows of it."""

    #: The position of each slot, by slot id.
    slots: Mapping[int, Position] = dataclasses.field(default_factory=dict)
    #: The id of the table of slots; 0 if there are no slots, or the database does not tell it.
    table_id: int = 0

    @functools.cached_property
    def total(self) -> Sums:
        """The sums of all slots."""
        positions = self.slots.values()
        sequences = sum(position.sequence for position in positions)
        return Sums(len(positions), sequences, sum(position.token for position in positions), self.table_id)

    def changed_slots(self, other: LogPosition) -> Iterator[tuple[int, Position | None, Position | None]]:
        """Yield each slot whose position differs in ``other``, with both positions; None if the slot is missing."""
        for slot_id in sorted(self.slots.keys() | other.slots.keys()):
            mine, theirs = self.slots.get(slot_id), other.slots.get(slot_id)
            if mine != theirs:
                yield slot_id, mine, theirs

    def relation(self, other: LogPosition) -> Relation:
        """Return how ``other``, the position of the database, compares to this one.

        If some slots are missing and others newer, it is newer: the missing ones may have been deleted.
        """
        if self.slots and other.table_id != self.table_id:
            return Relation.REPLACED
        newer = older = missing = False
        for _, mine, theirs in self.changed_slots(other):
            if theirs is not None and mine is not None and theirs.sequence == mine.sequence:
                return Relation.DIVERGED
            if theirs is None:
                missing = True
            elif mine is not None and theirs.sequence < mine.sequence:
                older = True
            else:
                newer = True
        if newer:
            return Relation.DIVERGED if older else Relation.NEWER
        return Relation.OLDER if older or missing else Relation.SAME


def read_sums(tx: sa.Connection) -> Sums:
    """Read the sums of all slots, in one statement.

    :raises IncompleteDatabase: there are no slots.
    """
    text = _CHECK_ON_POSTGRESQL if tx.dialect.name == 'postgresql' else _CHECK
    slots, sequences, tokens, table_id = sql.execute_text(tx, text).one()
    if not slots:
        raise no_slots()
    # Databases return decimals.
    return Sums(slots, int(sequences), int(tokens), table_id)


def read_log_position(tx: sa.Connection) -> LogPosition:
    """Read the position of the log that ``tx`` sees, in one statement.

    :raises IncompleteDatabase: there are no slots.
    """
    [slots] = sql.fetch_integers(tx, _slots_query(tx.dialect))
    if not len(slots):
        raise no_slots()
    return _log_position(slots)


def no_slots() -> IncompleteDatabase:
    """Return the exception to raise if the database has no slots, so that only a part of a backup may be restored."""
    advice = 'If no backup is being restored, run: placement-manage db invalidate-caches'
    return IncompleteDatabase(reason=f'the table {tables.change_log_slots} has no rows. {advice}')


def _log_position(slots: NDArray[np.int64]) -> LogPosition:
    positions = {id_: Position(sequence, token) for id_, sequence, token, _ in slots.tolist()}
    return LogPosition(positions, int(slots[0, 3]) if positions else 0)


def read_since(tx: sa.Connection, reader_position: LogPosition, upto: LogPosition) -> dict[int, int]:
    """Read the entries after ``reader_position``, up to and including ``upto``, in one statement for every 64 slots.

    A slot that is missing in ``upto`` has to be deleted according to these entries, and must have no entries after the
    known one. The last entries of a deleted slot stay in the log for this.

    :param tx: the transaction that read ``upto``.
    :param upto: a position that is not older than ``reader_position``.
    :returns: the largest ``ChangeKind`` for each ``provider_id`` of the entries. Some of the providers may no longer
        exist.
    :raises LogTruncated: entries are missing, or the entry with a known number belongs to another transaction.
    """
    # Not at the top, because commands that need no cache would take a quarter longer.
    import numpy as np

    slots = _used_slots(reader_position, upto)
    missing = {id_: position for id_, position in reader_position.slots.items() if id_ not in upto.slots}
    last = [(id_, position, _LAST) for id_, position in missing.items()]
    chunks = sql.chunks([*slots, *last], MAX_SLOTS_PER_STATEMENT)
    entries = np.concatenate([np.empty((0, len(_ENTRIES)), np.int64), *(_read_entries(tx, chunk) for chunk in chunks)])
    deleted = set(entries[entries[:, 4] == ChangeKind.SLOT_DELETED, 3].tolist())
    for id_, position in missing.items():
        stored = {Position(*row) for row in entries[entries[:, 0] == id_, 1:3].tolist()}
        if id_ not in deleted or stored != ({position} if position.sequence else set()):
            raise LogTruncated(slot=id_, sequence=position.sequence)
    return _changes(slots, entries)


def recent_log(dialect: sa.Dialect, reader_position: LogPosition) -> tuple[str, sql.IntegerQuery, sql.IntegerQuery]:
    """Return a common table expression and two queries for ``sql.fetch_integers``. ``recent_changes`` takes their rows.

    The table is ``recent``. It has the entries of each slot from the number in ``reader_position`` on.
    """
    ranges = [
        f'(slot_id = {id_} AND sequence >= {position.sequence})' for id_, position in reader_position.slots.items()
    ]
    common = sql.statement(
        'recent AS (SELECT {columns} FROM {log} WHERE {ranges} LIMIT {limit})',
        log=tables.change_log,
        columns=', '.join(_ENTRIES),
        ranges=' OR '.join(ranges) or '1 = 0',
        limit=_MAX_RECENT_ENTRIES,
    )
    return common, _slots_query(dialect), (_ENTRIES, 'recent')


#: A condition on an id: it is the id of a provider that has claims in ``recent``.
IN_RECENT_CLAIMS = sql.statement('IN (SELECT provider_id FROM recent WHERE kind = {kind:d})', kind=ChangeKind.USAGE)


class RecentChanges(NamedTuple):
    """A position of the log, and the ``ChangeKind`` by id of each provider that changed since the known position."""

    position: LogPosition
    changed: Mapping[int, int]


def recent_changes(
    reader_position: LogPosition, slots: NDArray[np.int64], entries: NDArray[np.int64]
) -> RecentChanges | None:
    """Return the changes after ``reader_position``; None if only a transaction can read them.

    :param slots: the rows of the first query of ``recent_log``.
    :param entries: the rows of the second query.
    """
    upto = _log_position(slots)
    if len(entries) == _MAX_RECENT_ENTRIES or reader_position.relation(upto) is not Relation.NEWER:
        return None
    if reader_position.slots.keys() - upto.slots.keys():
        return None
    try:
        return RecentChanges(upto, _changes(_used_slots(reader_position, upto), entries))
    except LogTruncated:
        # The reason may also be a new slot.
        return None


def _used_slots(reader_position: LogPosition, upto: LogPosition) -> list[tuple[int, Position, Position]]:
    """Return each slot whose position differs in ``upto``, with both positions, unless it was never used."""
    changed = reader_position.changed_slots(upto)
    return [(id_, old or _UNUSED, new) for id_, old, new in changed if new is not None and new.sequence]


def _changes(slots: Iterable[tuple[int, Position, Position]], entries: NDArray[np.int64]) -> dict[int, int]:
    """Return the largest ``ChangeKind`` of each changed provider.

    :param entries: the entries of the slots from the known number on. Those of other slots are ignored.
    :raises LogTruncated: entries are missing, or the entry with a known number belongs to another transaction.
    """
    import numpy as np

    changes = [entries[:0, 3:]]
    for slot_id, old, new in slots:
        # Every number has to have an entry, and the known and the newest number have to have their tokens.
        of_slot = entries[entries[:, 0] == slot_id, 1:]
        first, tokens = max(old.sequence, 1), dict(of_slot[:, :2].tolist())
        is_complete = len(tokens) == new.sequence - first + 1
        if not is_complete or tokens.get(new.sequence) != new.token or tokens.get(old.sequence, 0) != old.token:
            raise LogTruncated(slot=slot_id, sequence=first)
        changes.append(of_slot[(of_slot[:, 0] > old.sequence) & (of_slot[:, 3] != ChangeKind.SLOT_DELETED), 2:])
    by_provider = np.concatenate(changes)
    # The order by kind makes the largest of several kinds of one provider win.
    return dict(by_provider[by_provider[:, 1].argsort()].tolist())


def _read_entries(tx: sa.Connection, slots: Sequence[tuple[int, Position, Position]]) -> NDArray[np.int64]:
    """Read the entries of some slots, from the known number to the newest one, both included.

    :raises LogTruncated: there are more entries than the database can return at once.
    """
    ranges = ' OR '.join(
        f'(slot_id = {int(id_)} AND sequence BETWEEN {int(old.sequence)} AND {int(new.sequence)})'
        for id_, old, new in slots
    )
    try:
        [rows] = sql.fetch_integers(tx, (_ENTRIES, f'{tables.change_log} WHERE {ranges}'))
    except sql.TruncatedResult as error:
        slot_id, old, _ = slots[0]
        raise LogTruncated(slot=slot_id, sequence=old.sequence) from error
    return rows
