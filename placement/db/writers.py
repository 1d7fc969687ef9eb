"""The writers of the log: each write transaction inserts its entry under a row of ``writers`` that only it uses.

A process has as many writers as it ever had write transactions at the same time. No other process uses them, and one
transaction at a time uses one. So no transaction waits for another because of the log, and on a cluster no two nodes
write the same row of it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Mapping

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import changes, error_kinds, retention, tables


class Forgotten(db_exc.RetryRequest):
    """The writer was deleted, or another process uses it, too: the transaction is tried again with another writer."""

    def __init__(self) -> None:
        super().__init__(exception.ConcurrentProviderUpdate())


class Writer:
    """One row of ``writers``. ``sequence`` is the number of its newest entry that was committed.

    ``entered``: the transaction that uses the writer has begun to insert the next entry.
    """

    def __init__(self, writer_id: int) -> None:
        self.writer_id = writer_id
        self.sequence = 0
        self.entered = False
        self.trail = retention.Trail()

    def enter(self, tx: sa.Connection, noted: Mapping[int, changes.What]) -> None:
        """Insert what a transaction noted, as its last statement.

        :param noted: kind of change by provider id.
        :raises Forgotten: the row was deleted, or another process uses it.
        """
        with self.entering():
            changes.enter(tx, self.writer_id, self.sequence + 1, noted)

    def entry(self, noted: Mapping[int, changes.What]) -> Iterator[str]:
        """The statements that ``enter`` runs, for a caller that runs them itself within ``entering``."""
        return changes.entry(self.writer_id, self.sequence + 1, noted)

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """The block inserts the entry.

        :raises Forgotten: the row was deleted, or another process uses it.
        """
        self.entered = True
        try:
            yield
        except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
            # A duplicate number means that a copy of this process runs, for example in a cloned virtual machine.
            raise Forgotten from error


class Writers:
    """The writers of this process.

    :param begin: begins a transaction that may write.
    """

    def __init__(self, begin: retention.Begin) -> None:
        self._begin = begin
        # By process, so that a forked one does not use its parent's. ``pop`` and ``append`` of a list need no lock.
        self._free: dict[tuple[int, int], list[Writer]] = {}

    @contextlib.contextmanager
    def lend(self) -> Iterator[Writer]:
        """Lend a writer to one transaction, which has to be committed, or rolled back on an exception, in the block.

        The next number counts as used when the COMMIT succeeded, and is used again after a rollback. When nobody knows
        which it was, the writer is never used again.

        :raises DatabaseUnavailable: the database cannot be reached, or its schema has another version.
        """
        free = self._free.setdefault(_process(), [])
        try:
            writer = free.pop()
        except IndexError:
            writer = self._new()
        try:
            yield writer
        except BaseException as error:
            if isinstance(error, Forgotten):
                # The writers in the list have been silent for longer than this one, so they were deleted, too.
                free.clear()
            if writer.entered and not error_kinds.is_rolled_back(error):
                raise
            writer.entered = False
            free.append(writer)
            raise
        if writer.entered:
            writer.sequence += 1
            writer.entered = False
            self._trim(writer)
        free.append(writer)

    def _new(self) -> Writer:
        # In a transaction of its own, before the one that needs it: SQLite has one write transaction at a time.
        writer_id = new_id()
        with self._begin() as tx:
            _check_version(tx)
            add(tx, writer_id)
        return Writer(writer_id)

    def _trim(self, writer: Writer) -> None:
        number = writer.trail.passes(writer.sequence)
        if number is not None:
            with retention.without_failing(), self._begin() as tx:
                retention.trim(tx, writer.writer_id, number)


def _process() -> tuple[int, int]:
    """What tells this process from its ancestors, even if the operating system uses the number of one again."""
    return os.getpid(), os.getppid()


def _check_version(tx: sa.Connection) -> None:
    """Make sure that the schema is still the one that this code was written for, before a process begins to write.

    :raises DatabaseUnavailable: the schema has another version.
    """
    present = tx.exec_driver_sql(_VERSIONS).scalars().all()
    if present != [tables.VERSION]:
        from placement.db import migration

        wrong = migration.WrongSchema(present=', '.join(present) or 'none', head=tables.VERSION)
        raise exception.DatabaseUnavailable from wrong


_VERSIONS = f'SELECT version_num FROM {tables.VERSION_TABLE}'  # noqa: S608


def new_id() -> int:
    """A random id for a new writer, from 1 to 2**62."""
    return secrets.randbits(62) + 1


def add(tx: sa.Connection, writer_id: int) -> None:
    """Insert the row of a new writer."""
    tx.execute(tables.writers.insert().values(id=writer_id))
