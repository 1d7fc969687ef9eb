"""Checks and completes the URL of the database, and makes its pool of connections.

All connections are in the driver's autocommit mode; transactions begin explicitly. So a single statement that only
reads takes one round trip, on the same connections that transactions use. On MySQL and MariaDB the first statement of a
``WRITE`` transaction is sent together with BEGIN.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import inspect
import logging
import re
import sqlite3
import time
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib import parse

import sqlalchemy as sa
from oslo_db.sqlalchemy import exc_filters
from oslo_log import log
from sqlalchemy import event
from sqlalchemy import exc as sa_exc
from sqlalchemy.engine import default

from placement import exception
from placement.db import errors, sql

LOG = log.getLogger(__name__)

#: Execution option of a connection: the ``Mode`` of its next transaction; by default ``DEFERRED``.
MODE = 'placement_mode'


class Mode(enum.Enum):
    """How a transaction begins."""

    #: There is none: each statement is its own transaction.
    AUTOCOMMIT = enum.auto()
    #: READ COMMITTED. MySQL gets BEGIN with the first statement. SQLite takes the write lock with the first write.
    DEFERRED = enum.auto()
    #: The same, but SQLite takes the write lock at BEGIN.
    WRITE = enum.auto()
    #: The same, but BEGIN is sent immediately on all databases: it fails if the connection is closed.
    WRITE_EAGER = enum.auto()
    #: The transaction sees one state of the database. BEGIN is sent immediately.
    SNAPSHOT = enum.auto()


#: Execution option of a text with several statements, which only MySQL and MariaDB get: the list to which the row count
#: of each statement is appended.
ROW_COUNTS = 'placement_row_counts'
#: Joins the statements of such a text. None of them contains it, because their values are parameters.
SEPARATOR = '; '

#: Key of ``Connection.info``: whether the server is a node of a Galera cluster.
GALERA = 'placement_galera'
#: Key of ``Connection.info``: BEGIN is pending and will be sent together with the next statement.
_PENDING_BEGIN = 'placement_pending_begin'

#: What begins a transaction, by dialect and mode. On SQLite a transaction that may write takes the write lock when it
#: begins, so that another one waits, up to the busy timeout. If both took the lock at their first write, one of them
#: would fail.
_BEGIN = {
    'sqlite': {Mode.WRITE: 'BEGIN IMMEDIATE', Mode.WRITE_EAGER: 'BEGIN IMMEDIATE'},
    'postgresql': {Mode.SNAPSHOT: 'BEGIN ISOLATION LEVEL REPEATABLE READ'},
    'mysql': {
        Mode.WRITE_EAGER: 'BEGIN',
        Mode.SNAPSHOT: 'SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; BEGIN',
    },
}
#: The same in the other modes. MySQL gets BEGIN with the first statement.
_BEGIN_BY_DEFAULT = {'sqlite': 'BEGIN', 'postgresql': 'BEGIN ISOLATION LEVEL READ COMMITTED'}


class _Backend(NamedTuple):
    """A kind of database: the supported drivers, as URLs name them, and the package of the first driver."""

    drivers: tuple[str, ...]
    package: str


_POSTGRESQL = _Backend(('postgresql+psycopg',), 'psycopg[binary]')
_MYSQL = _Backend(('mysql+pymysql', 'mysql+mysqldb'), 'PyMySQL')
#: The key is the part of the URL before the plus sign. Some programs accept "postgres"; our error says what to write.
_BACKENDS = {
    'postgresql': _POSTGRESQL,
    'postgres': _POSTGRESQL,
    'mysql': _MYSQL,
    'mariadb': _MYSQL,
    'sqlite': _Backend(('sqlite', 'sqlite+pysqlite'), ''),
}
#: Drivers of a URL that are replaced. The release of SQLAlchemy determines which driver "postgresql" means. With
#: "mariadb", oslo.db would not translate the errors of the driver; SQLAlchemy makes the same statements with "mysql".
_SYNONYMS = {
    'postgresql': 'postgresql+psycopg',
    'mariadb': 'mysql+mysqldb',
    'mariadb+mysqldb': 'mysql+mysqldb',
    'mariadb+pymysql': 'mysql+pymysql',
}
#: CLIENT_MULTI_STATEMENTS in MySQL's protocol: the connection may send several statements in one text.
_MULTI_STATEMENTS = 1 << 16
#: The time that a writer waits for other writers of the same SQLite file, unless the URL has another. They take turns
#: of some milliseconds, so a longer wait means that a program holds the lock.
_SQLITE_BUSY_TIMEOUT_SECONDS = 30
#: Parameters of MySQL drivers that the service sets itself: another value would change how text or transactions work.
_OWN_PARAMETERS = ('autocommit', 'conv', 'cursorclass', 'use_unicode')


def engine_url(options: Any, *, time_limits: bool = True) -> sa.URL:
    """Make a URL of [placement_database] ``connection`` and ``connection_parameters``, then check and complete it.

    On MySQL and MariaDB it gets parameters for full Unicode and for several statements in one text. Unless the operator
    has set timeouts, it gets them: otherwise a thread would wait many minutes for a server that no longer responds.

    :param options: the group ``placement_database``.
    :param time_limits: whether to apply ``socket_timeout``.
    :raises ConfigurationInvalid: there is no URL, it is invalid or unsafe, or its driver is not supported or not
        installed.
    """
    url = _parsed(options.connection)
    if options.connection_parameters:
        try:
            # Parse strictly, because otherwise parse_qsl drops malformed parameters, and TLS may depend on them.
            parameters = parse.parse_qsl(options.connection_parameters, strict_parsing=True, keep_blank_values=True)
        except ValueError as error:
            reason = '[placement_database] connection_parameters is not of the form NAME=VALUE&NAME=VALUE.'
            raise exception.ConfigurationInvalid(reason=reason) from error
        url = url.update_query_pairs(parameters)
    _reject_unsafe(url)
    _reject_unsupported(url)
    return _complete(url, options.socket_timeout if time_limits else 0)


def _parsed(text: str | None) -> sa.URL:
    if not text:
        raise exception.ConfigurationInvalid(
            reason='[placement_database] connection is not set (in the environment: OS_PLACEMENT_DATABASE__CONNECTION).'
        )
    try:
        url = sa.make_url(text)
    except ValueError as error:
        # The error does not show the port, which is a part of the password if this has an unquoted @.
        raise _unusable(
            'the port is not a number. Special characters in a password must be percent-encoded.'
        ) from error
    except sa_exc.ArgumentError as error:
        raise _unusable(error) from error
    if url.database and sa.make_url('sqlite:///%20').database == '%20':
        # Until no supported OpenStack release has this SQLAlchemy: 2.0.38 encodes the name, and does not decode it.
        url = url.set(database=parse.unquote(url.database))
    return url.set(drivername=_SYNONYMS.get(url.drivername, url.drivername))


def _reject_unsafe(url: sa.URL) -> None:
    """Reject parameters that change the character set of connections, and ``_OWN_PARAMETERS``.

    PyMySQL and mysqlclient escape text before they encode it. So in character sets such as sjis, gbk or latin1 the
    server may see a quote or a backslash where the driver saw none, and execute a part of a text as SQL.

    :raises ConfigurationInvalid: there is such a parameter.
    """
    name, charset, safe = 'charset', 'utf8mb4', {'utf8mb4', 'utf8', 'utf8mb3'}
    if url.get_backend_name() == 'postgresql':
        name, charset, safe = 'client_encoding', 'utf8', {'utf8', 'utf-8'}
    elif url.get_backend_name() != 'mysql':
        return
    for parameter in _OWN_PARAMETERS if name == 'charset' else ():
        if parameter in url.query:
            raise _unusable(f'the service sets {parameter} itself. Remove it.')
    for value in url.normalized_query.get(name, ()):
        if value.lower() not in safe:
            raise _unusable(f'{name}={value} is not safe: the service connects with {charset}. Remove {name}.')


def _reject_unsupported(url: sa.URL) -> None:
    """Check that the driver is supported and installed and accepts its parameters.

    :raises ConfigurationInvalid: it is not; the message says what to write and what to install.
    """
    backend = _BACKENDS.get(url.drivername.partition('+')[0])
    if backend is None:
        raise _unusable(
            f'{url.drivername}: is not a supported database. Write sqlite:, {_POSTGRESQL.drivers[0]}:'
            f' or {_MYSQL.drivers[0]}:.'
        )
    advice = f"Write {backend.drivers[0]}://... and install its driver: pip install '{backend.package}'"
    if '+' in url.drivername and url.drivername not in backend.drivers:
        raise _unusable(f'{url.drivername}: is not supported. {advice}')
    if url.get_backend_name() == 'sqlite' and not re.fullmatch('[0-9]{1,6}', str(url.query.get('timeout', 0))):
        # SQLite would use zero instead of a negative or a very large number.
        raise _unusable('timeout must be a number of seconds, at most 999999.')
    try:
        for plugin in url.normalized_query.get('plugin', ()):
            sa.dialects.plugins.load(plugin)
    except sa_exc.NoSuchModuleError as error:
        raise _unusable(
            f'the SQLAlchemy plugin {plugin}, which the URL names, is not installed. Install it, or remove'
            f' plugin={plugin}.'
        ) from error
    try:
        # This does not connect, but imports the driver and checks the parameters.
        sa.create_engine(url)
    except (ImportError, sa_exc.NoSuchModuleError) as error:
        raise _unusable(f'the driver of {url.drivername}: is not installed. {advice}') from error
    except (sa_exc.ArgumentError, ValueError) as error:
        raise _unusable(error) from error


def _complete(url: sa.URL, socket_timeout: int) -> sa.URL:
    """Return ``url`` with the parameters that are missing."""
    backend, parameters = url.get_backend_name(), dict[str, str]()
    if backend == 'sqlite':
        return url.update_query_dict({'timeout': str(_SQLITE_BUSY_TIMEOUT_SECONDS), **url.query})
    if backend == 'postgresql':
        defaults = {'connect_timeout': '10', 'client_encoding': 'utf8'}
        timeouts = {'tcp_user_timeout': str(socket_timeout * 1000)}
    else:
        defaults = {'connect_timeout': '10'}
        timeouts = {'read_timeout': str(socket_timeout), 'write_timeout': str(socket_timeout)}
        flags = int(str(url.query.get('client_flag', 0))) | _MULTI_STATEMENTS
        parameters = {'charset': 'utf8mb4', 'client_flag': str(flags)}
    if socket_timeout:
        defaults |= timeouts
    return url.update_query_dict({**defaults, **url.query, **parameters})


def _unusable(reason: object) -> exception.ConfigurationInvalid:
    return exception.ConfigurationInvalid(reason=f'[placement_database] connection cannot be used: {reason}')


def create_engine(options: Any, *, time_limits: bool = True) -> sa.Engine:
    """Make the engine of a database. Nothing connects yet.

    :param options: the group ``placement_database``.
    :param time_limits: whether to apply ``socket_timeout`` and ``lock_wait_timeout``.
    :raises ConfigurationInvalid: as ``engine_url``.
    """
    url = engine_url(options, time_limits=time_limits)
    lock_wait_timeout: int = options.lock_wait_timeout if time_limits else 0
    arguments: dict[str, Any] = {}
    if url.get_backend_name() == 'sqlite':
        arguments['connect_args'] = {
            'check_same_thread': False,
            # By default the driver keeps the last 128 texts, each up to a megabyte. Most contain ids and are not used
            # again. Without any, reads would take a fifth longer.
            'cached_statements': 16,
        }
    if 'skip_autocommit_rollback' in inspect.signature(default.DefaultDialect.__init__).parameters:
        # Until no supported OpenStack release has SQLAlchemy 2.0.42 or older, which sends one ROLLBACK more.
        arguments['skip_autocommit_rollback'] = True
    engine = sa.create_engine(
        url,
        poolclass=sa.QueuePool,
        isolation_level='AUTOCOMMIT',
        # ``_roll_back`` rolls back. To save round trips, a connection in autocommit is neither rolled back when it is
        # returned to the pool, nor tested when it is taken: its first statement shows whether it is open.
        pool_reset_on_return=None,
        pool_size=options.max_pool_size,
        max_overflow=options.max_overflow,
        pool_timeout=options.pool_timeout,
        pool_recycle=options.connection_recycle_time,
        **arguments,
    )

    @event.listens_for(engine, 'handle_error')
    def count_as_disconnect(context: sa.ExceptionContext) -> None:
        # SQLAlchemy then closes this connection, and each other one of the pool before its next use.
        error = context.sqlalchemy_exception
        context.is_disconnect |= error is not None and errors.known_error_of(error).discards_pool

    exc_filters.register_engine(engine)
    # It logs a traceback for each error that it does not know. Callers report these errors themselves, in one line.
    logging.getLogger(exc_filters.__name__).setLevel(logging.CRITICAL)
    event.listen(engine, 'do_connect', functools.partial(_connect, options.socket_timeout if time_limits else 0))
    if sql.is_mysql(engine.dialect):
        _set_up_mysql(engine, options, lock_wait_timeout)
    elif engine.dialect.name == 'postgresql' and lock_wait_timeout:
        _set_up_each(engine, [f"SET lock_timeout = '{lock_wait_timeout}s'"])
    elif engine.dialect.name == 'sqlite':
        event.listen(engine, 'connect', functools.partial(_set_up_sqlite, float(str(url.query['timeout']))))
    event.listen(engine, 'begin', _begin)
    event.listen(engine, 'rollback', _roll_back)
    return engine


def _connect(
    socket_timeout: int, dialect: sa.Dialect, _record: Any, arguments: list[Any], options: dict[str, Any]
) -> Any:
    """Connect as SQLAlchemy does. Make every failure, even a wrong password or an unknown option, a 503."""
    try:
        if dialect.name != 'postgresql':
            return dialect.connect(*arguments, **options)
        from placement.db.postgresql import LimitedConnection

        connection = LimitedConnection.connect(*arguments, **options)
        connection.socket_timeout = socket_timeout
    except Exception as error:
        # PyMySQL does not name a TLS file that it cannot read or use.
        files = ', '.join(f'ssl_{name}={file}' for name, file in options.get('ssl', {}).items())
        cause = OSError(f'{error} ({files})') if files and isinstance(error, OSError) else error
        raise exception.DatabaseUnavailable from cause
    return connection


def _set_up_sqlite(busy_timeout: float, connection: Any, _record: Any) -> None:
    """Set the journal mode, and let the connection check foreign keys.

    In WAL mode readers are not blocked by a writer. When the last connection of all processes is closed, SQLite merges
    the write-ahead log into the database file and deletes it.

    Errors are the driver's own, which stop the start: a file that is not a database will not become one.

    :param busy_timeout: how many seconds a statement waits for a lock.
    """
    deadline = time.monotonic() + busy_timeout
    with contextlib.closing(connection.cursor()) as cursor:
        while True:
            try:
                cursor.execute('PRAGMA journal_mode = WAL')
                break
            except sqlite3.OperationalError as error:
                if not error.sqlite_errorname.startswith('SQLITE_BUSY') or time.monotonic() >= deadline:
                    raise
            # Another program writes to a file in another mode. The PRAGMA does not wait for it, as BEGIN does.
            cursor.execute('BEGIN IMMEDIATE')
            cursor.execute('ROLLBACK')
        cursor.execute('PRAGMA foreign_keys = ON')


def _set_up_mysql(engine: sa.Engine, options: Any, lock_wait_timeout: int) -> None:
    # ``init_command`` may have changed the character set. The driver escapes text for utf8mb4.
    # In TRADITIONAL mode the server rejects values that do not fit, instead of truncating them.
    texts = [
        'SET NAMES utf8mb4',
        'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED',
        f"SET SESSION sql_mode = 'TRADITIONAL', SESSION group_concat_max_len = {sql.MAX_JOINED_BYTES}",
    ]
    if lock_wait_timeout:
        texts.append(f'SET SESSION innodb_lock_wait_timeout = {lock_wait_timeout}')
    if options.mysql_wsrep_sync_wait is not None:
        texts.append(f'SET SESSION wsrep_sync_wait = {int(options.mysql_wsrep_sync_wait)}')
    _set_up_each(engine, [*texts, "SHOW VARIABLES LIKE 'wsrep_on'"])
    event.listen(engine, 'commit', lambda connection: connection.info.pop(_PENDING_BEGIN, None))
    event.listen(engine, 'do_execute', _execute)
    event.listen(engine, 'do_executemany', _begin_before)
    event.listen(engine, 'do_execute_no_params', _begin_before)


def _set_up_each(engine: sa.Engine, texts: Sequence[str]) -> None:
    """Run ``texts`` on each new connection. If the last text returns a row, it says whether the server runs Galera."""

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, record: Any) -> None:
        try:
            with contextlib.closing(dbapi_connection.cursor()) as cursor:
                for text in texts:
                    cursor.execute(text)
                if cursor.description:
                    record.info[GALERA] = cursor.fetchone() == ('wsrep_on', 'ON')
        except Exception as error:
            raise exception.DatabaseUnavailable from error


def _begin(connection: sa.Connection) -> None:
    """Begin a transaction. If that fails, close the connection, because its state is unknown."""
    mode: Mode = connection.get_execution_options().get(MODE, Mode.DEFERRED)
    if mode is Mode.AUTOCOMMIT:
        return
    dialect = connection.dialect.name
    text = _BEGIN[dialect].get(mode, _BEGIN_BY_DEFAULT.get(dialect))
    if text is None:
        connection.info[_PENDING_BEGIN] = True
        return
    try:
        connection.exec_driver_sql(text)
    except BaseException:
        connection.invalidate()
        raise


def _roll_back(connection: sa.Connection) -> None:
    """Roll back. If that fails, close the connection, so that the server rolls back."""
    if connection.invalidated or connection.get_execution_options().get(MODE) is Mode.AUTOCOMMIT:
        return
    # If BEGIN is still pending, nothing was sent.
    if connection.info.pop(_PENDING_BEGIN, False):
        return
    driver: Any = connection.connection.dbapi_connection
    try:
        driver.rollback()
    except Exception as error:
        connection.invalidate()
        reason = str(error).partition('\n')[0]
        LOG.warning('A connection to the database was closed because ROLLBACK failed: %s', reason)


def _execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Execute ``statement`` on MySQL, together with a pending BEGIN. Return True, so that SQLAlchemy does not do it."""
    connection: sa.Connection = context.root_connection
    if connection.in_transaction() and connection.info.pop(_PENDING_BEGIN, False):
        cursor.execute(f'BEGIN; {statement}', parameters)
        cursor.nextset()
    else:
        cursor.execute(statement, parameters)
    counts = context.execution_options.get(ROW_COUNTS)
    if counts is not None:
        counts.append(cursor.rowcount)
        while cursor.nextset():
            counts.append(cursor.rowcount)
    return True


def _begin_before(cursor: Any, *arguments: Any) -> None:
    """Send a pending BEGIN alone."""
    connection: sa.Connection = arguments[-1].root_connection
    if connection.in_transaction() and connection.info.pop(_PENDING_BEGIN, False):
        cursor.execute('BEGIN')
