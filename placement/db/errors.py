"""Classifies database errors: whether to retry the transaction, to answer 503, or neither.

oslo.db has exceptions for most kinds. The error number (MySQL, MariaDB), SQLSTATE (PostgreSQL) or name (SQLite)
identifies the others. Messages do not, because their language varies.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from placement import exception

T = TypeVar('T')

#: The exceptions that a transaction raises if the database is unavailable, rejects it, or lacks our tables.
DATABASE_ERRORS = (exception.DatabaseUnavailable, db_exc.DBError, sa_exc.SQLAlchemyError)


class SchemaMissing(exception.DatabaseUnavailable):
    """A table of the service is not in the database, for example after ``placement-manage db leave``."""

    @property
    def for_operators(self) -> str:
        """The text for the log, which names the table."""
        reason = str(self.__cause__ or '').partition('\n')[0]
        return f'A table of the service is not in the database: {reason}'


class IncompleteDatabase(exception.DatabaseUnavailable):
    """The tables cannot be read as a whole. ``reason`` says why."""

    template = 'The database is not available at the moment.'
    details = ' The data are not complete: {reason}'

    @property
    def for_operators(self) -> str:
        return f'{self}{self.details.format(**self.data)}'


class StaleConnection(exception.DatabaseUnavailable):
    """The connection broke before the database answered the first statement of a transaction: nothing was written."""


class CommitUnknown(exception.SingleFailure):
    """COMMIT failed, and the transaction may or may not have been committed. The connection is closed."""

    template = 'The database is not available at the moment. The change may have been made: read before you repeat it.'


class RetryTransaction(Exception):
    """Raised in a transaction of ``Database.write`` to roll it back and run it again.

    :param error: what ``Database.write`` raises after the last retry; by default ``ConcurrentProviderUpdate``.
    """

    def __init__(self, error: exception.PlacementError | None = None) -> None:
        super().__init__('The transaction has to be run again.')
        self.error = error or exception.ConcurrentProviderUpdate()


def retry(
    call: Callable[[], T], is_temporary: Callable[[Exception], bool], *, retries: float, interval: float = 0
) -> T:
    """Call ``call`` until it succeeds, and return its result. For transactions, use ``Database.write``.

    :param is_temporary: returns whether another call may succeed after this error. Any other error is raised.
    :param retries: maximum number of calls after the first. The error of the last call is raised.
    :param interval: mean time between two calls, in seconds. It varies, so that processes do not collide again.
    """
    while True:
        try:
            return call()
        except Exception as error:
            if retries <= 0 or not is_temporary(error):
                raise
        retries -= 1
        time.sleep(random.uniform(0.5, 1.5) * interval)  # noqa: S311


@contextlib.contextmanager
def translated(*, conflicts: bool = False) -> Iterator[None]:
    """Raise ``DatabaseUnavailable`` if the database is unavailable, lacks a table, or canceled a statement.

    :param conflicts: whether to raise it also for conflicts, because no caller retries them.
    """
    try:
        yield
    except Exception as error:
        if is_read_only(error):
            raise exception.DatabaseReadOnly from error
        if is_unavailable(error):
            raise exception.DatabaseUnavailable from error
        if conflicts if is_conflict(error) else is_canceled(error):
            raise exception.SingleFailure from error
        if is_missing_table(error):
            raise SchemaMissing from error
        raise


class _Codes(NamedTuple):
    """Error numbers of MySQL and MariaDB, and prefixes of PostgreSQL's SQLSTATEs and of SQLite's error names."""

    numbers: frozenset[int] = frozenset()
    prefixes: tuple[str, ...] = ()

    def match(self, error: BaseException) -> bool:
        """Return whether the driver gave ``error`` one of these codes."""
        code = _code(error)
        return code in self.numbers if isinstance(code, int) else code is not None and code.startswith(self.prefixes)


#: Query interrupted: by KILL QUERY, or by Galera, which aborts a transaction that conflicts with another node.
_MYSQL_INTERRUPTED = 1317
#: Query interrupted (1317), ``max_statement_time`` of MariaDB (1969), ``max_execution_time`` of MySQL (3024). On
#: PostgreSQL ``pg_cancel_backend`` or ``statement_timeout`` (57014), ``idle_in_transaction_session_timeout`` (25P03),
#: ``transaction_timeout`` (25P04).
_CANCELED = _Codes(frozenset({_MYSQL_INTERRUPTED, 1969, 3024}), ('57014', '25P03', '25P04'))
#: A deadlock; on Galera also a failed certification.
_DEADLOCK = _Codes(frozenset({1213}), ('40P01',))
#: A deadlock, query interrupted, lock wait timeout (1205), record has changed since last read (1020), and on Group
#: Replication a COMMIT that the plugin rejected (3100, 3101); serialization failure (40001), lock not available
#: (55P03); another connection holds the lock of SQLite. None of these transactions is committed, except that an
#: interrupted COMMIT may have succeeded.
_CONFLICTS = _Codes(
    _DEADLOCK.numbers | {1205, 1020, _MYSQL_INTERRUPTED, 3100, 3101},
    (*_DEADLOCK.prefixes, '40001', '55P03', 'SQLITE_BUSY', 'SQLITE_LOCKED'),
)
#: COMMIT failed with an error of the storage engine. The message has its number; 149 is a deadlock.
_MYSQL_COMMIT_FAILED = _Codes(frozenset({1180}))
_ENGINE_DEADLOCK = re.compile(r'\b149\b')
#: Cannot connect (2002, 2003), connection broken (1158 to 1161, 2006, 2013, 2055) or killed (1927), too many clients
#: (1040, 1203), server shuts down (1053), Galera node is not ready (1047). On PostgreSQL connection exceptions (08...),
#: shutting down or starting (57P..), too many connections (53300). On SQLite the file cannot be read or is none; on a
#: full disk the files beside it cannot be created, which even readers need.
_UNAVAILABLE = _Codes(
    frozenset({1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2055}),
    ('08', '57P', '53300', 'SQLITE_IOERR', 'SQLITE_CANTOPEN', 'SQLITE_NOTADB', 'SQLITE_CORRUPT'),
)
#: The option read_only or super_read_only (1290), InnoDB or a transaction is read-only (1836, 1792).
_MYSQL_READ_ONLY = _Codes(frozenset({1290, 1792, 1836}))
#: The same codes, and the full disk of SQLite, which writes the pages of a transaction at COMMIT. A server that has no
#: space left at COMMIT may have committed, so there its codes mean a failed COMMIT.
_READ_ONLY_AT_COMMIT = _Codes(_MYSQL_READ_ONLY.numbers, ('SQLITE_READONLY', 'SQLITE_FULL'))
#: The same codes, and: the disk (1021, 53100) or the table space (1114) is full; transactions are read-only, as on a
#: standby (25006).
_READ_ONLY = _Codes(_MYSQL_READ_ONLY.numbers | {1021, 1114}, ('25006', '53100', 'SQLITE_READONLY', 'SQLITE_FULL'))
_NO_TABLE = _Codes(frozenset({1146}), ('42P01',))
#: Errors that occur if another node is changing or has changed the schema: table exists (1050), index exists (1061),
#: revision is recorded (1062), table was renamed (1146), table definition changes (1412, 1684). These are numbers,
#: because SQLAlchemy's reflection disables oslo.db's exceptions for a connection.
_SCHEMA_CONFLICTS = _Codes(_NO_TABLE.numbers | {1050, 1061, 1062, 1684, 1412})


def is_conflict(error: BaseException) -> bool:
    """Return whether ``error`` is a conflict with a concurrent transaction, after which a retry may succeed.

    A violated foreign key is also a conflict: since the transaction read a row, another one has deleted it or inserted
    a reference to it.
    """
    return (
        isinstance(error, db_exc.DBDeadlock | db_exc.DBReferenceError)
        or _CONFLICTS.match(error)
        or (_MYSQL_COMMIT_FAILED.match(error) and bool(_ENGINE_DEADLOCK.search(str(_driver_error(error)))))
    )


def is_read_only(error: BaseException) -> bool:
    """Return whether the database rejects changes at the moment. Later it, or another server, may accept them."""
    return _READ_ONLY.match(error)


def is_canceled(error: BaseException) -> bool:
    """Return whether an operator or a time limit of the server canceled the statement.

    On Galera it may also mean a conflict: see ``_MYSQL_INTERRUPTED``.
    """
    return _CANCELED.match(error)


def is_deadlock(error: BaseException) -> bool:
    """Return whether ``error`` says that the database rolled the transaction back because of a deadlock."""
    return _DEADLOCK.match(error)


def is_sqlite_busy(error: BaseException) -> bool:
    """Return whether ``error`` says that another connection has held the lock of SQLite for the whole busy timeout."""
    return _code(error) == 'SQLITE_BUSY'


def is_definitely_rolled_back(error: BaseException) -> bool:
    """Return whether ``error``, from a statement or COMMIT of a transaction, guarantees that nothing was committed."""
    if isinstance(error, exception.DatabaseReadOnly) or _READ_ONLY_AT_COMMIT.match(error):
        return True
    # The interrupted statement may be a COMMIT that succeeded.
    return is_conflict(error) and _code(error) != _MYSQL_INTERRUPTED


def is_concurrent_change_of_schema(error: BaseException) -> bool:
    """Return whether ``error`` says that another node of a cluster is changing the schema at the same time."""
    return isinstance(error, db_exc.DBDuplicateEntry) or is_conflict(error) or _SCHEMA_CONFLICTS.match(error)


def is_unavailable(error: BaseException) -> bool:
    """Return whether ``error`` says that the database cannot be reached at the moment."""
    return (
        isinstance(error, db_exc.DBConnectionError | db_exc.DBNonExistentDatabase | sa_exc.TimeoutError)
        or is_disconnect(error)
        or _UNAVAILABLE.match(error)
    )


def is_missing_table(error: BaseException) -> bool:
    """Return whether ``error`` says that a table does not exist."""
    return _NO_TABLE.match(error) or 'no such table' in str(_driver_error(error))


def is_disconnect(error: BaseException) -> bool:
    """Return whether the connection broke. One that we closed because the database is read-only did not break.

    This relies on SQLAlchemy's flag, because psycopg raises the same OperationalError without a SQLSTATE for a
    statement that it cannot send, such as one with too many parameters.
    """
    return bool(getattr(_unwrapped(error), 'connection_invalidated', False)) and not is_read_only(error)


def _code(error: BaseException) -> int | str | None:
    """Return the number (MySQL, MariaDB), SQLSTATE (PostgreSQL) or name (SQLite) of the driver's exception, or None."""
    cause = _driver_error(error)
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int):
        return number
    return getattr(cause, 'sqlstate', None) or getattr(cause, 'sqlite_errorname', None)


def _driver_error(error: BaseException) -> BaseException | None:
    """Return the driver's own exception inside SQLAlchemy's or oslo.db's, or None."""
    error = _unwrapped(error)
    return error.orig if isinstance(error, sa_exc.DBAPIError) else None


def _unwrapped(error: BaseException) -> BaseException:
    """Return SQLAlchemy's exception inside oslo.db's."""
    if isinstance(error, db_exc.DBError) and error.inner_exception is not None:
        return error.inner_exception
    return error
