"""The log of changes: which providers each transaction changed, so that every mirror can be brought up to date.

Each transaction of ``Database.write`` notes here what it changes. Its last statement inserts the notes into the table
``changes``, under the next sequence number of a *writer*: a row of the table ``writers`` that no other transaction uses
at the same time (``db.writers``). The transactions of one writer follow one another, so its numbers become visible in
order and without gaps: who sees a number has seen all smaller ones of that writer, or can see them.

A reader keeps a *vector*: for each writer the newest number that it knows. It reads the newest numbers in the database
(``newest``) and then the entries in between (``since``). doc/database.md#the-log-of-changes has the protocol.
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
    """What kind of change an entry is about. Of two for one ``provider_id``, the larger includes the smaller."""

    #: ``inventories.used`` and the generation of the provider changed, and nothing else.
    USAGE = 1
    #: Anything else of the provider changed, or it was created, deleted or moved in its tree.
    PROVIDER = 2
    #: The names of resource classes or traits changed. ``provider_id`` is ``NO_PROVIDER``.
    NAMES = 3
    #: Anything may have changed. ``provider_id`` is ``NO_PROVIDER``.
    REBUILD = 4


#: The ``provider_id`` of entries that are about no provider. The ids of providers begin at 1.
NO_PROVIDER = 0

#: Writer id -> the sequence number of its newest entry. Writers without entries are left out.
Vector = Mapping[int, int]

#: Execution option of a connection: the ``Notes`` of its transaction.
_NOTES = 'placement_notes'

#: How many writers one statement of ``since`` asks about.
_BATCH = 100


class Gap(exception.PlacementError):
    """The log does not reach back to the reader's vector: the reader has to read all tables anew."""

    template = 'The entries of writer {writer} from number {sequence} on are no longer in the log of changes.'


class Unlogged(RuntimeError):
    """A bug: a transaction changed a table that is mirrored, and did not note it, or not in time."""


# Written by transactions ---------------------------------------------------------------------------------


class EntryWriter(Protocol):
    """What a transaction writes its entry under: a ``writers.Writer``."""

    entered: bool

    def entry(self, noted: Mapping[int, What]) -> Iterator[str]: ...

    def entering(self) -> contextlib.AbstractContextManager[None]: ...


class Notes:
    """What one transaction noted, and which mirrored tables its statements changed.

    ``answered``: the database has answered a statement of it. ``ended``: its last statements are being run, so nothing
    more can be noted. ``entered``: its entry of the log has been inserted. ``noted``: the changes by provider id.
    """

    def __init__(self, writer: EntryWriter) -> None:
        self.writer = writer
        self.answered = False
        self.ended = False
        self.entered = False
        self.noted: dict[int, What] = {}
        self._touched: set[str] = set()

    def add(self, provider_id: int, what: What) -> None:
        """Note a change of a provider, unless a larger one is noted already."""
        self.noted[provider_id] = max(what, self.noted.get(provider_id, what))

    def touch(self, table: str) -> None:
        """Remember that rows of a mirrored table were changed."""
        self._touched.add(table)

    def check(self) -> None:
        """Make sure that for each table that was changed something was noted. Whether it is right, only tests can tell.

        :raises Unlogged: nothing was noted.
        """
        kinds = set(self.noted.values())
        for table in self._touched:
            if not kinds & _MIRRORED[table]:
                raise Unlogged(f'The transaction changed {table} without a note in the log of changes.')


_OF_PROVIDERS = frozenset({What.USAGE, What.PROVIDER, What.REBUILD})
_OF_NAMES = frozenset({What.NAMES, What.REBUILD})
#: Mirrored table -> the kinds of which a transaction that changes it has to note at least one.
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
    """Note that these providers changed in any way, or were created, deleted or moved in their tree.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, provider_ids, What.PROVIDER)


def names(tx: sa.Connection) -> None:
    """Note that resource classes or traits were created, renamed or deleted.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, [NO_PROVIDER], What.NAMES)


def rebuild(tx: sa.Connection) -> None:
    """Note that anything may have changed, so that every mirror is built anew.

    :param tx: what ``Database.write`` gave to its ``work``.
    """
    _note(tx, [NO_PROVIDER], What.REBUILD)


def _note(tx: sa.Connection, provider_ids: Iterable[int], what: What) -> None:
    notes: Notes | None = tx.get_execution_options().get(_NOTES)
    if notes is None:
        raise Unlogged('Changes can be noted only in a transaction of Database.write.')
    # Checked on all databases, although only on MySQL and MariaDB the entry is inserted by now.
    if notes.ended:
        raise Unlogged('Changes cannot be noted after the last statements of the transaction.')
    for id_ in provider_ids:
        notes.add(id_, what)


