"""Reads the change log: how far it is, and which providers changed since a reader last read it.

A reader keeps a ``LogPosition``: sequence number and token of each slot. It compares the sums of these (``read_sums``,
one statement that returns one row), reads the slots that differ (``read_log_position``), and then the entries between
them (``read_since``). ``recent_log`` has the queries for both in one statement.

These statements are text, because every search waits for them, and building and compiling them would take longer than
running them.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.db import sql, tables
from placement.db.change_log import ChangeKind, no_slots

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The largest number of slots whose entries one statement reads.
MAX_SLOTS_PER_STATEMENT = 64
#: The maximum number of entries that ``recent_log`` selects. The providers of all claims among them are read.
_MAX_RECENT_ENTRIES = 300
#: By name of the dialect, the SQL for the id of the table of slots, another one after it was created again; by default
#: the constant 0.
_TABLE_ID = {'postgresql': 'CAST(tableoid AS BIGINT)'}

#: The check before each search: the number of slots, and the sums of their sequence numbers and tokens, in one row. On
#: PostgreSQL the id of the table follows. Elsewhere the drivers need not read another column.
_CHECK, _CHECK_ON_POSTGRESQL = (
    sql.statement('SELECT COUNT(*), SUM(sequence), SUM(token){id} FROM {slots}', id=id_, slots=tables.change_log_slots)
    for id_ in ('', f', MAX({_TABLE_ID["postgresql"]})')
)

_ENTRIES = ('slot_id', 'sequence', 'token', 'provider_id', 'kind')


class LogTruncated(exception.PlacementError):
    """The log lacks entries after the reader's position, so the reader has to read all tables."""

    template = 'the change log does not have all entries since number {sequence} of slot {slot}'


class Position(NamedTuple):
    """The sequence number and token of the newest transaction of a slot; zeros if the slot was never used."""

    sequence: int
    token: int


#: The position of a slot that was not inserted yet. Slots are never deleted.
_MISSING = Position(-1, 0)


class Sums(NamedTuple):
    """The number of all slots, the sums of their sequence numbers and of their tokens, and the id of their table."""

    slots: int
    sequences: int
    tokens: int
    table_id: int = 0


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

    def changed_slots(self, other: LogPosition) -> Iterator[tuple[int, Position, Position]]:
        """Yield each slot whose position differs in ``other``, with both positions; ``_MISSING`` without the slot."""
        for slot_id in sorted(self.slots.keys() | other.slots.keys()):
            mine, theirs = self.slots.get(slot_id, _MISSING), other.slots.get(slot_id, _MISSING)
            if mine != theirs:
                yield slot_id, mine, theirs

    def relation(self, other: LogPosition) -> Relation:
        """Return how ``other``, the position of the database, compares to this one."""
        if self.slots and other.table_id != self.table_id:
            return Relation.REPLACED
        newer = older = False
        for _, mine, theirs in self.changed_slots(other):
            if theirs.sequence == mine.sequence:
                return Relation.DIVERGED
            if theirs.sequence < mine.sequence:
                older = True
            else:
                newer = True
        if newer:
            return Relation.DIVERGED if older else Relation.NEWER
        return Relation.OLDER if older else Relation.SAME


def read_sums(tx: sa.Connection) -> Sums:
    """Read the sums of all slots, in one statement.

    :raises IncompleteDatabase: there are no slots.
    """
    text = _CHECK_ON_POSTGRESQL if tx.dialect.name == 'postgresql' else _CHECK
    slots, sequences, tokens, *table_id = tx.exec_driver_sql(text).one()
    if not slots:
        raise no_slots()
    # Databases return decimals.
    return Sums(slots, int(sequences), int(tokens), *table_id)


def read_log_position(tx: sa.Connection) -> LogPosition:
    """Read the position of the log that ``tx`` sees, in one statement.

    :raises IncompleteDatabase: there are no slots.
    """
    [slots] = sql.fetch_integers(tx, _slots_query(tx.dialect))
    if not len(slots):
        raise no_slots()
    return _log_position(slots)


def _slots_query(dialect: sa.Dialect) -> sql.IntegerQuery:
    return ('id', 'sequence', 'token', _TABLE_ID.get(dialect.name, '0')), tables.change_log_slots.name


def _log_position(slots: NDArray[np.int64]) -> LogPosition:
    positions = {id_: Position(sequence, token) for id_, sequence, token, _ in slots.tolist()}
    return LogPosition(positions, int(slots[0, 3]) if positions else 0)


def read_since(tx: sa.Connection, reader_position: LogPosition, upto: LogPosition) -> dict[int, int]:
    """Read the entries after ``reader_position``, up to and including ``upto``, in one statement for every 64 slots.

    :param tx: the transaction that read ``upto``.
    :param upto: a position that is not older than ``reader_position``.
    :returns: the largest ``ChangeKind`` for each ``provider_id`` of the entries. Some of the providers may no longer
        exist.
    :raises LogTruncated: entries are missing, or the entry with a known number belongs to another transaction.
    """
    # Not at the top, because commands that need no cache would take a quarter longer.
    import numpy as np

    slots = _used_slots(reader_position, upto)
    chunks = sql.chunks(slots, MAX_SLOTS_PER_STATEMENT)
    entries = [np.empty((0, len(_ENTRIES)), np.int64), *(_read_entries(tx, chunk) for chunk in chunks)]
    return _changes(slots, np.concatenate(entries))


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
    try:
        return RecentChanges(upto, _changes(_used_slots(reader_position, upto), entries))
    except LogTruncated:
        # The reason may also be a new slot.
        return None


def _used_slots(reader_position: LogPosition, upto: LogPosition) -> list[tuple[int, Position, Position]]:
    """Return each slot whose position differs in ``upto``, with both positions, unless it was never used."""
    return [slot for slot in reader_position.changed_slots(upto) if slot[2].sequence > 0]


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
        changes.append(of_slot[of_slot[:, 0] > old.sequence, 2:])
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
