"""One pool of connections, which are all in the driver's autocommit mode; transactions begin explicitly.

So a single statement that only reads takes one round trip, on the same connections that transactions use. On MySQL and
MariaDB the BEGIN of a transaction is sent together with its first statement.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from oslo_db.sqlalchemy import exc_filters
from oslo_log import log
from sqlalchemy import event

from placement import exception
from placement.db import sql, sqlite

LOG = log.getLogger(__name__)

#: Execution option of a connection: how its next transaction begins. By default as ``WRITE``, but on SQLite without the
#: write lock.
BEGIN = 'placement_begin'
#: Values of that option. No transaction: each statement is one by itself.
AUTOCOMMIT = 'autocommit'
#: READ COMMITTED, on SQLite with the write lock. On MySQL BEGIN is sent with the first statement.
WRITE = 'write'
#: The same, but BEGIN is sent immediately on all databases, so that a stale connection is detected.
WRITE_TESTED = 'write tested'
#: One state of the database throughout. BEGIN is sent immediately.
SNAPSHOT = 'snapshot'

#: Key of ``Connection.info``: whether the server is a node of a Galera cluster.
GALERA = 'placement_galera'
#: Key of ``Connection.info``: BEGIN is pending: it is sent together with the next statement.
_PENDING_BEGIN = 'placement_pending_begin'

_BEGIN_READ_COMMITTED = 'BEGIN ISOLATION LEVEL READ COMMITTED'
_POSTGRESQL = {SNAPSHOT: 'BEGIN ISOLATION LEVEL REPEATABLE READ'}
_MYSQL = {WRITE_TESTED: 'BEGIN', SNAPSHOT: 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN'}
_SQLITE = {WRITE: 'BEGIN IMMEDIATE', WRITE_TESTED: 'BEGIN IMMEDIATE'}


def create_engine(url: sa.URL, options: Any) -> sa.Engine:
    """Make the engine of a database. Nothing connects yet.

    :param url: from ``placement.db.url.engine_url``.
    :param options: the group ``placement_database``.
    """
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == 'sqlite':
        arguments['connect_args'] = {'timeout': options.sqlite_busy_timeout, 'check_same_thread': False}
    engine = sa.create_engine(
        url,
        poolclass=sa.QueuePool,
        isolation_level='AUTOCOMMIT',
        # ``_roll_back`` does it. A connection in autocommit is not rolled back when it is returned to the pool, which
        # would take a round trip; nor is it tested when it is taken: its first statement shows whether it is open.
        skip_autocommit_rollback=True,
        pool_reset_on_return=None,
        pool_size=options.max_pool_size,
        max_overflow=options.max_overflow,
        pool_timeout=options.pool_timeout,
        pool_recycle=options.connection_recycle_time,
        **arguments,
    )
    exc_filters.register_engine(engine)
    event.listen(engine, 'do_connect', _connect)
    if sql.is_mysql(engine.dialect):
        _set_up_mysql(engine, options)
    elif engine.dialect.name == 'sqlite':
        sqlite.prepare(engine, options.sqlite_busy_timeout)
    event.listen(engine, 'begin', _begin)
    event.listen(engine, 'commit', lambda connection: connection.info.pop(_PENDING_BEGIN, None))
    event.listen(engine, 'rollback', _roll_back)
    return engine


def _connect(dialect: sa.Dialect, _record: Any, arguments: list[Any], options: dict[str, Any]) -> Any:
    """Connect as SQLAlchemy does. Every failure, also a wrong password or an unknown option, is answered with 503."""
    try:
        return dialect.connect(*arguments, **options)
    except Exception as error:
        raise exception.DatabaseUnavailable from error


def _set_up_mysql(engine: sa.Engine, options: Any) -> None:
    # ``init_command`` may have changed the character set. The driver escapes text for utf8mb4.
    # In TRADITIONAL mode the server rejects values that do not fit, instead of truncating them.
    texts = [
        'SET NAMES utf8mb4',
        'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED',
        f"SET SESSION sql_mode = 'TRADITIONAL', SESSION group_concat_max_len = {sql.MAX_JOINED_BYTES}",
    ]
    if options.mysql_wsrep_sync_wait is not None:
        texts.append(f'SET SESSION wsrep_sync_wait = {int(options.mysql_wsrep_sync_wait)}')

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, record: Any) -> None:
        try:
            cursor = dbapi_connection.cursor()
            for text in texts:
                cursor.execute(text)
            cursor.execute("SHOW VARIABLES LIKE 'wsrep_on'")
            record.info[GALERA] = cursor.fetchone() == ('wsrep_on', 'ON')
            cursor.close()
        except Exception as error:
            raise exception.DatabaseUnavailable from error

    event.listen(engine, 'do_executemany', _begin_before)
    event.listen(engine, 'do_execute_no_params', _begin_before)


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction. If that fails, the connection is closed, because its state is unknown."""
    kind: str = connection.get_execution_options().get(BEGIN, '')
    if kind == AUTOCOMMIT:
        return
    dialect = connection.dialect
    if sql.is_mysql(dialect) and kind not in _MYSQL:
        connection.info[_PENDING_BEGIN] = True
        return
    try:
        if dialect.name == 'postgresql':
            connection.exec_driver_sql(_POSTGRESQL.get(kind, _BEGIN_READ_COMMITTED))
        elif dialect.name == 'sqlite':
            connection.exec_driver_sql(_SQLITE.get(kind, 'BEGIN'))
        else:
            connection.exec_driver_sql(_MYSQL[kind])
    except BaseException:
        connection.invalidate()
        raise


def _roll_back(connection: sa.Connection) -> None:
    """Roll back. If that fails, the connection is closed, so that the server rolls back."""
    if connection.invalidated or connection.get_execution_options().get(BEGIN) == AUTOCOMMIT:
        return
    # After this nothing was sent.
    if connection.info.pop(_PENDING_BEGIN, False):
        return
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.rollback()
    except Exception as error:
        connection.invalidate()
        reason = str(error).partition('\n')[0]
        LOG.warning('A connection to the database was closed because ROLLBACK failed: %s', reason)


def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> None:
    """Execute ``statement`` on MySQL, together with a pending BEGIN; the result is that of ``statement``."""
    connection: sa.Connection = context.root_connection
    if connection.in_transaction() and connection.info.pop(_PENDING_BEGIN, False):
        cursor.execute(f'BEGIN; {statement}', parameters)
        cursor.nextset()
    else:
        cursor.execute(statement, parameters)


def _begin_before(cursor: Any, *arguments: Any) -> None:
    """Send a pending BEGIN by itself."""
    connection: sa.Connection = arguments[-1].root_connection
    if connection.in_transaction() and connection.info.pop(_PENDING_BEGIN, False):
        cursor.execute('BEGIN')
