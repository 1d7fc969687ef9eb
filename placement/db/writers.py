"""The writers of the log: each write transaction numbers its entries under a row of ``writers`` of its own.

A process keeps as many rows as it ever had write transactions at a time. A row belongs to one process for good, and to
one transaction at a time, so nobody waits for it, and on a cluster no two nodes touch the same row of the log.
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
    """The row of a writer was removed after a long silence, or somebody else uses it: try again with another one."""

    def __init__(self) -> None:
        super().__init__(exception.ConcurrentProviderUpdate())


class Writer:
    """One row of ``writers``, and the number of its newest entry.

    ``entered``: the transaction that has the writer began to insert the next entry.
    """

    def __init__(self, writer_id: int) -> None:
        self.writer_id = writer_id
        self.sequence = 0
        self.entered = False
        self.trail = retention.Trail()

    def enter(self, tx: sa.Connection, noted: Mapping[int, changes.What]) -> None:
        """Insert what a transaction noted, as its last statement.

        :raises Forgotten: the row is gone, or not ours.
        """
        with self.entering():
            changes.enter(tx, self.writer_id, self.sequence + 1, noted)

    def entry(self, noted: Mapping[int, changes.What]) -> Iterator[str]:
        """The statements that ``enter`` runs, for who runs them himself, within ``entering``."""
        return changes.entry(self.writer_id, self.sequence + 1, noted)

    @contextlib.contextmanager
    def entering(self) -> Iterator[None]:
        """Insert the entry in the block.

        :raises Forgotten: the row is gone, or not ours.
        """
        self.entered = True
        try:
            yield
        except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
            # A number that is taken: this process is the copy of another one, as of a virtual machine.
            raise Forgotten from error


class Writers:
    """The writers of this process.

    :param begin: begins a transaction that may write.
    """

    def __init__(self, begin: retention.Begin) -> None:
        self._begin = begin
        # By process, so that a fork begins with none. Taking from a list and adding to it need no lock.
        self._free: dict[tuple[int, int], list[Writer]] = {}

    @contextlib.contextmanager
    def lend(self) -> Iterator[Writer]:
        """A writer for one transaction, which is committed when the context is left, and rolled back on an exception.

        A number is used up when the COMMIT is known to have succeeded, and used again when the transaction is known to
        be rolled back. When neither is known the writer is never used again: its next number may or may not be taken.
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
                # The others have been unused for longer than this one was.
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
        # Committed before the transaction that needs it begins: SQLite lets nobody else write while that goes on.
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
    """What no two processes have that descend from one another, even where numbers of processes are used again."""
    return os.getpid(), os.getppid()


def _check_version(tx: sa.Connection) -> None:
    """Let no process begin to write to tables that it does not know.

    So an upgrade can stop those that are running: it removes all writers, and each has to come by here again.

    :raises DatabaseUnavailable: the schema is of another version.
    """
    present = tx.exec_driver_sql(_VERSIONS).scalars().all()
    if present != [tables.VERSION]:
        from placement.db import migration

        wrong = migration.WrongSchema(present=', '.join(present) or 'none', head=tables.VERSION)
        raise exception.DatabaseUnavailable from wrong


_VERSIONS = f'SELECT version_num FROM {tables.VERSION_TABLE}'  # noqa: S608


def new_id() -> int:
    """The id of a new writer, which nobody else has, had or will have."""
    return secrets.randbits(62) + 1


def add(tx: sa.Connection, writer_id: int) -> None:
    """Insert the row of a new writer."""
    tx.execute(tables.writers.insert().values(id=writer_id))
