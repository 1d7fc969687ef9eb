"""Classifies database errors: whether to retry the transaction, to answer 503, or neither.

oslo.db has exceptions for most kinds. The others are recognised by the error number (MySQL, MariaDB) or SQLSTATE
(PostgreSQL), and not by the message, whose language may vary. Only SQLite before Python 3.11 has nothing but a message.
"""

from __future__ import annotations

from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from placement import exception

#: The exceptions that a transaction raises when the database is unavailable, rejects it, or lacks our tables.
DATABASE_ERRORS = (exception.DatabaseUnavailable, db_exc.DBError, sa_exc.SQLAlchemyError)

#: Query interrupted: by KILL QUERY, or by Galera, which aborts a transaction that conflicts with another node.
_MYSQL_INTERRUPTED = 1317
#: The above, and the time limits of statements: ``max_statement_time`` of MariaDB, ``max_execution_time`` of MySQL.
_MYSQL_CANCELLED = frozenset({_MYSQL_INTERRUPTED, 1969, 3024})
#: Deadlock, or on Galera a failed certification.
_MYSQL_DEADLOCK = 1213
#: The two above, lock wait timeout (1205), record has changed since last read (1020).
_MYSQL_CONFLICTS = frozenset({1205, _MYSQL_DEADLOCK, 1020, _MYSQL_INTERRUPTED})
#: Cannot connect (2002, 2003), connection broken (1158 to 1161, 2006, 2013, 2055) or killed (1927), too many clients
#: (1040, 1203), server shuts down (1053), Galera node is not ready (1047).
_MYSQL_UNAVAILABLE = frozenset({1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2055})
_MYSQL_NO_TABLE = 1146
#: Errors of a change of the schema that another node has made or is making: table exists (1050), index exists
#: (1061), version is recorded (1062), table was renamed (1146), table definition changes (1412, 1684). By number,
#: because SQLAlchemy's reflection turns oslo.db's translation off for a connection.
_MYSQL_SCHEMA_CONFLICTS = frozenset({1050, 1061, 1062, _MYSQL_NO_TABLE, 1684, 1412})
_POSTGRESQL_NO_TABLE = '42P01'
_POSTGRESQL_DEADLOCK = '40P01'
#: Serialization failure (40001), deadlock, lock not available (55P03).
_POSTGRESQL_CONFLICTS = frozenset({'40001', _POSTGRESQL_DEADLOCK, '55P03'})
#: Connection exceptions (08...), shutting down or starting (57P..), too many connections (53300).
_POSTGRESQL_UNAVAILABLE = ('08', '57P', '53300')
#: ``pg_cancel_backend`` or ``statement_timeout`` (57014), ``idle_in_transaction_session_timeout`` (25P03),
#: ``transaction_timeout`` (25P04).
_POSTGRESQL_CANCELLED = frozenset({'57014', '25P03', '25P04'})


def is_conflict(error: BaseException) -> bool:
    """Return whether ``error`` says that the transaction conflicted with a concurrent one, so that a retry may succeed.

    A violated foreign key says so, too: each id that we write was read before, so its row was deleted since then.
    """
    if isinstance(error, db_exc.DBDeadlock | db_exc.DBReferenceError):
        return True
    cause = _driver_error(error)
    if cause is None:
        return False
    return (
        _number(cause) in _MYSQL_CONFLICTS
        or getattr(cause, 'sqlstate', None) in _POSTGRESQL_CONFLICTS
        or _is_sqlite_busy(cause)
    )


def is_cancelled(error: BaseException) -> bool:
    """Return whether the server cancelled the statement: an operator did that, or a time limit was exceeded.

    On Galera it may also mean a conflict: see ``is_conflict``.
    """
    cause = _driver_error(error)
    if cause is None:
        return False
    return _number(cause) in _MYSQL_CANCELLED or getattr(cause, 'sqlstate', None) in _POSTGRESQL_CANCELLED


def is_deadlock(error: BaseException) -> bool:
    """Return whether ``error`` says that the database rolled the transaction back because of a deadlock."""
    cause = _driver_error(error)
    if cause is None:
        return False
    return _number(cause) == _MYSQL_DEADLOCK or getattr(cause, 'sqlstate', None) == _POSTGRESQL_DEADLOCK


def is_definitely_rolled_back(error: BaseException) -> bool:
    """Return whether ``error``, from any statement of a transaction or its COMMIT, says that nothing was committed.

    False means that it is unknown.
    """
    cause = _driver_error(error)
    # The statement that was interrupted may be a COMMIT that succeeded.
    return is_conflict(error) and (cause is None or _number(cause) != _MYSQL_INTERRUPTED)


def is_concurrent_change_of_schema(error: BaseException) -> bool:
    """Return whether ``error`` says that another node of a cluster is changing the schema at the same time."""
    if isinstance(error, db_exc.DBDuplicateEntry) or is_conflict(error):
        return True
    cause = _driver_error(error)
    return cause is not None and _number(cause) in _MYSQL_SCHEMA_CONFLICTS


def is_unavailable(error: BaseException) -> bool:
    """Return whether ``error`` says that the database cannot be reached at the moment."""
    if isinstance(error, db_exc.DBConnectionError | db_exc.DBNonExistentDatabase | sa_exc.TimeoutError):
        return True
    if is_disconnect(error):
        return True
    cause = _driver_error(error)
    if cause is None:
        return False
    state = getattr(cause, 'sqlstate', None)
    if state is not None:
        return str(state).startswith(_POSTGRESQL_UNAVAILABLE)
    return _number(cause) in _MYSQL_UNAVAILABLE


def is_missing_table(error: BaseException) -> bool:
    """Return whether ``error`` says that a table is not there."""
    cause = _driver_error(error)
    if cause is None:
        return False
    state = getattr(cause, 'sqlstate', None)
    return state == _POSTGRESQL_NO_TABLE or _number(cause) == _MYSQL_NO_TABLE or 'no such table' in str(cause)


def is_disconnect(error: BaseException) -> bool:
    """Return whether ``error`` says that the connection broke.

    SQLAlchemy's flag is needed: psycopg raises the same OperationalError without a SQLSTATE for a statement that it
    cannot send, such as one with too many parameters.
    """
    return bool(getattr(_unwrapped(error), 'connection_invalidated', False))


def _driver_error(error: BaseException) -> BaseException | None:
    """Return the driver's own exception inside SQLAlchemy's or oslo.db's, or None."""
    error = _unwrapped(error)
    return error.orig if isinstance(error, sa_exc.DBAPIError) else None


def _unwrapped(error: BaseException) -> BaseException:
    """Return SQLAlchemy's exception inside oslo.db's."""
    if isinstance(error, db_exc.DBError) and error.inner_exception is not None:
        return error.inner_exception
    return error


def _number(cause: BaseException) -> int | None:
    return cause.args[0] if cause.args and isinstance(cause.args[0], int) else None


def _is_sqlite_busy(cause: BaseException) -> bool:
    if not type(cause).__module__.startswith('sqlite3'):
        return False
    name = getattr(cause, 'sqlite_errorname', None)
    if name is not None:
        return str(name).startswith(('SQLITE_BUSY', 'SQLITE_LOCKED'))
    return 'is locked' in str(cause)
