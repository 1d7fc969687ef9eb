"""One configured database: engine, transactions with retries, and the caches that belong to it.

Each write request is one transaction. If it conflicts with a concurrent one, also at COMMIT, the whole transaction
is rolled back and retried from its first read, a limited number of times. ``placement.claims.claim`` shows that for a
claim, statement by statement.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc

from placement import exception, observability
from placement.db import (
    batch,
    change_log,
    change_log_slots,
    connections,
    errors,
    name_cache,
    tables,
    url,
)
from placement.db.change_log_slots import Outcome
from placement.observability.metrics import Metrics
from placement.observability.timing import DATABASE

T = TypeVar('T')

#: The delay before the first retry, and the maximum delay. Delays grow, and are random.
_MIN_RETRY_DELAY_SECONDS = 0.002
_MAX_RETRY_DELAY_SECONDS = 0.25
#: Maximum number of retries, about one a second, of a change of the schema while another node is changing it.
_MAX_SYNC_RETRIES = 60

#: The name of the pool of connections in the metrics.
_POOL = 'database'
#: Maximum number of retries of a single statement that only reads.
_MAX_READ_RETRIES = 5


class RetryTransaction(db_exc.RetryRequest):
    """Raised by the ``work`` of ``Database.write`` to have the transaction rolled back and run again.

    :param error: what ``Database.write`` raises when the retries are used up; ``ConcurrentProviderUpdate`` by default.
    """

    def __init__(self, error: exception.PlacementError | None = None) -> None:
        super().__init__(error or exception.ConcurrentProviderUpdate())


class StaleConnection(exception.DatabaseUnavailable):
    """The connection broke before the database answered the first statement of a transaction: nothing was written."""


class CommitUnknown(exception.DatabaseUnavailable):
    """COMMIT ended with an error, so the transaction may or may not have been committed. The connection is closed."""


class SchemaMissing(exception.DatabaseUnavailable):
    """A table of the service is not in the database, for example after ``placement-manage db leave``."""

    @property
    def for_operators(self) -> str:
        """The text for the log: which table it is."""
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
    :raises ConfigurationInvalid: ``connection`` is missing, or is a URL that can never work (``url.engine_url``).

    Nothing connects before the first statement, so the service starts even while the database is unavailable.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._options = conf.placement_database
        self._engine = connections.create_engine(url.engine_url(self._options), self._options)
        change_log.observe(self._engine)
        batch.prepare(self._engine)
        #: Counts retries, claims and searches; does nothing unless metrics are configured.
        self.metrics = observability.create(conf)
        self.metrics.instrument(_POOL, self._engine, self._options.max_pool_size + self._options.max_overflow)
        #: The process that the connections belong to.
        self._pid = os.getpid()
        self._slots = change_log_slots.ChangeLogSlots(self._tested_writer)
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
        with _translated_errors(conflicts=True):
            retries = 0
            while True:
                try:
                    return self._fetch_all_once(statement, parameters or {})
                except Exception as error:  # noqa: PERF203
                    retries += 1
                    temporary = errors.is_disconnect(error) or errors.is_conflict(error)
                    if retries > _MAX_READ_RETRIES or not temporary:
                        raise

    def _fetch_all_once(self, statement: sa.Executable, parameters: Mapping[str, Any]) -> Sequence[sa.Row[Any]]:
        with self._connection(connections.AUTOCOMMIT) as connection:
            try:
                return connection.execute(statement, parameters).all()
            except BaseException:
                connection.invalidate()
                raise

    @contextlib.contextmanager
    def reader(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that only reads, and sees one state of the database throughout.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _translated_errors(conflicts=True), self._tested(connections.SNAPSHOT) as connection:
            yield connection

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sa.Connection]:
        """Yield a connection in a transaction that may write; committed at the end, rolled back on an exception.

        The isolation level is READ COMMITTED, whatever the server's default is. That is enough, because the row counts
        of conditional UPDATE and DELETE statements decide. At the stricter levels a transaction that waited for a row
        lock would then fail instead of continuing with the row.

        The connection is not tested: a stale one fails at the first statement.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _translated_errors(), self._connection(connections.WRITE) as connection:
            try:
                transaction = connection.begin()
            except Exception as error:
                if errors.is_disconnect(error):
                    raise StaleConnection from error
                raise
            with _ending(connection, transaction, self.metrics):
                yield connection

    @contextlib.contextmanager
    def _tested_writer(self) -> Iterator[sa.Connection]:
        """As ``_writer``, on a connection that was tested: for callers that are not retried on a new one.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _translated_errors(), self._tested(connections.WRITE_TESTED) as connection:
            yield connection

    @contextlib.contextmanager
    def _tested(self, begin: str) -> Iterator[sa.Connection]:
        """Yield a transaction whose BEGIN is sent immediately. If the connection is stale, it is replaced once.

        :param begin: ``connections.SNAPSHOT`` or ``connections.WRITE_TESTED``.
        """
        with contextlib.ExitStack() as stack:
            connection = stack.enter_context(self._connection(begin))
            try:
                transaction = connection.begin()
            except Exception as error:
                if not errors.is_disconnect(error):
                    raise
                connection.close()
                connection = stack.enter_context(self._connection(begin))
                transaction = connection.begin()
            with _ending(connection, transaction, self.metrics):
                yield connection

    def _connection(self, begin: str) -> sa.Connection:
        engine = self.engine
        with self.metrics.connection_wait(_POOL):
            return engine.connect().execution_options(**{connections.BEGIN: begin})

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in a transaction, commit, and return what ``work`` returned.

        Everything is written this way but the schema (``migration.locked``) and the maintenance of the change log.

        :param work: takes the connection, and records what it changes (``placement.db.change_log``). It is called
            again, in a new transaction, after a conflict with another transaction (``errors.is_conflict``), when
            it raised ``RetryTransaction``, or when its COMMIT failed and certainly did not happen. So it must not keep
            anything from one call to the next. It may raise ``RollbackAndDiagnose``.
        :raises ConcurrentProviderUpdate: there was a conflict each time, ``max_transaction_retries`` times in addition
            to the first. For ``RetryTransaction``, the error that it was given.
        :raises CommitUnknown: COMMIT failed, and the change log does not show whether the transaction was committed.
        :raises DatabaseUnavailable: the database cannot be reached, the connection broke, or the server cancelled a
            statement. Nothing was committed, unless it is ``CommitUnknown``.
        :raises MissingLogEntry: ``work`` changed a table that searches read, and recorded nothing. Nothing is
            committed.
        """

        attempts = 0

        def attempt() -> T:
            nonlocal attempts
            attempts += 1
            try:
                return self._retry_stale_connection(work)
            except Exception as error:
                if not (isinstance(error, db_exc.RetryRequest) or errors.is_conflict(error)):
                    raise
                self.metrics.transaction_retried(type(error).__name__)
                if attempts > self._options.max_transaction_retries:
                    # Here, because oslo.db logs a traceback when the retries are used up.
                    raise _exhausted(error) from error
                raise

        retrying = oslo_db_api.wrap_db_retry(
            retry_interval=_MIN_RETRY_DELAY_SECONDS,
            max_retry_interval=_MAX_RETRY_DELAY_SECONDS,
            max_retries=self._options.max_transaction_retries,
            jitter=True,
            exception_checker=errors.is_conflict,
        )
        result: T = retrying(attempt)()
        return result

    def _retry_stale_connection(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._diagnose_rollback(work)
        except StaleConnection:
            # SQLAlchemy has dropped all connections of the pool, so the next one is new.
            return self._diagnose_rollback(work)

    def _diagnose_rollback(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._transaction(work)
        except RollbackAndDiagnose as rollback:
            with self.reader() as tx:
                raise rollback.explain(tx) from None

    def _transaction(self, work: Callable[[sa.Connection], T]) -> T:
        """One attempt: run ``work``, append to the change log if the last batch did not, and commit."""
        try:
            with self._slots.lease() as slot, self._writer() as tx:
                pending = change_log.attach(tx, slot)
                try:
                    result = work(tx)
                except Exception as error:
                    if errors.is_disconnect(error) and not pending.answered:
                        raise StaleConnection from error
                    raise
                pending.check()
                if not pending.appended:
                    batch.StatementBatch(tx).execute_final()
                slot.committing = True
        except change_log_slots.CommitFailed as failed:
            outcome = self._slots.settle(failed.slot)
            if outcome is Outcome.UNKNOWN:
                raise CommitUnknown from failed.__cause__
            if outcome is Outcome.NOT_COMMITTED:
                raise RetryTransaction from failed.__cause__
        return result

    def sync(self) -> None:
        """Upgrade the schema to the newest version and insert the standard names that are missing. Idempotent.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        from placement.db import migration, seed

        # The lock that keeps other processes out (``migration.locked``) is effective on one node of a cluster only.
        retrying = oslo_db_api.wrap_db_retry(
            retry_interval=0.2,
            max_retry_interval=1,
            max_retries=_MAX_SYNC_RETRIES,
            jitter=True,
            exception_checker=errors.is_concurrent_change_of_schema,
        )
        with _translated_errors():
            retrying(migration.sync)(self.engine)
        with self.reader() as tx:
            complete = seed.are_complete(tx)
        # A write would take a slot of the change log at every start.
        if not complete:
            self.write(_insert_standards)

    def schema_version(self) -> str | None:
        """Return the version of the schema; None if the database was not made or adopted by this service."""
        from placement.db import migration

        with _translated_errors():
            return migration.version(self.engine)

    def check_schema(self) -> None:
        """Make sure that the schema is the one that this code was written for.

        :raises WrongSchema: it is not.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        from placement.db import migration

        with _translated_errors():
            migration.check(self.engine)

    def foreign_tables(self) -> list[str]:
        """Return the names of the tables that only a database of another Placement service has."""
        with _translated_errors(), self.engine.connect() as connection:
            return sorted(tables.FOREIGN & set(sa.inspect(connection).get_table_names()))

    def stamp(self, revision: str) -> None:
        """Record ``revision`` as the version of the schema, changing nothing else.

        :raises UnknownRevision: there is no such version.
        :raises ForeignSchema: the tables are those of another Placement service.
        """
        from placement.db import migration

        with _translated_errors():
            migration.stamp(self.engine, revision)

    def dispose(self) -> None:
        """Free the slots of the change log, and close all pooled connections."""
        self._slots.release()
        self._engine.dispose()


def _insert_standards(tx: sa.Connection) -> None:
    from placement.db import seed

    change_log.record_names(tx)
    seed.insert_missing(tx)


@contextlib.contextmanager
def _ending(connection: sa.Connection, transaction: sa.RootTransaction, metrics: Metrics) -> Iterator[None]:
    """Commit at the end, roll back on an exception.

    A connection whose COMMIT failed is closed, whatever the error, as is one whose ROLLBACK failed
    (``db.connections``). It may still be in its transaction, which the next COMMIT on it would commit; when it is
    closed, the server rolls the transaction back.

    :raises CommitUnknown: COMMIT failed, and its error does not say whether the transaction was committed.
    """
    try:
        yield
    except BaseException:
        transaction.rollback()
        raise
    try:
        with metrics.phase(DATABASE):
            transaction.commit()
    except BaseException as error:
        connection.invalidate()
        if isinstance(error, Exception) and not errors.is_definitely_rolled_back(error):
            raise CommitUnknown from error
        raise


@contextlib.contextmanager
def _translated_errors(*, conflicts: bool = False) -> Iterator[None]:
    """Raise ``DatabaseUnavailable`` for an error that means that the database is unavailable or lacks a table.

    Also if the server cancelled a statement.

    :param conflicts: also for a conflict with another transaction, which otherwise has the transaction retried.
    """
    try:
        yield
    except Exception as error:
        is_conflict = errors.is_conflict(error)
        if errors.is_unavailable(error) or (conflicts if is_conflict else errors.is_cancelled(error)):
            raise exception.DatabaseUnavailable from error
        if errors.is_missing_table(error):
            raise SchemaMissing from error
        raise


def _exhausted(error: Exception) -> Exception:
    """Return what the caller sees of the conflict in the last attempt of a transaction."""
    if isinstance(error, db_exc.RetryRequest):
        return error.inner_exc
    if errors.is_cancelled(error):
        return exception.DatabaseUnavailable()
    return exception.ConcurrentProviderUpdate()