def attach(tx: sa.Connection, writer: EntryWriter) -> Notes:
    """Make empty notes for the transaction that begins on ``tx``, and keep them there as an execution option."""
    notes = Notes(writer)
    tx.execution_options(**{_NOTES: notes})
    return notes


def notes_of(tx: sa.Connection) -> Notes:
    """The notes of a transaction of ``Database.write``."""
    notes: Notes = tx.get_execution_options()[_NOTES]
    return notes


def observe(engine: sa.Engine) -> None:
    """From now on record in ``Notes`` which mirrored tables the statements of ``engine`` change."""
    sa.event.listen(engine, 'after_cursor_execute', _record)


def _record(tx: sa.Connection, cursor: Any, statement: str, *_rest: Any) -> None:
    notes: Notes | None = tx.get_execution_options().get(_NOTES)
    if notes is not None:
        notes.answered = True
        found = _CHANGE.match(statement)
        if found is not None and found[1] in _MIRRORED and cursor.rowcount != 0:
            notes.touch(found[1])


#: A statement that changes rows, and the table whose rows it changes.
_CHANGE = re.compile(r'(?:WITH .*\) )?(?:INSERT (?:IGNORE )?INTO|UPDATE|DELETE FROM) "?(\w+)', re.DOTALL)


#: Plain text, which all databases accept and which takes half the time of an INSERT of SQLAlchemy.
_INSERT = 'INSERT INTO changes (writer_id, sequence, provider_id, what) VALUES '
#: Rows of one statement: SQLite refuses a text of more than a megabyte.
_MOST_ROWS = 10000


def enter(tx: sa.Connection, writer_id: int, sequence: int, noted: Mapping[int, What]) -> None:
    """Insert ``noted`` (kind of change by provider id) as the entry ``sequence`` of a writer.

    :raises DBReferenceError: there is no such writer.
    :raises DBDuplicateEntry: the writer has such an entry already.
    """
    for text in entry(writer_id, sequence, noted):
        tx.exec_driver_sql(text)


def entry(writer_id: int, sequence: int, noted: Mapping[int, What]) -> Iterator[str]:
    """The statements that ``enter`` runs: one for every 10,000 providers."""
    rows = [f'({int(writer_id)}, {int(sequence)}, {int(id_)}, {int(what)})' for id_, what in sorted(noted.items())]
    for start in range(0, len(rows), _MOST_ROWS):
        yield _INSERT + ', '.join(rows[start : start + _MOST_ROWS])


# Asked by readers ----------------------------------------------------------------------------------------
#
# Plain text, because every search waits for these, and building and compiling them would take longer than running them.

#: The subquery takes one look into the primary key for each writer. With max() some databases would read all entries.
NEWEST = sa.text(
    'SELECT id, (SELECT sequence FROM changes WHERE changes.writer_id = writers.id ORDER BY sequence DESC LIMIT 1)'
    ' AS newest FROM writers'
)
_ENTRIES = 'SELECT writer_id, sequence, provider_id, what FROM changes WHERE '


def newest(connection: sa.Connection) -> dict[int, int]:
    """Read the vector of the database, in one statement.

    A writer that is in a reader's vector but not in this one was removed after it had been silent for
    ``retention.SILENCE``. A reader that read the vector less than that time ago has seen all its entries; any other has
    to read all tables anew. Measure that time with ``clock``: the clock of a process may jump, or stop with its host.
    """
    return vector(connection.execute(NEWEST))


def vector(rows: Iterable[sa.Row[Any]]) -> dict[int, int]:
    """The vector made of the rows of ``NEWEST``."""
    return {row.id: row.newest for row in rows if row.newest is not None}


def clock(connection: sa.Connection) -> dt.datetime:
    """The time by the clock of the database, in UTC."""
    return connection.execute(_CLOCK).scalar_one()


_CLOCK = sa.select(types.UtcNow())


def since(connection: sa.Connection, vector: Vector, upto: Vector) -> dict[int, What]:
    """Read the entries after ``vector``, up to and including ``upto``; one statement for every hundred writers.

    Writers that are in ``vector`` but not in ``upto`` are ignored: see ``newest``.

    :param connection: in the transaction that ``upto`` was read in.
    :returns: provider id -> kind of change; ``NO_PROVIDER`` -> ``NAMES`` or ``REBUILD``. The providers may have been
        deleted.
    :raises Gap: for some writer the newest entry that ``vector`` knows (its entry 1, if ``vector`` does not know the
        writer) is not in the table, or ``vector`` is ahead of ``upto``.
    """
    newer = sorted(writer for writer, sequence in upto.items() if sequence != vector.get(writer))
    found: dict[int, What] = {}
    for start in range(0, len(newer), _BATCH):
        batch = newer[start : start + _BATCH]
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
    """The number of the newest entry that ``vector`` knows. It is read only to see whether it is still there."""
    return max(vector.get(writer, 0), 1)
