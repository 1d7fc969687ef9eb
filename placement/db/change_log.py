"""The change log: which resource providers each transaction changed, so that every snapshot can be refreshed.

Each transaction of ``Database.write`` records here what it changes. Its last statements increment the sequence number
of a *slot* (``db.change_log_slots``) and insert the entries of the transaction under that number. The transactions of
one slot follow one another, so its numbers become visible in order and without gaps. Each number has a random token,
which the slot and the entries carry: after a restore of the database the same number may belong to another transaction.

A reader keeps a ``LogPosition``: sequence number and token of each slot. It compares their sums (``CHECK``, one
statement that returns one row), reads the slots that differ (``read_log_position``), and then the entries in between
(``read_since``). doc/database.md#the-change-log has the protocol.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from placement import exception
from placement.db import sql
from placement.db.errors import RetryTransaction
from placement.db.types import UTC_NOW


class ChangeKind(enum.IntEnum):
    """The kind of change of an entry. If one ``provider_id`` has two kinds, the larger includes the smaller."""

    #: ``inventories.used`` and the generation of the provider changed, and nothing else.
    USAGE = 1
    #: Anything else of the provider changed, or it was created, deleted or moved in its tree.
    PROVIDER = 2
    #: The names of resource classes or traits changed. ``provider_id`` is ``NO_PROVIDER``, or stands for one new name.
    NAMES = 3
    #: Anything may have changed. ``provider_id`` is ``NO_PROVIDER``.
    RELOAD = 4


#: The ``provider_id`` of entries that are about no provider. The ids of providers begin at 1.
NO_PROVIDER = 0

#: Execution option of a connection: the ``PendingChanges`` of its transaction.
_PENDING = 'placement_pending_changes'

#: The largest number of entries that one statement inserts. SQLite rejects a text of more than a megabyte.
_MAX_ENTRIES_PER_STATEMENT = 10000
#: The largest number of slots whose entries one statement of ``read_since`` reads.
_MAX_SLOTS_PER_STATEMENT = 64
#: Maximum number of slots that are all read, without reading the sums of their groups first.
_MAX_UNGROUPED_SLOTS = 64
#: ``id >> _GROUP_BITS`` is the group of a slot, of 32 slots.
_GROUP_BITS = 5


class LogTruncated(exception.PlacementError):
    """The log has no unbroken sequence from the reader's position on, so the reader has to read all tables."""

    template = 'The change log does not continue from number {sequence} of slot {slot}.'


class MissingLogEntry(RuntimeError):
    """A bug: a transaction changed a table that searches read, and did not record it, or not in time."""


# Recorded by transactions --------------------------------------------------------------------------------


@dataclasses.dataclass
class Slot:
    """A row of ``placement_change_log_slots``.

    ``sequence`` and ``token`` are those of the newest transaction that was committed. ``next_token`` is that of the
    running transaction, None before its last statements. ``is_taken``: another process has written under the slot.
    """

    slot_id: int
    sequence: int = 0
    token: int = 0
    next_token: int | None = None
    is_taken: bool = False

    def statements(self, dialect: str, changes: Mapping[int, ChangeKind]) -> Iterator[tuple[str, int]]:
        """Yield the last statements of a transaction, which increment the slot and insert its entries.

        Each comes with the number of rows that it changes. The first one changes none if the slot has another sequence
        number or token: raise ``taken``. On PostgreSQL a single statement increments and inserts, up to 10,000 entries.
        Text takes half the time of an INSERT of SQLAlchemy, and every claim executes it.

        :param changes: kinds of change by provider id, at least one.
        """
        self.next_token = secrets.randbelow(2**48 - 1) + 1
        increment = sql.statement(
            'UPDATE placement_change_log_slots'
            ' SET sequence = {slot.sequence} + 1, token = {slot.next_token}, updated_at = {now}'
            ' WHERE id = {slot.slot_id} AND sequence = {slot.sequence} AND token = {slot.token}',
            slot=self,
            now=UTC_NOW[dialect],
        )
        into = 'INSERT INTO placement_change_log (slot_id, sequence, token, provider_id, kind)'
        key = f'{self.slot_id}, {self.sequence + 1}, {self.next_token}'
        rows = [f'({key}, {int(id_)}, {int(kind)})' for id_, kind in sorted(changes.items())]
        chunks = [(', '.join(chunk), len(chunk)) for chunk in sql.chunks(rows, _MAX_ENTRIES_PER_STATEMENT)]
        if dialect == 'postgresql':
            entries, count = chunks.pop(0)
            template = (
                'WITH slot AS ({increment} RETURNING id)'
                ' {into} SELECT entries.* FROM slot, (VALUES {entries}) AS entries'
            )
            yield sql.statement(template, increment=increment, into=into, entries=entries), count
        else:
            yield increment, 1
        for entries, count in chunks:
            yield f'{into} VALUES {entries}', count

    def taken(self) -> RetryTransaction:
        """Remember that another process has written under the slot, and return the exception that says so."""
        self.is_taken = True
        return RetryTransaction()


