"""The log of changes: what each write transaction changed, so that a copy in memory can be brought forward.

Every transaction that ``Database.write`` runs says here what it changed. Its last statement inserts that into the
table ``changes``, under the next number of a row of ``writers`` that nobody else uses at the same time
(``db.writers``). So the numbers of one writer are in the order of its commits and have no gaps: what is visible of them
is always a prefix.

A reader keeps, for each writer, the number up to which it knows (a *vector*), asks for the newest (``newest``) and
reads what lies between (``since``).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

import sqlalchemy as sa

from placement import exception
from placement.db import types


class What(enum.IntEnum):
    """What an entry says of its provider; the larger of two includes the smaller."""

    #: ``inventories.used`` and the generation of the provider changed, and nothing else.
    USAGE = 1
    #: Anything else of the provider did, or it was created, deleted or moved in its tree.
    PROVIDER = 2
    #: The names of resource classes or traits changed. Of no provider.
    NAMES = 3
    #: Anything may have changed. Of no provider.
    REBUILD = 4


#: The ``provider_id`` of entries that are about no provider. The ids of providers begin at 1.
NO_PROVIDER = 0

#: Writer id -> the number of its newest entry. A writer without entries is not in it.
Vector = Mapping[int, int]

#: Execution option of a connection: the ``Notes`` of its transaction.
_NOTES = 'placement_notes'

#: How many writers one statement of ``since`` asks about.
_BATCH = 100


class Gap(exception.PlacementError):
    """What changed since can no longer be told from the log: everything has to be read anew."""

    template = 'The entries of writer {writer} from number {sequence} on are no longer in the log of changes.'


class Unlogged(RuntimeError):
    """A fault in this program: a transaction changed what is mirrored, and did not say so in time."""


# Written by transactions ---------------------------------------------------------------------------------


class EntryWriter(Protocol):
    """What a transaction writes its entry under: a ``writers.Writer``."""

    entered: bool

    def entry(self, noted: Mapping[int, What]) -> Iterator[str]: ...

    def entering(self) -> contextlib.AbstractContextManager[None]: ...


class Notes:
    """What one transaction said that it changed, and which tables it was seen to change.

    ``answered``: the database has answered a statement of it. ``ended``: its last statements are being run, so nothing
    more can be noted. ``entered``: its entry of the log has been inserted.
    """

    def __init__(self, writer: EntryWriter) -> None:
        self.writer = writer
        self.answered = False
        self.ended = False
        self.entered = False
        self.noted: dict[int, What] = {}
        self._touched: set[str] = set()

    def add(self, provider_id: int, what: What) -> None:
        """Note one thing, unless what is noted of the provider includes it."""
        self.noted[provider_id] = max(what, self.noted.get(provider_id, what))

    def touch(self, table: str) -> None:
        """Remember that rows of a mirrored table were changed."""
        self._touched.add(table)

    def check(self) -> None:
        """Make sure that something was noted about what was touched; of which providers, only tests can tell.

        :raises Unlogged: nothing was.
        """
        said = set(self.noted.values())
        for table in self._touched:
            if not said & _MIRRORED[table]:
                raise Unlogged(f'The transaction changed {table} without a note in the log of changes.')


_OF_PROVIDERS = frozenset({What.USAGE, What.PROVIDER, What.REBUILD})
_OF_NAMES = frozenset({What.NAMES, What.REBUILD})
#: Table -> what a transaction that changes it has to note.
_MIRRORED = {
    'placement_resource_providers': _OF_PROVIDERS,
    'placement_inventories': _OF_PROVIDERS,
    'placement_resource_provider_traits': _OF_PROVIDERS,
    'placement_resource_provider_aggregates': _OF_PROVIDERS,
    'placement_resource_classes': _OF_NAMES,
    'placement_traits': _OF_NAMES,
}


def usage(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Note that ``inventories.used`` and the generation of these providers changed, and nothing else.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, provider_ids, What.USAGE)


def providers(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Note that these providers changed in any way: created, deleted and moved ones, too.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, provider_ids, What.PROVIDER)


def names(tx: sa.Connection) -> None:
    """Note that resource classes or traits were created, renamed or deleted.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, [NO_PROVIDER], What.NAMES)


