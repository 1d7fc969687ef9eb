"""What a database error means: try the transaction again, come back later, or neither.

oslo.db already names most of them. The rest differ by driver, so they are told apart here by the number or
SQLSTATE that the server gave, never by the language of its message (SQLite before Python 3.11 has only words).
"""

from __future__ import annotations

from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

#: MySQL and MariaDB: lock wait timeout, deadlock (also Galera's certification), record changed since last read,
#: Galera's brute-force abort seen as an interrupted query.
_MYSQL_INTERRUPTED = 1317
_MYSQL_DEADLOCK = 1213
_MYSQL_CONFLICTS = frozenset({1205, _MYSQL_DEADLOCK, 1020, _MYSQL_INTERRUPTED})
#: MySQL and MariaDB: cannot connect, gone away, too many connections, shutting down, Galera node not ready, killed.
_MYSQL_AWAY = frozenset({1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2055})
#: MySQL and MariaDB: table exists, is renamed already, index exists, version recorded already, table is being changed
#: elsewhere, wsrep refuses meanwhile. By number, because SQLAlchemy's reflection turns oslo.db's translation off for a
#: connection.
_MYSQL_SCHEMA_CONFLICTS = frozenset({1050, 1061, 1062, 1146, 1684, 1412})
_MYSQL_NO_TABLE = 1146
_POSTGRESQL_NO_TABLE = '42P01'
#: PostgreSQL: serialization failure, deadlock detected, lock not available.
_POSTGRESQL_DEADLOCK = '40P01'
_POSTGRESQL_CONFLICTS = frozenset({'40001', _POSTGRESQL_DEADLOCK, '55P03'})
#: PostgreSQL: connection exceptions, operator intervention (shutdown, starting up), too many connections.
_POSTGRESQL_AWAY = ('08', '57P', '53300')


def is_conflict(error: BaseException) -> bool:
    """Whether ``error`` says that a concurrent transaction was in the way, so that trying again makes sense.

    So does a row that refers to nothing: every id that we write was read in the same transaction.
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


def is_deadlock(error: BaseException) -> bool:
    """Whether the database ended the transaction because it and another one waited for each other."""
    cause = _driver_error(error)
    if cause is None:
        return False
    return _number(cause) == _MYSQL_DEADLOCK or getattr(cause, 'sqlstate', None) == _POSTGRESQL_DEADLOCK


def is_rolled_back(error: BaseException) -> bool:
    """Whether ``error``, wherever in a transaction it came from, says that the transaction is not committed.

    False means only that it does not say so.
    """
    cause = _driver_error(error)
    # A query that was interrupted may have been a COMMIT that went through.
    return is_conflict(error) and (cause is None or _number(cause) != _MYSQL_INTERRUPTED)


def is_concurrent_change_of_schema(error: BaseException) -> bool:
    """Whether ``error`` says that another node of a cluster is changing the schema at the same time."""
    if isinstance(error, db_exc.DBDuplicateEntry) or is_conflict(error):
        return True
    cause = _driver_error(error)
    return cause is not None and _number(cause) in _MYSQL_SCHEMA_CONFLICTS


def is_away(error: BaseException) -> bool:
    """Whether ``error`` says that the database cannot be reached at the moment."""
    if isinstance(error, db_exc.DBConnectionError | db_exc.DBNonExistentDatabase | sa_exc.TimeoutError):
        return True
    if is_lost(error):
        return True
    cause = _driver_error(error)
    if cause is None:
        return False
    state = getattr(cause, 'sqlstate', None)
    if state is not None:
        return str(state).startswith(_POSTGRESQL_AWAY)
    return _number(cause) in _MYSQL_AWAY


def lacks_a_table(error: BaseException) -> bool:
    """Whether ``error`` says that a table is not there."""
    cause = _driver_error(error)
    if cause is None:
        return False
    state = getattr(cause, 'sqlstate', None)
    return state == _POSTGRESQL_NO_TABLE or _number(cause) == _MYSQL_NO_TABLE or 'no such table' in str(cause)


def is_lost(error: BaseException) -> bool:
    """Whether the connection broke.

    Psycopg's exception alone would not tell: an OperationalError without a SQLSTATE is also what it raises for a
    statement that it cannot send, such as one with too many parameters.
    """
    return bool(getattr(_unwrapped(error), 'connection_invalidated', False))


def _driver_error(error: BaseException) -> BaseException | None:
    """The driver's own exception inside SQLAlchemy's or oslo.db's, or None."""
    error = _unwrapped(error)
    return error.orig if isinstance(error, sa_exc.DBAPIError) else None


def _unwrapped(error: BaseException) -> BaseException:
    """SQLAlchemy's exception inside oslo.db's."""
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