@dataclasses.dataclass(eq=False)
class PendingChanges:
    """The changes that one transaction recorded, and which tables its statements changed.

    ``answered``: the database has answered a statement of the transaction. ``closed``: its last statements are being
    executed, so nothing more can be recorded. ``appended``: its entries are among these statements. ``changes``: the
    kinds of change by provider id. ``tables``: the tables that searches read and in which it changed rows.
    """

    slot: Slot
    answered: bool = False
    closed: bool = False
    appended: bool = False
    changes: dict[int, ChangeKind] = dataclasses.field(default_factory=dict)
    tables: set[str] = dataclasses.field(default_factory=set)

    def verify_recorded(self) -> None:
        """Verify that something was recorded for each changed table. Only tests can verify that it is correct.

        :raises MissingLogEntry: nothing was recorded.
        """
        kinds = set(self.changes.values())
        for table in self.tables:
            if not kinds & _CACHED_TABLES[table]:
                raise MissingLogEntry(f'The transaction changed {table} without an entry in the change log.')


_OF_PROVIDERS = frozenset({ChangeKind.USAGE, ChangeKind.PROVIDER, ChangeKind.RELOAD})
_OF_NAMES = frozenset({ChangeKind.NAMES, ChangeKind.RELOAD})
#: For each table, the kinds of change of which a transaction that changes the table has to record at least one.
_CACHED_TABLES = {
    'placement_resource_providers': _OF_PROVIDERS,
    'placement_inventories': _OF_PROVIDERS,
    'placement_resource_provider_traits': _OF_PROVIDERS,
    'placement_resource_provider_aggregates': _OF_PROVIDERS,
    'placement_resource_classes': _OF_NAMES,
    'placement_traits': _OF_NAMES,
}


def record_usage(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Record that ``inventories.used`` and the generation of these providers changed, and nothing else.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, provider_ids, ChangeKind.USAGE)


