"""The change log: which resource providers each transaction changed, so that every snapshot can be refreshed.

Each transaction of ``Database.write`` records here what it changes. Its last statements increment the sequence number
of a *slot* (``db.change_log_slots``) and insert the entries of the transaction under that number. The transactions of
one slot follow one another, so its numbers become visible in order and without gaps. Each number has a random token,
which the slot and the entries carry: after a restore of the database the same number may belong to another transaction.

A reader keeps a ``VersionVector``: sequence number and token of each slot. It compares their sums (``CHECK``, one
statement that returns one row), reads the slots that differ (``read_vector``), and then the entries in between
(``read_since``). doc/database.md#the-change-log has the protocol.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from placement import exception
from placement.db import sql


class ChangeKind(enum.IntEnum):
    """The kind of change of an entry. Of two for one ``provider_id``, the larger includes the smaller."""

    #: ``inventories.used`` and the generation of the provider changed, and nothing else.
    USAGE = 1
    #: Anything else of the provider changed, or it was created, deleted or moved in its tree.
    PROVIDER = 2
    #: The names of resource classes or traits changed. ``provider_id`` is ``NO_PROVIDER``.
    NAMES = 3
    #: Anything may have changed. ``provider_id`` is ``NO_PROVIDER``.
    RELOAD = 4


#: A twentieth of the time of ``ChangeKind(...)``.
_KINDS: Mapping[int, ChangeKind] = {kind.value: kind for kind in ChangeKind}

#: The ``provider_id`` of entries that are about no provider. The ids of providers begin at 1.
NO_PROVIDER = 0

#: Execution option of a connection: the ``PendingChanges`` of its transaction.
_PENDING = 'placement_pending_changes'

#: The largest number of slots whose entries one statement of ``read_since`` reads.
_MAX_SLOTS_PER_STATEMENT = 64
#: Maximum number of slots that are all read, without reading the sums of their groups first.
_MAX_UNGROUPED_SLOTS = 64
#: ``id >> _GROUP_BITS`` is the group of a slot, of 32 slots.
_GROUP_BITS = 5


class LogTruncated(exception.PlacementError):
    """The log has no unbroken sequence from the reader's version on, so the reader has to read all tables."""

    template = 'The change log does not continue from number {sequence} of slot {slot}.'


class MissingLogEntry(RuntimeError):
    """A bug: a transaction changed a table that searches read, and did not record it, or not in time."""


# Recorded by transactions --------------------------------------------------------------------------------


class LogAppender(Protocol):
    """Builds the last statements of a transaction, which append its changes: a ``change_log_slots.Slot``."""

    def statements(self, dialect: str, changes: Mapping[int, ChangeKind]) -> Iterator[str]: ...

    def check(self, rows: int) -> None: ...


class PendingChanges:
    """The changes that one transaction recorded, and which tables its statements changed.

    ``answered``: the database has answered a statement of it. ``closed``: its last statements are being executed, so
    nothing more can be recorded. ``appended``: its entries are among these statements. ``changes``: the kinds of change
    by provider id.
    """

    def __init__(self, slot: LogAppender) -> None:
        self.slot = slot
        self.answered = False
        self.closed = False
        self.appended = False
        self.changes: dict[int, ChangeKind] = {}
        self._touched: set[str] = set()

    def add(self, provider_id: int, kind: ChangeKind) -> None:
        """Record a change of a provider, unless a larger one is recorded already."""
        self.changes[provider_id] = max(kind, self.changes.get(provider_id, kind))

    def touch(self, table: str) -> None:
        """Remember that rows of a table that searches read were changed."""
        self._touched.add(table)

    def check(self) -> None:
        """Verify that something was recorded for each changed table. Only tests can verify that it is correct.

        :raises MissingLogEntry: nothing was recorded.
        """
        kinds = set(self.changes.values())
        for table in self._touched:
            if not kinds & _CACHED_TABLES[table]:
                raise MissingLogEntry(f'The transaction changed {table} without an entry in the change log.')


_OF_PROVIDERS = frozenset({ChangeKind.USAGE, ChangeKind.PROVIDER, ChangeKind.RELOAD})
_OF_NAMES = frozenset({ChangeKind.NAMES, ChangeKind.RELOAD})
#: Table -> the kinds of which a transaction that changes it has to record at least one.
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
        pending.add(id_, kind)