def rebuild(tx: sa.Connection) -> None:
    """Note that anything may have changed.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, [NO_PROVIDER], What.REBUILD)


def _note(tx: sa.Connection, provider_ids: Iterable[int], what: What) -> None:
    notes: Notes | None = tx.get_execution_options().get(_NOTES)
    if notes is None:
        raise Unlogged('Changes can be noted only in a transaction of Database.write.')
    # Only on MariaDB and MySQL has the entry been inserted by then; the mistake is to show on any database.
    if notes.ended:
        raise Unlogged('Changes cannot be noted after the last statements of the transaction.')
    for id_ in provider_ids:
        notes.add(id_, what)


def attach(tx: sa.Connection, writer: EntryWriter) -> Notes:
    """Empty notes for a transaction that begins on ``tx``."""
    notes = Notes(writer)
    tx.execution_options(**{_NOTES: notes})
    return notes


def notes_of(tx: sa.Connection) -> Notes:
    """The notes of a transaction of ``Database.write``."""
    notes: Notes = tx.get_execution_options()[_NOTES]
    return notes


def observe(engine: sa.Engine) -> None:
    """From now on see what the transactions of ``engine`` do, for their ``Notes``."""
    sa.event.listen(engine, 'after_cursor_execute', _see)


def _see(tx: sa.Connection, cursor: Any, statement: str, *_rest: Any) -> None:
    notes: Notes | None = tx.get_execution_options().get(_NOTES)
    if notes is not None:
        notes.answered = True
        found = _CHANGE.match(statement)
        if found is not None and found[1] in _MIRRORED and cursor.rowcount != 0:
            notes.touch(found[1])


#: A statement that changes rows, and the table whose rows it changes.
_CHANGE = re.compile(r'(?:WITH .*\) )?(?:INSERT (?:IGNORE )?INTO|UPDATE|DELETE FROM) "?(\w+)', re.DOTALL)


#: As plain text: it takes half the time of anything else, and all databases take many rows in it.
_INSERT = 'INSERT INTO changes (writer_id, sequence, provider_id, what) VALUES '
#: Rows of one statement. SQLite takes a megabyte of text.
_MOST_ROWS = 10000


def enter(tx: sa.Connection, writer_id: int, sequence: int, noted: Mapping[int, What]) -> None:
    """Insert what was noted, as the number ``sequence`` of a writer, in one statement unless there is very much.

    :raises DBReferenceError: there is no such writer.
    """
    for text in entry(writer_id, sequence, noted):
        tx.exec_driver_sql(text)


def entry(writer_id: int, sequence: int, noted: Mapping[int, What]) -> Iterator[str]:
    """The statements that ``enter`` runs."""
    rows = [f'({int(writer_id)}, {int(sequence)}, {int(id_)}, {int(what)})' for id_, what in sorted(noted.items())]
    for start in range(0, len(rows), _MOST_ROWS):
        yield _INSERT + ', '.join(rows[start : start + _MOST_ROWS])


# Asked by readers ----------------------------------------------------------------------------------------
#
# As plain text, the same on all databases: a search waits for these, and building them costs more than running them.

#: One look into the primary key for each writer. An aggregate would read all entries on some databases.
NEWEST = sa.text(
    'SELECT id, (SELECT sequence FROM changes WHERE changes.writer_id = writers.id ORDER BY sequence DESC LIMIT 1)'
    ' AS newest FROM writers'
)
_ENTRIES = 'SELECT writer_id, sequence, provider_id, what FROM changes WHERE '


def newest(connection: sa.Connection) -> dict[int, int]:
    """The number of the newest entry of each writer, in one statement. Writers without entries are left out.

    A writer of an older vector that is not in it any more had been silent for ``retention.SILENCE`` when it was
    removed. So a reader that looked less than that ago has seen all that it ever wrote; any other has to read
    everything anew. That is to be told by ``clock``, as clocks of processes stand still or jump.
    """
    return vector(connection.execute(NEWEST))


def vector(rows: Iterable[sa.Row[Any]]) -> dict[int, int]:
    """The vector in the rows that ``NEWEST`` selects."""
    return {row.id: row.newest for row in rows if row.newest is not None}


def clock(connection: sa.Connection) -> dt.datetime:
    """The time by the clock of the database, in UTC."""
    return connection.execute(_CLOCK).scalar_one()


_CLOCK = sa.select(types.UtcNow())


def since(connection: sa.Connection, vector: Vector, upto: Vector) -> dict[int, What]:
    """What was logged beyond ``vector``, up to and including ``upto``, in one statement for each hundred writers.

    Nothing is said about writers that are in ``vector`` but no longer in ``upto``: see ``newest``.

    :param connection: in the transaction that ``upto`` was read in.
    :returns: provider id -> what happened to it; ``NO_PROVIDER`` -> ``NAMES`` or ``REBUILD``. Providers may be gone.
    :raises Gap: the entry that ``vector`` stands at (the first, for a writer that it does not know) is not there, or a
        writer is further in ``vector`` than in ``upto``.
    """
    moved = sorted(writer for writer, sequence in upto.items() if sequence != vector.get(writer))
    found: dict[int, What] = {}
    for start in range(0, len(moved), _BATCH):
        batch = moved[start : start + _BATCH]
        lowest: dict[int, int] = {}
        for writer, sequence, provider_id, what in connection.exec_driver_sql(_ENTRIES + _ranges(batch, vector, upto)):
            lowest[writer] = min(sequence, lowest.get(writer, sequence))
            if sequence > vector.get(writer, 0) and what > found.get(provider_id, 0):
                found[provider_id] = What(what)
        for writer in batch:
            if lowest.get(writer) != _first(vector, writer):
                raise Gap(writer=writer, sequence=_first(vector, writer))
    return found


def _ranges(writers: Iterable[int], vector: Vector, upto: Vector) -> str:
    return ' OR '.join(
        f'(writer_id = {int(writer)} AND sequence BETWEEN {int(_first(vector, writer))} AND {int(upto[writer])})'
        for writer in writers
    )


def _first(vector: Vector, writer: int) -> int:
    """The number of the entry that ``vector`` stands at, which is read only to see that it is still there."""
    return max(vector.get(writer, 0), 1)