def record_providers(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Record that these providers changed in any way, or were created, deleted or moved in their tree.

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
    # Negative, as this is the id of no provider; odd and even for the two tables.
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
    if pending.closed:
        raise MissingLogEntry('Changes cannot be recorded after the last statements of the transaction.')
    for id_ in provider_ids:
        pending.changes[id_] = max(kind, pending.changes.get(id_, kind))


def attach(tx: sa.Connection, slot: Slot) -> PendingChanges:
    """Attach empty ``PendingChanges`` to the transaction that begins on ``tx``, as an execution option."""
    pending = PendingChanges(slot)
    tx.execution_options(**{_PENDING: pending})
    return pending


def pending_changes(tx: sa.Connection) -> PendingChanges:
    """Return the changes that a transaction of ``Database.write`` has recorded."""
    pending: PendingChanges = tx.get_execution_options()[_PENDING]
    return pending


def observe(engine: sa.Engine) -> None:
    """Make ``engine`` remember in ``PendingChanges`` which tables its statements change."""
    sa.event.listen(engine, 'after_cursor_execute', _observe)


def _observe(tx: sa.Connection, cursor: Any, statement: str, *_rest: Any) -> None:
    pending: PendingChanges | None = tx.get_execution_options().get(_PENDING)
    if pending is not None:
        pending.answered = True
        change = _CHANGE.match(statement)
        if change is not None and change[1] in _CACHED_TABLES and cursor.rowcount != 0:
            pending.tables.add(change[1])


#: A statement that changes rows, and the table whose rows it changes.
_CHANGE = re.compile(r'(?:WITH .*\) )?(?:INSERT (?:IGNORE )?INTO|UPDATE|DELETE FROM) "?(\w+)', re.DOTALL)


# Read by snapshots ---------------------------------------------------------------------------------------
#
# Plain text, because every search waits for these statements: to build and compile them takes longer than to run them.

#: The check before each search: the number of slots, and the sums of their sequence numbers and tokens, in one row.
CHECK = sa.text('SELECT COUNT(*), SUM(sequence), SUM(token) FROM placement_change_log_slots')
_GROUPS = sql.statement(
    'SELECT id >> {bits}, COUNT(*), SUM(sequence), SUM(token) FROM placement_change_log_slots GROUP BY id >> {bits}',
    bits=_GROUP_BITS,
)
_POSITIONS = ('id', 'sequence', 'token')
_ENTRIES = ('slot_id', 'sequence', 'token', 'provider_id', 'kind')


class Position(NamedTuple):
    """Sequence number and token of the newest transaction of a slot; zeros for a slot that was never used."""

    sequence: int
    token: int


_UNUSED = Position(0, 0)


class Sums(NamedTuple):
    """The number of some slots, and the sums of their sequence numbers and of their tokens."""

    slots: int
    sequences: int
    tokens: int

    @classmethod
    def from_row(cls, row: Iterable[Any]) -> Sums:
        """Return the sums in a row. Databases return decimals, and None for the sums of no rows."""
        return cls(*(int(value or 0) for value in row))


class Relation(enum.Enum):
    """The relation of the position of a database to the one that a reader knows."""

    SAME = 'same'
    NEWER = 'newer'
    #: A node of a cluster that has not applied everything yet, or a database that was restored from a backup.
    OLDER = 'older'
    #: A database that was restored from a backup and written to since then.
    DIVERGED = 'diverged'


@dataclasses.dataclass(frozen=True)
class LogPosition:
    """The position of each slot, by group and slot id; the sums of each group, and those of all slots."""

    groups: Mapping[int, Mapping[int, Position]] = dataclasses.field(default_factory=dict)
    sums: Mapping[int, Sums] = dataclasses.field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[int, Position]]:
        """Iterate over the slot ids and their positions."""
        for positions in self.groups.values():
            yield from positions.items()

    @functools.cached_property
    def total(self) -> Sums:
        """The sums of all slots."""
        return Sums.from_row(map(sum, zip(*self.sums.values(), strict=True)) if self.sums else (0, 0, 0))

    def differing_groups(self, sums: Mapping[int, Sums]) -> set[int]:
        """Return the groups whose sums are not those in ``sums``."""
        return {group for group in self.sums.keys() | sums.keys() if self.sums.get(group) != sums.get(group)}

    def replaced(self, groups: Mapping[int, Mapping[int, Position]]) -> LogPosition:
        """Return a position with these groups replaced; empty ones are removed."""
        merged, sums = {**self.groups, **groups}, dict(self.sums)
        for group, positions in groups.items():
            if positions:
                sums[group] = Sums(
                    len(positions),
                    sum(position.sequence for position in positions.values()),
                    sum(position.token for position in positions.values()),
                )
            else:
                merged.pop(group)
                sums.pop(group, None)
        return LogPosition(merged, sums)

    def changed_slots(self, other: LogPosition) -> Iterator[tuple[int, Position | None, Position | None]]:
        """Yield each slot whose position differs in ``other``, with both positions; None where it does not exist."""
        for group in sorted(self.differing_groups(other.sums)):
            mine, theirs = self.groups.get(group, {}), other.groups.get(group, {})
            for slot_id in sorted(mine.keys() | theirs.keys()):
                if mine.get(slot_id) != theirs.get(slot_id):
                    yield slot_id, mine.get(slot_id), theirs.get(slot_id)

    def relation(self, other: LogPosition) -> Relation:
        """Return how ``other``, the position of the database, compares to this one."""
        newer = older = False
        for _, mine, theirs in self.changed_slots(other):
            if theirs is not None and mine is not None and theirs.sequence == mine.sequence:
                return Relation.DIVERGED
            if theirs is None or (mine is not None and theirs.sequence < mine.sequence):
                older = True
            else:
                newer = True
        if newer and older:
            return Relation.DIVERGED
        if older:
            return Relation.OLDER
        return Relation.NEWER if newer else Relation.SAME