def attach(tx: sa.Connection, slot: LogAppender) -> PendingChanges:
    """Attach empty ``PendingChanges`` to the transaction that begins on ``tx``, as an execution option."""
    pending = PendingChanges(slot)
    tx.execution_options(**{_PENDING: pending})
    return pending


def pending_changes(tx: sa.Connection) -> PendingChanges:
    """Return the changes that a transaction of ``Database.write`` has recorded."""
    pending: PendingChanges = tx.get_execution_options()[_PENDING]
    return pending


def observe(engine: sa.Engine) -> None:
    """From now on, remember in ``PendingChanges`` which tables the statements of ``engine`` change."""
    sa.event.listen(engine, 'after_cursor_execute', _observe)


def _observe(tx: sa.Connection, cursor: Any, statement: str, *_rest: Any) -> None:
    pending: PendingChanges | None = tx.get_execution_options().get(_PENDING)
    if pending is not None:
        pending.answered = True
        found = _CHANGE.match(statement)
        if found is not None and found[1] in _CACHED_TABLES and cursor.rowcount != 0:
            pending.touch(found[1])


#: A statement that changes rows, and the table whose rows it changes.
_CHANGE = re.compile(r'(?:WITH .*\) )?(?:INSERT (?:IGNORE )?INTO|UPDATE|DELETE FROM) "?(\w+)', re.DOTALL)


# Read by snapshots ---------------------------------------------------------------------------------------
#
# Plain text, because every search waits for these, and building and compiling them would take longer than running them.

#: The check before each search: the number of slots, and the sums of their sequence numbers and tokens, in one row.
CHECK = sa.text('SELECT COUNT(*), SUM(sequence), SUM(token) FROM placement_change_log_slots')
_GROUPS = (
    f'SELECT id >> {_GROUP_BITS}, COUNT(*), SUM(sequence), SUM(token)'  # noqa: S608
    f' FROM placement_change_log_slots GROUP BY id >> {_GROUP_BITS}'
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
    def of(cls, row: Iterable[Any]) -> Sums:
        """Return the sums in a row. Databases return decimals, and None for the sums of no rows."""
        return cls(*(int(value or 0) for value in row))


class Relation(enum.Enum):
    """The relation of the version of a database to the one that a reader knows."""

    SAME = 'same'
    NEWER = 'newer'
    #: A node of a cluster that has not applied everything yet, or a database that was restored from a backup.
    OLDER = 'older'
    #: A database that was restored from a backup and written to since then.
    DIVERGED = 'diverged'


@dataclasses.dataclass(frozen=True)
class VersionVector:
    """The position of each slot, by group and slot id; the sums of each group, and those of all slots."""

    groups: Mapping[int, Mapping[int, Position]] = dataclasses.field(default_factory=dict)
    sums: Mapping[int, Sums] = dataclasses.field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[int, Position]]:
        """Iterate over the slot ids and their positions."""
        for positions in self.groups.values():
            yield from positions.items()

    def position(self, slot_id: int) -> Position | None:
        """Return the position of a slot; None if there is no such slot."""
        return self.groups.get(slot_id >> _GROUP_BITS, {}).get(slot_id)

    @functools.cached_property
    def total(self) -> Sums:
        """The sums of all slots."""
        return Sums.of(map(sum, zip(*self.sums.values(), strict=True)) if self.sums else (0, 0, 0))

    def differing_groups(self, sums: Mapping[int, Sums]) -> set[int]:
        """Return the groups whose sums are not those in ``sums``."""
        return {group for group in self.sums.keys() | sums.keys() if self.sums.get(group) != sums.get(group)}

    def replaced(self, groups: Mapping[int, Mapping[int, Position]]) -> VersionVector:
        """Return a vector with these groups replaced; empty ones are removed."""
        merged, sums = {**self.groups, **groups}, dict(self.sums)
        for group, positions in groups.items():
            if positions:
                sums[group] = Sums(
                    len(positions),
                    sum(one.sequence for one in positions.values()),
                    sum(one.token for one in positions.values()),
                )
            else:
                merged.pop(group)
                sums.pop(group, None)
        return VersionVector(merged, sums)

    def changed_slots(self, other: VersionVector) -> Iterator[tuple[int, Position | None, Position | None]]:
        """Yield each slot whose position differs in ``other``, with both positions; None where it does not exist."""
        for group in sorted(self.differing_groups(other.sums)):
            mine, theirs = self.groups.get(group, {}), other.groups.get(group, {})
            for slot_id in sorted(mine.keys() | theirs.keys()):
                if mine.get(slot_id) != theirs.get(slot_id):
                    yield slot_id, mine.get(slot_id), theirs.get(slot_id)

    def relation(self, other: VersionVector) -> Relation:
        """Return how ``other``, the version of the database, compares to this one."""
        newer = older = False
        for _, known, found in self.changed_slots(other):
            if found is not None and known is not None and found.sequence == known.sequence:
                return Relation.DIVERGED
            if found is None or (known is not None and found.sequence < known.sequence):
                older = True
            else:
                newer = True
        if newer and older:
            return Relation.DIVERGED
        if older:
            return Relation.OLDER
        return Relation.NEWER if newer else Relation.SAME


