"""One configured database: engine, transactions with retries, and the caches that belong to it.

Each write request is one transaction. If it conflicts with a concurrent one, also at COMMIT, the whole transaction
is rolled back and retried from its first read, a limited number of times. ``placement.claims.claim`` lists the
statements and retries of a claim.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
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
    name_cache,
    tables,
)
from placement.db.change_log_slots import CommitUnknown, Outcome
from placement.db.errors import RetryTransaction
from placement.observability.timing import DATABASE

T = TypeVar('T')

#: The delay before the first retry, and the maximum delay. Delays grow, and are random.
_MIN_RETRY_DELAY_SECONDS = 0.002
_MAX_RETRY_DELAY_SECONDS = 0.25

#: The name of the pool of connections in the metrics.
_POOL = 'database'
#: A statement on a connection that was already broken fails sooner; the smallest ``socket_timeout`` is one second.
_MAX_STALE_SECONDS = 0.9
#: Maximum number of retries of a single statement that only reads.
_MAX_READ_RETRIES = 5


class StaleConnection(exception.DatabaseUnavailable):
    """The connection broke before the database answered the first statement of a transaction: nothing was written."""


class SchemaMissing(exception.DatabaseUnavailable):
    """A table of the service is not in the database, for example after ``placement-manage db leave``."""

    @property
    def for_operators(self) -> str:
        """The text for the log, which names the table."""
        reason = str(self.__cause__ or '').partition('\n')[0]
        return f'A table of the service is not in the database: {reason}'


class RollbackAndDiagnose(Exception):
    """Raised by the ``work`` of ``Database.write`` to have the transaction rolled back, and only then diagnosed.

    :param explain: called after the rollback with a connection of ``Database.reader``; returns the exception to raise,
        which may be ``RetryTransaction``.
    """

    def __init__(self, explain: Callable[[sa.Connection], Exception]) -> None:
        super().__init__()
        self.explain = explain


class Database:
    """Connections and transactions of one application.

    :param conf: a ``ConfigOpts`` with the group ``placement_database``.
    :raises ConfigurationInvalid: ``connection`` is missing, or a URL that can never work (``connections.engine_url``).

    Nothing connects before the first statement, so the service starts even while the database is unavailable.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._options = conf.placement_database
        self._engine = connections.create_engine(self._options)
        change_log.observe(self._engine)
        batch.prepare(self._engine)
        #: Counts retries, claims and searches; does nothing unless metrics are configured.
        self.metrics = observability.create(conf)
        self.metrics.instrument(_POOL, self._engine, self._options.max_pool_size + self._options.max_overflow)
        self.availability = availability.Availability()
        #: The process that the connections belong to.
        self._pid = os.getpid()
        self._slots = change_log_slots.ChangeLogSlots(functools.partial(self._transaction, connections.WRITE_EAGER))
        self.resource_classes = name_cache.NameCache(tables.resource_classes, exception.ResourceClassNotFound)
        self.traits = name_cache.NameCache(tables.traits, exception.TraitNotFound)
        self.aggregates = name_cache.KnownAggregates()

    @property
    def engine(self) -> sa.Engine:
        """The SQLAlchemy engine."""
        if self._pid != os.getpid():
            # Connections inherited through a fork belong to the parent, so they are dropped without closing them.
            self._engine.dispose(close=False)
            self._pid = os.getpid()
        return self._engine

    def fetch_all(self, statement: sa.Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[sa.Row[Any]]:
        """Run one statement that only reads, in one round trip without a transaction, and return its rows.

        It is retried on another connection if the connection is stale or there was a conflict.

        :param parameters: values of the statement's bind parameters, by name.
        :raises DatabaseUnavailable: the database cannot be reached.
        """

        def read() -> Sequence[sa.Row[Any]]:
            with self._connection(connections.AUTOCOMMIT) as connection:
                started = time.monotonic()
                try:
                    return connection.execute(statement, parameters or {}).all()
                except BaseException as error:
                    connection.invalidate()
                    _raise_if_stale(error, started)
                    raise

        with self.availability.observe(), _translated_errors(conflicts=True):
            return errors.retry(
                read,
                lambda error: isinstance(error, StaleConnection) or errors.is_conflict(error),
                retries=_MAX_READ_RETRIES,
            )

    @contextlib.contextmanager
    def reader(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that only reads, and sees one state of the database throughout.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with self.availability.observe(), self._transaction(connections.SNAPSHOT) as connection:
            yield connection

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in a transaction, commit, and return what ``work`` returned.

        Everything is written this way but the schema (``migration.locked``) and the maintenance of the change log.

        :param work: takes the connection, and records what it changes (``placement.db.change_log``). It is called
            again, in a new transaction, after a conflict with another transaction (``errors.is_conflict``), when
            it raised ``RetryTransaction``, or when its COMMIT failed and certainly did not happen. So it must not keep
            anything from one call to the next. It may raise ``RollbackAndDiagnose``.
        :raises ConcurrentProviderUpdate: the first attempt and all ``max_transaction_retries`` retries conflicted.
            After a ``RetryTransaction``, its ``error`` is raised instead.
        :raises CommitUnknown: COMMIT failed, and the change log does not show whether the transaction was committed.
        :raises DatabaseUnavailable: the database cannot be reached, the connection broke, or the server canceled a
            statement. Nothing was committed, unless it is ``CommitUnknown``.
        :raises MissingLogEntry: ``work`` changed a table that searches read, and recorded nothing. Nothing is
            committed.
        """
        retries, is_reconnected = 0, False
        with self.availability.observe(writes=True):
            while True:
                try:
                    return self._attempt(work)
                except (StaleConnection, exception.DatabaseReadOnly):
                    # SQLAlchemy has dropped all connections of the pool, so the next one is new, and may lead to
                    # another server. Nothing was written.
                    if is_reconnected:
                        raise
                    is_reconnected = True
                except Exception as error:
                    if not (isinstance(error, RetryTransaction) or errors.is_conflict(error)):
                        raise
                    self.metrics.transaction_retried(type(error).__name__)
                    if retries == self._options.max_transaction_retries:
                        raise _exhausted(error) from error
                    retries, is_reconnected = retries + 1, False
                    max_delay = min(_MIN_RETRY_DELAY_SECONDS * 2**retries, _MAX_RETRY_DELAY_SECONDS)
                    time.sleep(random.uniform(0, max_delay))  # noqa: S311

    def _attempt(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in one transaction, append to the change log if its last batch did not, and commit."""
        pending: change_log.PendingChanges | None = None
        try:
            with self._slots.lease() as slot, self._transaction(connections.WRITE) as tx:
                pending, started = change_log.attach(tx, slot), time.monotonic()
                try:
                    result = work(tx)
                except Exception as error:
                    if not pending.answered:
                        _raise_if_stale(error, started)
                    raise
                pending.verify_recorded()
                if not pending.appended:
                    batch.StatementBatch(tx).execute_final()
        except RollbackAndDiagnose as rollback:
            with self.reader() as tx:
                raise rollback.explain(tx) from None
        except CommitUnknown as error:
            # The change log shows whether the transaction was committed, unless it appended nothing, as the transaction
            # that takes a slot.
            if pending is None or not pending.appended:
                raise
            outcome = self._slots.resolve_in_doubt(pending.slot)
            if outcome is Outcome.NOT_COMMITTED:
                raise RetryTransaction from error
            if outcome is Outcome.UNKNOWN:
                raise
        return result

    @contextlib.contextmanager
    def _transaction(self, begin: str) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction; committed at the end, rolled back on an exception.

        A transaction that may write has the isolation level READ COMMITTED, whatever the server's default is. That is
        enough, because the row counts of conditional UPDATE and DELETE statements decide. At stricter levels a
        transaction that has waited for a row lock would fail instead of continuing with the row.

        A connection whose COMMIT failed is closed, whatever the error, as is one whose ROLLBACK failed
        (``db.connections``). It may still be in its transaction, which the next COMMIT on it would commit; when it is
        closed, the server rolls the transaction back.

        :param begin: ``connections.SNAPSHOT``, ``WRITE`` or ``WRITE_EAGER``. If the connection is stale when BEGIN
            is sent, it is replaced once. With ``WRITE`` MySQL is sent BEGIN with the first statement, which then fails.
        :raises CommitUnknown: COMMIT failed, and its error does not say whether the transaction was committed.
        :raises DatabaseUnavailable: the database cannot be reached.
        """

        def begun() -> sa.Connection:
            connection, started = self._connection(begin), time.monotonic()
            try:
                connection.begin()
            except BaseException as error:
                connection.close()
                _raise_if_stale(error, started)
                raise
            return connection

        with (
            _translated_errors(conflicts=begin == connections.SNAPSHOT),
            errors.retry(begun, lambda error: isinstance(error, StaleConnection), retries=1) as connection,
        ):
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            try:
                with self.metrics.phase(DATABASE):
                    connection.commit()
            except BaseException as error:
                connection.invalidate()
                if isinstance(error, Exception) and not errors.is_definitely_rolled_back(error):
                    raise CommitUnknown from error
                raise

    def _connection(self, begin: str) -> sa.Connection:
        engine = self.engine
        with self.metrics.connection_wait(_POOL):
            return engine.connect().execution_options(**{connections.BEGIN: begin})

    def try_to_write(self) -> None:
        """Change no row, so that ``availability`` shows whether the database rejects changes at the moment.

        On SQLite a writer has to wait for other writers, so there it tries only after a change was rejected.
        """
        if self.engine.dialect.name != 'sqlite' or self.availability.is_read_only:
            change_nothing = tables.change_log_slots.update().where(sa.false()).values(owner=None)
            with contextlib.suppress(*errors.DATABASE_ERRORS), self.availability.observe(writes=True):  # noqa: SIM117
                with self._transaction(connections.WRITE_EAGER) as tx:
                    tx.execute(change_nothing)

    def sync(self) -> None:
        """Upgrade the schema to the newest revision and insert the standard names that are missing. Idempotent.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        # A change of the schema may take longer than a request.
        engine = connections.create_engine(self._options, time_limits=False)
        try:
            with _translated_errors():
                migration.sync(engine)
        finally:
            engine.dispose()

        def insert_standard_names(tx: sa.Connection) -> None:
            change_log.record_names(tx)
            migration.insert_standard_names(tx)

        with self.reader() as tx:
            complete = migration.has_standard_names(tx)
        # A write would take a slot of the change log at every start.
        if not complete:
            self.write(insert_standard_names)

    def schema_revision(self) -> str | None:
        """Return the revision of the schema; None if the database was not made or adopted by this service."""
        with _translated_errors():
            return migration.recorded_revision(self.engine)

    def check_schema(self) -> None:
        """Make sure that the schema is the one that this code was written for.

        :raises WrongSchema: it is not.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _translated_errors():
            migration.check_revision(self.engine)

    def foreign_tables(self) -> list[str]:
        """Return the names of the tables that only a database of another Placement service has."""
        with _translated_errors(), self.engine.connect() as connection:
            return sorted(tables.FOREIGN & set(sa.inspect(connection).get_table_names()))

    def stamp(self, revision: str) -> None:
        """Record ``revision`` as that of the schema, changing nothing else.

        :raises UnknownRevision: there is no such revision.
        :raises ForeignSchema: the tables are those of another Placement service.
        """
        with _translated_errors():
            migration.stamp(self.engine, revision)

    def dispose(self) -> None:
        """Free the slots of the change log, and close all pooled connections."""
        self._slots.release()
        self._engine.dispose()


def _raise_if_stale(error: BaseException, started: float) -> None:
    """Raise ``StaleConnection`` if the connection was already broken when a statement was sent on it at ``started``.

    Such a statement fails immediately. A statement that fails later was sent to a server that does not answer, which
    would not answer another one either.
    """
    if errors.is_disconnect(error) and time.monotonic() - started < _MAX_STALE_SECONDS:
        raise StaleConnection from error


@contextlib.contextmanager
def _translated_errors(*, conflicts: bool = False) -> Iterator[None]:
    """Raise ``DatabaseUnavailable`` if the database is unavailable, lacks a table, or canceled a statement.

    :param conflicts: also for a conflict with another transaction, after which a transaction is otherwise retried.
    """
    try:
        yield
    except Exception as error:
        if errors.is_read_only(error):
            raise exception.DatabaseReadOnly from error
        if errors.is_unavailable(error):
            raise exception.DatabaseUnavailable from error
        if conflicts if errors.is_conflict(error) else errors.is_canceled(error):
            raise exception.SingleFailure from error
        if errors.is_missing_table(error):
            raise SchemaMissing from error
        raise


def _exhausted(error: Exception) -> Exception:
    """Return what the caller sees of the conflict in the last attempt of a transaction."""
    if isinstance(error, RetryTransaction):
        return error.error
    if errors.is_canceled(error):
        return exception.SingleFailure()
    return exception.ConcurrentProviderUpdate()