def read_log_position(tx: sa.Connection, known: LogPosition | None = None) -> LogPosition:
    """Read the position of the log that ``tx`` sees, in one statement if ``known`` has few slots, otherwise in two.

    :param tx: in a transaction that sees one state of the database (``Database.reader``).
    :param known: if it has many slots, only the groups that differ from it are read slot by slot; None for an empty
        position.
    """
    if known is None or known.total.slots <= _MAX_UNGROUPED_SLOTS:
        return LogPosition().replaced(_read_positions(tx))
    sums = {int(group): Sums.from_row(row) for group, *row in sql.execute_text(tx, _GROUPS)}
    changed = known.differing_groups(sums)
    if not changed:
        return known
    return known.replaced(_read_positions(tx, changed))


def _read_positions(tx: sa.Connection, groups: Collection[int] = ()) -> Mapping[int, Mapping[int, Position]]:
    """Read the positions of slots, by group and slot id.

    :param groups: the groups to read; one without slots is empty in the result. By default all groups that have slots.
    """
    size = 1 << _GROUP_BITS
    ranges = [f'id BETWEEN {int(group) * size} AND {int(group) * size + size - 1}' for group in sorted(groups)]
    where = f' WHERE {" OR ".join(ranges)}' if ranges else ''
    [rows] = sql.fetch_integers(tx, (_POSITIONS, f'placement_change_log_slots{where}'))
    positions: dict[int, dict[int, Position]] = {group: {} for group in groups}
    for id_, sequence, token in rows.tolist():
        positions.setdefault(id_ >> _GROUP_BITS, {})[id_] = Position(sequence, token)
    return positions


def read_since(tx: sa.Connection, known: LogPosition, upto: LogPosition) -> dict[int, int]:
    """Read the entries after ``known``, up to and including ``upto``, in one statement for every 64 slots.

    :param tx: in the transaction that ``upto`` was read in.
    :param upto: not older than ``known``.
    :returns: provider id -> ``ChangeKind``; ``NO_PROVIDER`` -> ``NAMES`` or ``RELOAD``. The providers may have been
        deleted.
    :raises LogTruncated: entries are missing, or the entry at a known number is that of another transaction.
    """
    changed = [
        (id_, old or _UNUSED, new) for id_, old, new in known.changed_slots(upto) if new is not None and new.sequence
    ]
    changes = [np.empty((0, 2), np.int64)]
    for chunk in sql.chunks(changed, _MAX_SLOTS_PER_STATEMENT):
        entries = _read_entries(tx, chunk)
        for slot_id, old, new in chunk:
            # There is an entry for every number, and the entries of the known and the newest number have their tokens.
            of_slot = entries[entries[:, 0] == slot_id, 1:]
            first, tokens = max(old.sequence, 1), dict(of_slot[:, :2].tolist())
            is_complete = len(tokens) == new.sequence - first + 1
            if not is_complete or tokens.get(new.sequence) != new.token or tokens.get(old.sequence, 0) != old.token:
                raise LogTruncated(slot=slot_id, sequence=first)
            changes.append(of_slot[of_slot[:, 0] > old.sequence, 2:])
    by_provider = np.concatenate(changes)
    # Sorted by kind, so that the largest of several kinds of one provider stays.
    return dict(by_provider[by_provider[:, 1].argsort()].tolist())


def _read_entries(tx: sa.Connection, slots: Sequence[tuple[int, Position, Position]]) -> NDArray[np.int64]:
    """Read the entries of some slots from the known number on, inclusive, up to the newest one.

    :raises LogTruncated: there are more than the database can return at once.
    """
    ranges = ' OR '.join(
        f'(slot_id = {int(id_)} AND sequence BETWEEN {int(old.sequence)} AND {int(new.sequence)})'
        for id_, old, new in slots
    )
    try:
        [rows] = sql.fetch_integers(tx, (_ENTRIES, f'placement_change_log WHERE {ranges}'))
    except sql.TruncatedResult as error:
        slot_id, old, _ = slots[0]
        raise LogTruncated(slot=slot_id, sequence=old.sequence) from error
    return rows
