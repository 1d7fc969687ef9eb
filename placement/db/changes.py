"""The log of changes: what each write transaction changed, so that a copy in memory can be brought forward.

Every transaction that ``Database.write`` runs says here what it changed. Its last statement inserts that into the
table ``changes``, under the next number of a row of ``writers`` that nobody else uses at the same time
(``db.writers``). So the numbers of one writer are in the order of its commits and have no gaps: what is visible of them
is always a prefix.

A reader keeps, for each writer, the number up to which it knows (a *vector*), asks for the newest (``newest``) and
reads what lies between (``since``).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import sqlalchemy as sa
from sqlalchemy.sql.dml import UpdateBase

from placement import exception
from placement.db import tables

_changes, _writers = tables.changes, tables.writers


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
    """A fault in this program: a transaction changed what is mirrored, and did not say so."""


# Written by transactions ---------------------------------------------------------------------------------


class Notes:
    """What one transaction said that it changed, and which tables it was seen to change."""

    def __init__(self) -> None:
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
    'resource_providers': _OF_PROVIDERS,
    'inventories': _OF_PROVIDERS,
    'resource_provider_traits': _OF_PROVIDERS,
    'resource_provider_aggregates': _OF_PROVIDERS,
    'resource_classes': _OF_NAMES,
    'traits': _OF_NAMES,
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
    for id_ in provider_ids:
        notes.add(id_, what)


def attach(tx: sa.Connection) -> Notes:
    """Empty notes for a transaction that begins on ``tx``."""
    notes = Notes()
    tx.execution_options(**{_NOTES: notes})
    return notes


def observe(engine: sa.Engine) -> None:
    """From now on see which tables the transactions of ``engine`` change, for ``Notes.check``."""
    sa.event.listen(engine, 'after_execute', _see)


def _see(
    tx: sa.Connection, statement: Any, _multiparams: Any, _params: Any, _options: Any, result: sa.CursorResult[Any]
) -> None:
    if isinstance(statement, UpdateBase):
        table = statement.table.description
        if table in _MIRRORED and result.rowcount != 0:
            notes: Notes | None = tx.get_execution_options().get(_NOTES)
            if notes is not None:
                notes.touch(table)


def enter(tx: sa.Connection, writer_id: int, sequence: int, noted: Mapping[int, What]) -> None:
    """Insert what was noted, as the number ``sequence`` of a writer.

    :raises DBReferenceError: there is no such writer.
    """
    rows = [
        {'writer_id': writer_id, 'sequence': sequence, 'provider_id': id_, 'what': int(what)}
        for id_, what in sorted(noted.items())
    ]
    tx.execute(_changes.insert(), rows)


# Asked by readers ----------------------------------------------------------------------------------------

_NEWEST = sa.select(
    _writers.c.id,
    # One look into the primary key for each writer. An aggregate would read all entries on some databases.
    sa.select(_changes.c.sequence)
    .where(_changes.c.writer_id == _writers.c.id)
    .order_by(_changes.c.sequence.desc())
    .limit(1)
    .scalar_subquery()
    .label('newest'),
)


def newest(connection: sa.Connection) -> dict[int, int]:
    """The number of the newest entry of each writer, in one statement. Writers without entries are left out."""
    return {id_: sequence for id_, sequence in connection.execute(_NEWEST) if sequence is not None}


def since(connection: sa.Connection, vector: Vector, upto: Vector) -> dict[int, What]:
    """What was logged beyond ``vector``, up to and including ``upto``, in one statement for each hundred writers.

    Writers that are in ``vector`` but not in ``upto`` were removed from the log after a day of silence
    (``db.writers``); nothing is said about them here.

    :param connection: in the transaction that ``upto`` was read in.
    :returns: provider id -> what happened to it; ``NO_PROVIDER`` -> ``NAMES`` or ``REBUILD``. Providers may be gone.
    :raises Gap: the entry that ``vector`` stands at (the first, for a writer that it does not know) is not there, or a
        writer is further in ``vector`` than in ``upto``.
    """
    moved = sorted(writer for writer, sequence in upto.items() if sequence != vector.get(writer))
    found: dict[int, What] = {}
    for start in range(0, len(moved), _BATCH):
        for provider_id, what in _between(connection, vector, upto, moved[start : start + _BATCH]):
            found[provider_id] = max(what, found.get(provider_id, what))
    return found


def _between(
    connection: sa.Connection, vector: Vector, upto: Vector, moved: Sequence[int]
) -> Iterator[tuple[int, What]]:
    """The entries of some writers, after a look at the one that each stands at."""
    stands_at = {writer: vector.get(writer, 0) for writer in moved}
    ranges = [
        sa.and_(
            _changes.c.writer_id == writer,
            _changes.c.sequence.between(max(stands_at[writer], 1), upto[writer]),
        )
        for writer in moved
    ]
    query = sa.select(_changes.c.writer_id, _changes.c.sequence, _changes.c.provider_id, _changes.c.what)
    rows = connection.execute(query.where(sa.or_(*ranges)).order_by(_changes.c.writer_id, _changes.c.sequence))
    present = {writer: list(entries) for writer, entries in groupby(rows, key=lambda row: row.writer_id)}
    for writer in moved:
        first = max(stands_at[writer], 1)
        entries = present.get(writer)
        if entries is None or entries[0].sequence != first:
            raise Gap(writer=writer, sequence=first)
        for _, sequence, provider_id, what in entries:
            if sequence > stands_at[writer]:
                yield provider_id, What(what)
