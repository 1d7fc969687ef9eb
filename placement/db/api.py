"""One configured database: engine, transactions with retries, and the caches that belong to it.

What a request writes is one transaction. When a concurrent transaction gets in its way, at COMMIT too, the whole
transaction is rolled back and run again from its first read, a bounded number of times. ``placement.claims.claim``
shows that for a claim, statement by statement.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import enginefacade
from sqlalchemy import event

from placement import exception, observability
from placement.db import asking, changes, error_kinds, name_cache, retention, sqlite, tables, together, url, writers
from placement.observability.metrics import Metrics
from placement.observability.spending import DATABASE

T = TypeVar('T')

#: Seconds between the first two attempts, and the longest pause. Those in between grow, and are random.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25
#: How often a change of the schema is tried again while another node of a cluster changes it: about once a second.
_SYNC_RETRIES = 60

#: The name of the pool of connections for transactions in the metrics.
_POOL = 'transactions'

#: Options of [placement_database] that oslo.db takes under the same name. The second group is for a pool, which oslo.db
#: does not use for SQLite.
_ENGINE_OPTIONS = ('connection_recycle_time', 'connection_debug', 'mysql_sql_mode', 'mysql_wsrep_sync_wait')
_POOL_OPTIONS = ('max_pool_size', 'max_overflow', 'pool_timeout')


class TryAgain(db_exc.RetryRequest):
    """Raised by the ``work`` of ``Database.write`` to have the transaction rolled back and run again.

    :param error: what ``Database.write`` raises when the retries are used up; ``ConcurrentProviderUpdate`` by default.
    """

    def __init__(self, error: exception.PlacementError | None = None) -> None:
        super().__init__(error or exception.ConcurrentProviderUpdate())


class Dead(exception.DatabaseUnavailable):
    """The connection broke before the database answered the first statement of a transaction: nothing was written."""


class NoTables(exception.DatabaseUnavailable):
    """A table of the service is not in the database, for example after ``placement-manage db leave``."""

    @property
    def for_operators(self) -> str:
        """The text for the log: which table it is."""
        reason = str(self.__cause__ or '').partition('\n')[0]
        return f'A table of the service is not in the database: {reason}'


class Undo(Exception):
    """Raised by the ``work`` of ``Database.write`` to have the transaction rolled back, and only then find out why.

    :param explain: called after the rollback with a connection of ``Database.reader``; returns the exception to raise,
        which may be ``TryAgain``.
    """

    def __init__(self, explain: Callable[[sa.Connection], Exception]) -> None:
        super().__init__()
        self.explain = explain


class Database:
    """Connections and transactions of one application.

    :param conf: a ``ConfigOpts`` with the group ``placement_database``.
    :raises ConfigurationInvalid: ``connection`` is missing, or is a URL that can never work (``url.engine_url``).

    Nothing connects before the first statement, so the service starts even while the database is away.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._options = conf.placement_database
        self._facade = enginefacade.transaction_context()
        connection_url = url.engine_url(self._options)
        passed_on = (
            _ENGINE_OPTIONS if connection_url.get_backend_name() == 'sqlite' else _ENGINE_OPTIONS + _POOL_OPTIONS
        )
        self._facade.configure(
            connection=connection_url,
            sqlite_fk=True,
            # Connecting is not tried again: the caller gets 503 at once, and may retry.
            max_retries=0,
            thread_checkin=False,
            **{name: self._options[name] for name in passed_on},
        )
        #: Counts retries, claims and searches; does nothing unless metrics are configured.
        self.metrics = observability.create(conf)
        self._asker = asking.Asker(connection_url, self._options, self.metrics)
        event.listen(self._asker.engine, 'do_connect', _connect)
        self._lock = threading.Lock()
        self._prepared: sa.Engine | None = None
        #: The process that the connections of ``_prepared`` belong to.
        self._pid = os.getpid()
        self._keeper: sqlite.Keeper | None = None
        self._log_writers = writers.Writers(self._tested_writer)
        self._housekeeper = retention.Housekeeper(self._tested_writer)
        self.resource_classes = name_cache.NameCache(tables.resource_classes, exception.ResourceClassNotFound)
        self.traits = name_cache.NameCache(tables.traits, exception.TraitNotFound)
        self.aggregates = name_cache.KnownAggregates()

    @property
    def engine(self) -> sa.Engine:
        """The SQLAlchemy engine, made on first use."""
        if self._prepared is None:
            with self._lock:
                if self._prepared is None:
                    self._prepared = self._prepare()
                    self._pid = os.getpid()
        elif self._pid != os.getpid():
            # Connections inherited through a fork belong to the parent, so they are dropped without closing them.
            # oslo.db drops them too, but sends something on them before.
            self._prepared.dispose(close=False)
            self._pid = os.getpid()
        return self._prepared

    def _prepare(self) -> sa.Engine:
        engine = self._facade.writer.get_engine()
        event.listen(engine, 'do_connect', _connect)
        changes.observe(engine)
        together.prepare(engine)
        self.metrics.watch(_POOL, engine, self._options.max_pool_size + self._options.max_overflow)
        if engine.dialect.name == 'sqlite':
            self._keeper = sqlite.prepare(engine, self._options.sqlite_busy_timeout)
        else:
            _spare_round_trips(engine)
        return engine

    @property
    def asking_engine(self) -> sa.Engine:
        """The engine that ``ask`` uses."""
        return self._asker.engine

    def ask(self, statement: sa.Executable, parameters: Mapping[str, Any] | None = None) -> Sequence[sa.Row[Any]]:
        """Run one statement that only reads, in one round trip without a transaction, and return its rows.

        :param parameters: values of the statement's bind parameters, by name.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _errors_of_the_database():
            return self._asker.all(statement, parameters or {})

    @contextlib.contextmanager
    def reader(self) -> Iterator[sa.Connection]:
        """A connection in a transaction that only reads, and sees one state of the database throughout.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        # The statement that sets the isolation level also shows whether the connection is alive.
        with _errors_of_the_database(), self._tested('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ') as connection:
            yield connection

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sa.Connection]:
        """A connection in a transaction that may write; committed at the end, rolled back on an exception.

        The isolation level is READ COMMITTED, whatever the server's default is. That is enough, because the row counts
        of conditional UPDATE and DELETE statements decide. At the stricter levels a transaction that waited for a row
        lock would then fail instead of going on with the row.

        The connection is not tested: a dead one shows at the first statement.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _errors_of_the_database(), self._connection() as connection:
            connection.execution_options(**{sqlite.WRITES: True})
            with _ending(connection, connection.begin(), self.metrics):
                yield connection

    @contextlib.contextmanager
    def _tested_writer(self) -> Iterator[sa.Connection]:
        """As ``_writer``, on a connection that was tested: for callers that would not begin again on a new one.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _errors_of_the_database(), self._tested('SELECT 1', **{sqlite.WRITES: True}) as connection:
            yield connection

    @contextlib.contextmanager
    def _tested(self, first: str, **options: Any) -> Iterator[sa.Connection]:
        """A transaction that begins with the statement ``first``. If the connection is dead, it is replaced once.

        On SQLite, which has no connections that die, nothing is sent.
        """
        with contextlib.ExitStack() as stack:
            for again in (True, False):
                connection = stack.enter_context(self._connection())
                connection.execution_options(**options)
                transaction = connection.begin()
                try:
                    if connection.dialect.name != 'sqlite':
                        connection.exec_driver_sql(first)
                    break
                except Exception as error:
                    if not (again and error_kinds.is_lost(error)):
                        raise
                    connection.close()
            with _ending(connection, transaction, self.metrics):
                yield connection

    def _connection(self) -> sa.Connection:
        engine = self.engine
        with self.metrics.connecting(_POOL):
            return engine.connect()

    def write(self, work: Callable[[sa.Connection], T]) -> T:
        """Run ``work`` in a transaction, commit, and return what ``work`` returned.

        Everything is written this way but the schema (``migration.locked``) and the upkeep of the log of changes.

        :param work: takes the connection, and notes what it changes (``placement.db.changes``). It is called again, in
            a new transaction, after a conflict with another transaction (``error_kinds.is_conflict``) or when it raised
            ``TryAgain``. So it must not keep anything from one call to the next. It may raise ``Undo``.
        :raises ConcurrentProviderUpdate: there was a conflict each time, ``[placement_database] transaction_retries``
            times in addition to the first. For ``TryAgain``, the error that it was given.
        :raises DatabaseUnavailable: the database cannot be reached, or the connection broke; then nobody knows whether
            the transaction was committed.
        :raises Unlogged: ``work`` changed a table that is mirrored and noted nothing. Nothing is committed.
        """

        def attempt() -> T:
            try:
                return self._on_live_connection(work)
            except Exception as error:
                if isinstance(error, db_exc.RetryRequest) or error_kinds.is_conflict(error):
                    self.metrics.retried(type(error).__name__)
                raise

        retrying = oslo_db_api.wrap_db_retry(
            retry_interval=_FIRST_PAUSE,
            max_retry_interval=_LONGEST_PAUSE,
            max_retries=self._options.transaction_retries,
            jitter=True,
            exception_checker=error_kinds.is_conflict,
        )
        try:
            result: T = retrying(attempt)()
        except Exception as error:
            if error_kinds.is_conflict(error):
                raise exception.ConcurrentProviderUpdate from error
            raise
        return result

    def _on_live_connection(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._explaining_undo(work)
        except Dead:
            # SQLAlchemy has dropped all connections of the pool, so the next one is new.
            return self._explaining_undo(work)

    def _explaining_undo(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._transaction(work)
        except Undo as undo:
            with self.reader() as tx:
                raise undo.explain(tx) from None

    def _transaction(self, work: Callable[[sa.Connection], T]) -> T:
        """One attempt: run ``work``, insert its entry of the log unless ``Together.run_last`` did, and commit."""
        with self._log_writers.lend() as writer, self._writer() as tx:
            notes = changes.attach(tx, writer)
            try:
                result = work(tx)
            except Exception as error:
                if error_kinds.is_lost(error) and not notes.answered:
                    raise Dead from error
                raise
            notes.check()
            if notes.noted and not notes.entered:
                writer.enter(tx, notes.noted)
        self._housekeeper.pass_by()
        return result

    def sync(self, *, attended: bool = False, others_are_stopped: bool = False) -> None:
        """Bring the schema to the newest version and insert the standard names that are missing. Idempotent.

        :param attended: a person runs this, not a process that starts. Only then are upgrades made that need all
            processes of an earlier release to be stopped.
        :param others_are_stopped: do not check for other connections before such an upgrade.
        :raises StopOthers: such an upgrade is due, and was not allowed or there are other connections.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        from placement.db import migration, standards

        others = migration.Others.LOOK if attended else migration.Others.UNKNOWN
        others = migration.Others.STOPPED if others_are_stopped else others
        # The lock that keeps other processes out (``migration.locked``) holds on one node of a cluster only.
        retrying = oslo_db_api.wrap_db_retry(
            retry_interval=0.2,
            max_retry_interval=1,
            max_retries=_SYNC_RETRIES,
            jitter=True,
            exception_checker=error_kinds.is_concurrent_change_of_schema,
        )
        with _errors_of_the_database():
            retrying(migration.sync)(self.engine, others=others)
        with self.reader() as tx:
            complete = standards.are_complete(tx)
        # A write would insert a new writer into the log at every start.
        if not complete:
            self.write(_insert_standards)

    def schema_version(self) -> str | None:
        """The version of the schema; None if the database was not made or adopted by this service."""
        from placement.db import migration

        with _errors_of_the_database():
            return migration.version(self.engine)

    def check_schema(self) -> None:
        """Make sure that the schema is the one that this code was written for.

        :raises WrongSchema: it is not.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        from placement.db import migration

        with _errors_of_the_database():
            migration.check(self.engine)

    def foreign_tables(self) -> list[str]:
        """The names of the tables that only a database of another Placement service has."""
        with _errors_of_the_database(), self.engine.connect() as connection:
            return sorted(tables.FOREIGN & set(sa.inspect(connection).get_table_names()))

    def stamp(self, revision: str) -> None:
        """Record ``revision`` as the version of the schema, changing nothing else.

        :raises UnknownRevision: there is no such version.
        :raises ForeignSchema: the tables are those of another Placement service.
        """
        from placement.db import migration

        with _errors_of_the_database():
            migration.stamp(self.engine, revision)

    def dispose(self) -> None:
        """Close all pooled connections."""
        self._asker.engine.dispose()
        if self._prepared is not None:
            self._prepared.dispose()
        if self._keeper is not None:
            self._keeper.close()


def _insert_standards(tx: sa.Connection) -> None:
    from placement.db import standards

    changes.names(tx)
    standards.insert_missing(tx)


def _connect(dialect: sa.Dialect, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    """Connect as SQLAlchemy does. Every failure, also a wrong password or an unknown option, is an outage (503)."""
    try:
        return dialect.connect(*arguments, **options)
    except Exception as error:
        raise exception.DatabaseUnavailable from error


def _spare_round_trips(engine: sa.Engine) -> None:
    """Set READ COMMITTED once for each connection, and send nothing when one is taken from the pool or given back.

    A test before use is not needed: the first statement of a transaction shows whether the connection is alive. Neither
    is a reset after use: every transaction of ours is ended. oslo.db has options for neither.
    """
    engine.pool._pre_ping = False  # noqa: SLF001
    engine.pool._reset_on_return = sa.pool.reset_none  # noqa: SLF001

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        engine.dialect.set_isolation_level(dbapi_connection, 'READ COMMITTED')


@contextlib.contextmanager
def _ending(connection: sa.Connection, transaction: sa.RootTransaction, metrics: Metrics) -> Iterator[None]:
    """Commit at the end, roll back on an exception.

    A connection whose COMMIT failed is closed, because it may still be in its transaction and the pool does not reset
    connections. After a conflict it is kept: the server has rolled the transaction back.
    """
    try:
        yield
    except BaseException:
        transaction.rollback()
        raise
    try:
        with metrics.spending(DATABASE):
            transaction.commit()
    except BaseException as error:
        if not error_kinds.is_conflict(error):
            connection.invalidate()
        raise


@contextlib.contextmanager
def _errors_of_the_database() -> Iterator[None]:
    """Raise ``DatabaseUnavailable`` for errors that mean that the database is away or lacks a table."""
    try:
        yield
    except Exception as error:
        if error_kinds.is_away(error):
            raise exception.DatabaseUnavailable from error
        if error_kinds.lacks_a_table(error):
            raise NoTables from error
        raise
