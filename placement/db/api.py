"""One configured database: engine, transactions with retry, and the caches that belong to it.

A request's writes are one transaction. When a concurrent transaction is in the way, the whole of it, COMMIT
included, is run again from fresh reads, a bounded number of times (doc/architecture.md#the-life-of-a-claim).
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

#: Seconds of the first pause between two attempts, and of the longest. Jittered in between.
_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.25
#: How often, about once a second, to look whether another node of a cluster is done changing the schema.
_SYNC_RETRIES = 60

#: What the pool of the connections for transactions is called in the metrics.
_POOL = 'transactions'

#: Options of [placement_database] that oslo.db's engine takes under the same name; the second for pooled connections.
_ENGINE_OPTIONS = ('connection_recycle_time', 'connection_debug', 'mysql_sql_mode', 'mysql_wsrep_sync_wait')
_POOL_OPTIONS = ('max_pool_size', 'max_overflow', 'pool_timeout')


class TryAgain(db_exc.RetryRequest):
    """Raised inside ``Database.write`` to have the whole transaction tried again from fresh reads.

    :param verdict: what the caller gets when that never helps.
    """

    def __init__(self, verdict: exception.PlacementError | None = None) -> None:
        super().__init__(verdict or exception.ConcurrentProviderUpdate())


class Dead(exception.DatabaseUnavailable):
    """The connection turned out to be dead at the first statement of a transaction: nothing has happened."""


class NoTables(exception.DatabaseUnavailable):
    """A table of the service is not in the database, which may have been given back to another deployment."""

    @property
    def for_operators(self) -> str:
        """Which table it is."""
        reason = str(self.__cause__ or '').partition('\n')[0]
        return f'A table of the service is not in the database: {reason}'


class Undo(Exception):
    """Raised inside ``Database.write`` to have the transaction rolled back, and the reason found out after that.

    :param explain: takes a connection that sees one state of the database, in which nothing of the transaction is
        left, and returns what is raised in the end (or ``TryAgain``).
    """

    def __init__(self, explain: Callable[[sa.Connection], Exception]) -> None:
        super().__init__()
        self.explain = explain


class Database:
    """Connections and transactions of one application.

    :param conf: a ``ConfigOpts`` with the group ``placement_database``.
    :raises ConfigurationInvalid: its ``connection`` is missing, or is a URL that no attempt to connect could make good.

    Nothing connects before the first transaction, so a database that is away does not stop the start.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._options = conf.placement_database
        self._facade = enginefacade.transaction_context()
        connection_url = url.engine_url(self._options)
        # oslo.db opens a SQLite file anew for each transaction.
        passed_on = (
            _ENGINE_OPTIONS if connection_url.get_backend_name() == 'sqlite' else _ENGINE_OPTIONS + _POOL_OPTIONS
        )
        self._facade.configure(
            connection=connection_url,
            sqlite_fk=True,
            # Whoever waits for the database is the caller, who is told 503 at once; waiting here would hang it.
            max_retries=0,
            thread_checkin=False,
            **{name: self._options[name] for name in passed_on},
        )
        #: What counts the retries, the claims and the searches of this application; nothing unless configured.
        self.metrics = observability.create(conf)
        self._asker = asking.Asker(connection_url, self._options, self.metrics)
        event.listen(self._asker.engine, 'do_connect', _connect)
        self._lock = threading.Lock()
        self._prepared: sa.Engine | None = None
        #: The process that the connections of that engine belong to.
        self._pid = os.getpid()
        self._keeper: sqlite.Keeper | None = None
        self._log_writers = writers.Writers(self._tested_writer)
        self._housekeeper = retention.Housekeeper(self._tested_writer)
        self.resource_classes = name_cache.NameCache(tables.resource_classes, exception.ResourceClassNotFound)
        self.traits = name_cache.NameCache(tables.traits, exception.TraitNotFound)
        self.aggregates = name_cache.Heard()

    @property
    def engine(self) -> sa.Engine:
        """The SQLAlchemy engine, made on first use."""
        if self._prepared is None:
            with self._lock:
                if self._prepared is None:
                    self._prepared = self._prepare()
                    self._pid = os.getpid()
        elif self._pid != os.getpid():
            # Connections inherited through a fork belong to the parent. oslo.db would ask them whether they are alive
            # before it notices.
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
        """Run one statement that only reads, in one round trip, and return its rows.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _speaking_of_outages():
            return self._asker.all(statement, parameters or {})

    @contextlib.contextmanager
    def reader(self) -> Iterator[sa.Connection]:
        """A connection in a transaction that only reads and sees one state of the database throughout.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        # Sent as a statement, so that a dead connection is noticed before anything relies on it.
        with _speaking_of_outages(), self._tested('SET TRANSACTION ISOLATION LEVEL REPEATABLE READ') as connection:
            yield connection

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sa.Connection]:
        """A connection in a transaction that may write; committed at the end, rolled back on an exception.

        Each statement sees what is committed when it runs, whatever the server's default is. No write of ours relies on
        an older view (conditional updates and compare-and-swaps decide), and at the stricter levels waiting for a
        row ends in a conflict instead of in that row.

        Whether the connection is alive shows at the first statement only.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _speaking_of_outages(), self._connection() as connection:
            connection.execution_options(**{sqlite.WRITES: True})
            with _ending(connection, connection.begin(), self.metrics):
                yield connection

    @contextlib.contextmanager
    def _tested_writer(self) -> Iterator[sa.Connection]:
        """As ``_writer``, for those who cannot begin again: on a connection that is alive.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        with _speaking_of_outages(), self._tested('SELECT 1', **{sqlite.WRITES: True}) as connection:
            yield connection

    @contextlib.contextmanager
    def _tested(self, first: str, **options: Any) -> Iterator[sa.Connection]:
        """A transaction whose first statement is ``first``, on a new connection if need be. On SQLite without that."""
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
        """Run ``work`` in a transaction and return what it returns. There is no other way to write.

        :param work: takes the connection, and notes what it changes (``placement.db.changes``). It is called again, in
            a new transaction, when a concurrent one was in the way (``error_kinds.is_conflict``) or when it raises
            ``TryAgain``, so it must read all it relies on. It may raise ``Undo``.
        :raises ConcurrentProviderUpdate: conflicts outlasted ``[placement_database] transaction_retries``.
        :raises DatabaseUnavailable: the database cannot be reached.
        :raises Unlogged: ``work`` changed what is mirrored and noted nothing. Nothing is committed.
        """

        def attempt() -> T:
            try:
                return self._alive(work)
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

    def _alive(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._explained(work)
        except Dead:
            # The whole pool is taken for dead now, so the next connection is a new one.
            return self._explained(work)

    def _explained(self, work: Callable[[sa.Connection], T]) -> T:
        try:
            return self._logged(work)
        except Undo as undo:
            with self.reader() as tx:
                raise undo.explain(tx) from None

    def _logged(self, work: Callable[[sa.Connection], T]) -> T:
        """One transaction, with what it noted as its last statement."""
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

        :param attended: a person takes care that no process of an earlier release runs where none may run.
        :param others_are_stopped: that person says so, whatever other connections there are.
        :raises StopOthers: processes of an earlier release may still run, and would do harm.
        """
        from placement.db import migration, standards

        others = migration.Others.LOOK if attended else migration.Others.UNKNOWN
        others = migration.Others.STOPPED if others_are_stopped else others
        # Only on a cluster can another node be in the way: the lock that keeps processes apart is each node's own.
        patient = oslo_db_api.wrap_db_retry(
            retry_interval=0.2,
            max_retry_interval=1,
            max_retries=_SYNC_RETRIES,
            jitter=True,
            exception_checker=error_kinds.is_concurrent_change_of_schema,
        )
        with _speaking_of_outages():
            patient(migration.sync)(self.engine, others=others)
        with self.reader() as tx:
            complete = standards.are_complete(tx)
        # No write on every start: each would leave a row of a writer that never comes back.
        if not complete:
            self.write(_insert_standards)

    def schema_version(self) -> str | None:
        """The version of the schema, None where there is none of ours."""
        from placement.db import migration

        with _speaking_of_outages():
            return migration.version(self.engine)

    def check_schema(self) -> None:
        """Make sure that the schema is the one that this code was written for.

        :raises WrongSchema: it is not.
        """
        from placement.db import migration

        with _speaking_of_outages():
            migration.check(self.engine)

    def foreign_tables(self) -> list[str]:
        """The tables that only another deployment of such a service has."""
        with _speaking_of_outages(), self.engine.connect() as connection:
            return sorted(tables.FOREIGN & set(sa.inspect(connection).get_table_names()))

    def stamp(self, revision: str) -> None:
        """Declare the version of the schema, changing nothing else.

        :raises UnknownRevision: there is no such version.
        """
        from placement.db import migration

        with _speaking_of_outages():
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
    """Connect as SQLAlchemy does. Whatever fails in it, from a wrong password to an unknown option, is an outage."""
    try:
        return dialect.connect(*arguments, **options)
    except Exception as error:
        raise exception.DatabaseUnavailable from error


def _spare_round_trips(engine: sa.Engine) -> None:
    """Let each connection have the isolation level of writers from the start, and nothing be sent when it is passed on.

    It need not be tested before each use: the first statement of a transaction tells. Nor be reset afterwards: all of
    ours end their transactions. oslo.db has no options for either.
    """
    engine.pool._pre_ping = False  # noqa: SLF001
    engine.pool._reset_on_return = sa.pool.reset_none  # noqa: SLF001

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        engine.dialect.set_isolation_level(dbapi_connection, 'READ COMMITTED')


@contextlib.contextmanager
def _ending(connection: sa.Connection, transaction: sa.RootTransaction, metrics: Metrics) -> Iterator[None]:
    """Commit at the end, roll back on an exception.

    Connections are given back as they are. So one whose COMMIT failed, which may still be in its transaction, is
    closed, unless the server said that a conflict was the reason: then the transaction is over.
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
def _speaking_of_outages() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if error_kinds.is_away(error):
            raise exception.DatabaseUnavailable from error
        if error_kinds.lacks_a_table(error):
            raise NoTables from error
        raise
