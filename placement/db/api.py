"""One configured database: engine, transactions with retries, and the caches that belong to it.

Each write request is one transaction. If it conflicts with a concurrent transaction, even at COMMIT, it is rolled back
and retried from its first read, a limited number of times. ``placement.claims.claim`` lists the statements of a claim
and what it adds to the conflicts.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_config import cfg

from placement import exception, observability
from placement.db import (
    availability,
    batch,
    change_log,
    change_log_slots,
    connections,
    errors,
    migration,
    name_locks,
    tables,
)
from placement.db.change_log import SlotState
from placement.db.commit_outcome import CommitOutcome, find_outcome
from placement.db.connections import Mode
from placement.db.errors import ConnectionLost, ErrorKind, RetryTransaction
from placement.db.retries import Attempt, RetryPolicy
from placement.observability import DATABASE

T = TypeVar('T')

#: Maximum number of retries of a single statement that only reads.
_MAX_READ_RETRIES = 5


class RollbackAndDiagnose(Exception):
    """Raised by the ``work`` of ``Database.write`` to roll back the transaction, and then find out the reason.

    :param explain: called after the rollback with a connection that sees one state of the database. It returns the
        exception to raise, which may be ``RetryTransaction``.
    """

    def __init__(self, explain: Callable[[sa.Connection], Exception]) -> None:
        super().__init__()
        self.explain = explain


class Database:
    """Connections and transactions of one application.

    Nothing connects before the first statement, so the service starts even while the database is unavailable.

    :param conf: a ``ConfigOpts`` with the group ``placement_database``.
    :param time_limits: whether ``socket_timeout`` and ``lock_wait_timeout`` apply. A statement that changes the schema,
        or a repair, may take longer than a request.
    :raises ConfigurationInvalid: ``connection`` is missing, or a URL that can never work (``connections.engine_url``).
    """

    def __init__(self, conf: cfg.ConfigOpts, *, time_limits: bool = True) -> None:
        self._options = conf.placement_database
        self.engine = connections.create_engine(self._options, time_limits=time_limits)
        #: Counts retries, claims and searches; does nothing unless metrics are configured.
        self.metrics = observability.create(conf)
        is_limited = self._options.max_pool_size > 0 and self._options.max_overflow >= 0
        limit = self._options.max_pool_size + self._options.max_overflow if is_limited else math.inf
        self.metrics.instrument(self.engine, limit)
        self.availability = availability.Availability(self.metrics.read_only.set)
        #: Begins a transaction that changes only slots and entries of the change log. Nothing retries it.
        self.slot_transaction = functools.partial(self._transaction, Mode.WRITE_EAGER)
        self._retry_policy = RetryPolicy(self._options.max_transaction_retries)
        #: The slots of the change log that the transactions of this process use.
        self.slots = change_log_slots.ChangeLogSlots(self.slot_transaction)
        self.resource_classes = name_locks.ResourceClassIds()
        #: Uuids of aggregates that existed when this process last used them. An audit may have deleted some since.
        self.known_aggregates: set[str] = set()
        _databases.add(self)

    def fetch_all(self, statement: sa.Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[sa.Row[Any]]:
        """Run one statement as ``read`` does, and return its rows.

        :param parameters: the values of the statement's bind parameters, by name.
        """
        return self.read(lambda connection: connection.execute(statement, parameters or {}).all())

    def read(self, work: Callable[[sa.Connection], T]) -> T:
        """Run one statement that only reads, in one round trip without a transaction.

        The statement sees one state of the database.

        :param work: executes the statement. If the connection broke early or there is a conflict, ``work`` is called
            again with another connection.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        retries = 0
        with self._observed(), errors.as_unavailable(conflicts=True):
            while True:
                with self._begin(Mode.AUTOCOMMIT) as connection:
                    try:
                        return work(connection)
                    except BaseException as error:
                        connection.invalidate()
                        is_temporary = errors.broke_early(error, connection) or errors.is_conflict(error)
                        if not is_temporary or retries == _MAX_READ_RETRIES:
                            raise
                retries += 1

    @contextlib.contextmanager
    def reader(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that only reads and sees one state of the database.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with self._observed(), self._transaction(Mode.SNAPSHOT) as connection:
            yield connection

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in a transaction, commit, and return what ``work`` returned.

        All writes use this, except changes of the schema (``migration.locked``) and maintenance of the change log.

        :param work: takes the connection, and records what it changes (``placement.db.change_log``). It may leave its
            last statements to this method (``StatementBatch.defer``). It is called again, in a new transaction, after
            errors that ``RetryPolicy`` retries, and after it raised ``RetryTransaction``. So it must not keep anything
            from one call to the next. It may raise ``RollbackAndDiagnose``.
        :raises ConcurrentProviderUpdate: the first attempt and all ``max_transaction_retries`` retries conflicted, or
            SQLite's lock was not released in time. After a ``RetryTransaction``, its ``error`` is raised instead.
        :raises DatabaseUnavailable: the database cannot be reached, the connection broke, or a subclass says what
            happened. Nothing was committed, except perhaps after ``CommitInDoubt``.
        :raises DatabaseReadOnly: the database rejects changes, also on a new connection.
        :raises TransactionInterrupted: the server canceled a statement, or failed COMMIT in the last attempt.
        :raises CommitInDoubt: COMMIT failed, and the change log does not show whether the transaction was committed, or
            ``work`` recorded nothing there.
        """
        attempt = Attempt()
        with self._observed(writes=True):
            while True:
                try:
                    return self._write_once(work)
                except Exception as error:
                    attempt = self._retry_policy.next_attempt(attempt, error)
                    if not attempt.is_reconnected:
                        self.metrics.transaction_retries.labels(type(error).__name__).inc()
                time.sleep(attempt.delay_seconds)

    def _write_once(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in one transaction, under a leased slot of the change log, and commit.

        The last batch of ``work`` gets the statements that append the entries to the change log, so on MySQL they are
        one text.
        """
        slot = self.slots.lease()
        try:
            with self._transaction(Mode.WRITE, slot) as tx:
                changes = change_log.attach(tx)
                result = work(tx)
                last = batch.deferred(tx)
                if changes:
                    for text, rows in slot.statements(tx.dialect.name, changes):
                        last.add_statement(text, rows=rows, error=change_log.SlotTaken)
                last.execute()
        except exception.CommitInDoubt as error:
            self.slots.failed(slot, error)
            if not changes:
                # The change log does not know of this transaction.
                raise
            outcome = find_outcome(self.slot_transaction, slot, self.slots.owner, error)
            if outcome is CommitOutcome.COMMITTED:
                return result
            if outcome is CommitOutcome.NOT_COMMITTED:
                # If no retry is left, the client gets 409 only after a conflict with another request.
                is_conflict = errors.classify(error.__cause__ or error) is ErrorKind.CONFLICT
                raise RetryTransaction(None if is_conflict else exception.TransactionInterrupted()) from error
            raise
        except BaseException as error:
            self.slots.failed(slot, error)
            if isinstance(error, RollbackAndDiagnose):
                # Without ``reader``, so that ``write`` alone counts an outage.
                with self._transaction(Mode.SNAPSHOT) as tx:
                    raise error.explain(tx) from None
            raise
        self.slots.committed(slot)
        return result

    @contextlib.contextmanager
    def _transaction(self, mode: Mode, slot: change_log.Slot | None = None) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction. Commit at the end, or roll back on an exception.

        A transaction that may write has the isolation level READ COMMITTED, regardless of the server's default. That is
        enough, because the row counts of conditional UPDATE and DELETE statements decide. At stricter levels a
        transaction that has waited for a row lock would fail instead of continuing with the row.

        After any error in COMMIT, as after a failed ROLLBACK (``db.connections``), the connection is closed. Otherwise
        it might still be in the transaction, and its next COMMIT would commit it. The server rolls the transaction of a
        closed connection back.

        :param mode: any but ``AUTOCOMMIT``.
        :param slot: the leased slot, if a client asked for the changes. It becomes ``UNCHANGED`` if the transaction has
            certainly been rolled back.
        :raises CommitInDoubt: COMMIT failed, and is in doubt (``errors.ERRORS``). Without a slot, this is a
            ``TransactionInterrupted``, or a conflict: no client asked for what such a transaction does, so it can be
            repeated.
        :raises ConnectionLost: the connection broke early.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with errors.as_unavailable(conflicts=mode is Mode.SNAPSHOT), self._begin(mode) as connection:
            try:
                yield connection
            except BaseException as error:
                connection.rollback()
                # An error with ``discards_pool`` is the server's answer: it rolls back when the connection is closed.
                if slot and (not connection.invalidated or errors.known_error_of(error).discards_pool):
                    slot.state = SlotState.UNCHANGED
                if errors.broke_early(error, connection):
                    raise ConnectionLost from error
                raise
            try:
                with self.metrics.phase(DATABASE):
                    connection.commit()
            except BaseException as error:
                connection.invalidate()
                is_rolled_back = errors.known_error_of(error).rolls_back_at_commit
                if slot and is_rolled_back:
                    slot.state = SlotState.UNCHANGED
                # The process is about to end, and nobody waits for the outcome.
                is_ending = not isinstance(error, Exception)
                # Without a slot, the caller may repeat the transaction.
                is_repeatable = not slot and errors.is_conflict(error)
                if is_rolled_back or is_ending or is_repeatable:
                    raise
                raise (exception.CommitInDoubt if slot else exception.TransactionInterrupted) from error

    def _begin(self, mode: Mode, *, retries: int = 1) -> sa.Connection:
        """Begin a transaction on a connection of the pool. If this turns out to be broken, try another one.

        :param mode: with ``AUTOCOMMIT``, and with ``WRITE`` on MySQL, nothing is sent, so a broken connection is
            noticed later.
        """
        with self.metrics.connection_wait():
            connection = self.engine.connect()
        connection.execution_options(**{connections.MODE: mode, errors.OBTAINED: time.monotonic()})
        try:
            connection.begin()
        except BaseException as error:
            connection.close()
            if retries and errors.broke_early(error, connection):
                return self._begin(mode, retries=retries - 1)
            raise
        return connection

    @contextlib.contextmanager
    def _observed(self, *, writes: bool = False) -> Iterator[None]:
        """Tell ``availability`` whether the operation in the block fails with ``DatabaseUnavailable``.

        :param writes: whether the operation changes something.
        """
        try:
            yield
        except exception.DatabaseUnavailable as error:
            self.availability.failed(error)
            raise
        # Without an outage, as nearly always, there is nothing to report.
        if self.availability.outages:
            self.availability.succeeded(writes=writes)

    def try_to_write(self) -> None:
        """Run an UPDATE of no rows, so that ``availability`` knows whether the database rejects changes now.

        A writer on SQLite has to wait for other writers, so there this happens only after a change was rejected.
        """
        if self.engine.dialect.name != 'sqlite' or self.availability.is_read_only:
            change_nothing = tables.change_log_slots.update().where(sa.false()).values(owner=None)
            with contextlib.suppress(*errors.DATABASE_ERRORS), self._observed(writes=True):  # noqa: SIM117
                with self.slot_transaction() as tx:
                    tx.execute(change_nothing)

    def sync(self) -> None:
        """Upgrade the schema to the newest revision, and insert the standard names that are missing.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        # A change of the schema may take longer than a request.
        engine = connections.create_engine(self._options, time_limits=False)
        try:
            migration.sync(engine)
        finally:
            engine.dispose()
        self.insert_standard_names()

    def insert_standard_names(self) -> None:
        """Insert the resource classes and traits of the installed os-resource-classes and os-traits that are missing.

        :raises DatabaseUnavailable: the database cannot be reached, or is read-only.
        """

        def insert(tx: sa.Connection) -> None:
            change_log.record_names(tx)
            migration.insert_standard_names(tx)

        # Without this condition, every start would take a slot of the change log. Its two statements need not see one
        # state, because ``insert`` reads again.
        if self.read(migration.missing_standard_names):
            self.write(insert)

    def dispose(self) -> None:
        """Free the slots of the change log, and close all pooled connections."""
        self.slots.release()
        self.engine.dispose()


#: The databases that this process has opened.
_databases: weakref.WeakSet[Database] = weakref.WeakSet()


def forget_parent() -> None:
    """Give up the connections and slots of a forked process, because they belong to its parent."""
    for database in list(_databases):
        database.engine.dispose(close=False)
        database.slots.forget()


os.register_at_fork(after_in_child=forget_parent)