def read_vector(tx: sa.Connection, known: VersionVector | None = None) -> VersionVector:
    """Read the version of the database that ``tx`` sees, in one statement if ``known`` has few slots, otherwise in two.

    :param tx: in a transaction that sees one state of the database (``Database.reader``).
    :param known: of many slots only the groups that differ are read slot by slot; None for an empty one.
    """
    if known is None or known.total.slots <= _MAX_UNGROUPED_SLOTS:
        return VersionVector().replaced(_read_positions(tx))
    sums = {int(group): Sums.of(row) for group, *row in tx.exec_driver_sql(_GROUPS)}
    changed = known.differing_groups(sums)
    if not changed:
        return known
    return known.replaced(_read_positions(tx, changed))


def _read_positions(tx: sa.Connection, groups: Collection[int] = ()) -> Mapping[int, Mapping[int, Position]]:
    """Read the positions of slots, by group and slot id.

    :param groups: those to read, which are empty in the result if they have no slots; by default all that have slots.
    """
    size = 1 << _GROUP_BITS
    ranges = [f'id BETWEEN {int(group) * size} AND {int(group) * size + size - 1}' for group in sorted(groups)]
    where = f' WHERE {" OR ".join(ranges)}' if ranges else ''
    [rows] = sql.fetch_integers(tx, (_POSITIONS, f'placement_change_log_slots{where}'))
    found: dict[int, dict[int, Position]] = {group: {} for group in groups}
    for id_, sequence, token in rows.tolist():
        found.setdefault(id_ >> _GROUP_BITS, {})[id_] = Position(sequence, token)
    return found


def read_since(tx: sa.Connection, known: VersionVector, upto: VersionVector) -> dict[int, ChangeKind]:
    """Read the entries after ``known``, up to and including ``upto``, in one statement for every 64 slots.

    :param tx: in the transaction that ``upto`` was read in.
    :param upto: not older than ``known``.
    :returns: provider id -> kind of change; ``NO_PROVIDER`` -> ``NAMES`` or ``RELOAD``. The providers may have been
        deleted.
    :raises LogTruncated: entries are missing, or the entry at a known number is that of another transaction.
    """
    changed = [
        (id_, old or _UNUSED, new) for id_, old, new in known.changed_slots(upto) if new is not None and new.sequence
    ]
    found: dict[int, ChangeKind] = {}
    for chunk in sql.chunks(changed, _MAX_SLOTS_PER_STATEMENT):
        tokens: dict[int, dict[int, int]] = {id_: {} for id_, *_ in chunk}
        numbers = {id_: old.sequence for id_, old, _ in chunk}
        for slot_id, sequence, token, provider_id, kind in _read_entries(tx, chunk):
            tokens[slot_id][sequence] = token
            if sequence > numbers[slot_id] and kind > found.get(provider_id, 0):
                found[provider_id] = _KINDS[kind]
        for slot_id, old, new in chunk:
            _verify(slot_id, old, new, tokens[slot_id])
    return found


def _read_entries(tx: sa.Connection, slots: Sequence[tuple[int, Position, Position]]) -> list[list[int]]:
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
    return rows.tolist()


def _verify(slot_id: int, old: Position, new: Position, tokens: Mapping[int, int]) -> None:
    """Verify that the entry at the known number has the known token, and that there is one for every number after it.

    :param tokens: the tokens of the entries by number.
    :raises LogTruncated: otherwise.
    """
    first = max(old.sequence, 1)
    complete = len(tokens) == new.sequence - first + 1
    if not complete or tokens.get(new.sequence) != new.token or tokens.get(old.sequence, 0) != old.token:
        raise LogTruncated(slot=slot_id, sequence=first)
