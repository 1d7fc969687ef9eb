"""Classifies database errors, and raises the exceptions of the service that belong to them.

``ErrorKind`` lists the kinds and what follows from them (``db.retries``). oslo.db has exceptions for most of them. The
error number (MySQL, MariaDB), SQLSTATE (PostgreSQL) or name (SQLite) identifies the others. Messages do not, because
their language varies.
"""

from __future__ import annotations

import contextlib
import enum
import re
import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from placement import exception

#: A connection of the pool that was closed breaks at its first statement. This is shorter than any timeout of a
#: connection, which is at least one second.
MAX_STALE_SECONDS = 0.9

#: Execution option of a connection: when the pool gave it, in monotonic time.
OBTAINED = 'placement_obtained'

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

    details = ' The data are not complete: {reason}'

    @property
    def for_operators(self) -> str:
        return f'{self}{self.details.format(**self.data)}'


class ConnectionLost(exception.DatabaseUnavailable):
    """The connection broke early in a transaction (``broke_early``), and before its COMMIT: nothing was written."""


class RetryTransaction(Exception):
    """Raised in a transaction of ``Database.write`` to roll it back and run it again.

    :param error: what ``Database.write`` raises after the last retry; by default ``ConcurrentProviderUpdate``.
    """

    def __init__(self, error: exception.PlacementError | None = None) -> None:
        super().__init__('The transaction has to be run again.')
        self.error = error or exception.ConcurrentProviderUpdate()


class ErrorKind(enum.Enum):
    """What an error of a statement means, and what ``Database.write`` does. See ``excludes_commit`` for COMMIT."""

    #: Another transaction was in the way, and this one was rolled back. It is run again; after the last retry a 409.
    CONFLICT = enum.auto()
    #: KILL QUERY, or Galera because of a conflict: it is run again; after the last retry a 503.
    INTERRUPTED = enum.auto()
    #: Another connection has held the lock of SQLite for the whole busy timeout: a 409.
    SQLITE_BUSY = enum.auto()
    #: An operator or a time limit of the server canceled the statement: a 503.
    CANCELED = enum.auto()
    #: The database rejects changes; later it, or another server, may accept them. The transaction is run again on a
    #: new connection, but not twice in a row, and then a 503.
    READ_ONLY = enum.auto()
    #: The database cannot be reached: a 503. If the connection broke early, it is as for ``READ_ONLY``.
    UNAVAILABLE = enum.auto()
    #: Our tables are not there: a 503.
    TABLE_MISSING = enum.auto()
    #: Anything else: it is raised.
    OTHER = enum.auto()


#: Another transaction was in the way. ``Database.read`` repeats its statement after each of these, ``Database.write``
#: its transaction except after ``SQLITE_BUSY``, because it has already waited for a whole timeout.
CONFLICTS = frozenset({ErrorKind.CONFLICT, ErrorKind.INTERRUPTED, ErrorKind.SQLITE_BUSY})


class _Signs(NamedTuple):
    """What identifies an error."""

    #: Exceptions of oslo.db and SQLAlchemy.
    types: tuple[type[Exception], ...] = ()
    #: Error numbers of MySQL and MariaDB.
    numbers: frozenset[int] = frozenset()
    #: Prefixes of PostgreSQL's SQLSTATEs and of SQLite's error names.
    prefixes: tuple[str, ...] = ()

    def match(self, error: BaseException) -> bool:
        """Return whether ``error`` has one of these types or codes."""
        cause = _driver_error(error)
        number = cause.args[0] if cause is not None and cause.args else None
        name: str = getattr(cause, 'sqlstate', None) or getattr(cause, 'sqlite_errorname', None) or ''
        has_code = number in self.numbers if isinstance(number, int) else name.startswith(self.prefixes)
        return has_code or isinstance(error, self.types)


#: A deadlock; on Galera also a failed certification.
_DEADLOCK = _Signs(numbers=frozenset({1213}), prefixes=('40P01',))
#: The option read_only or super_read_only (1290), InnoDB or a transaction is read-only (1836, 1792), and the full disk
#: of SQLite.
_READ_ONLY_AT_COMMIT = _Signs(numbers=frozenset({1290, 1792, 1836}), prefixes=('SQLITE_READONLY', 'SQLITE_FULL'))
#: The plugin of Group Replication failed or rejected COMMIT. So does a primary without a majority, although the other
#: members may have received its transaction, and commit it.
_GROUP_REPLICATION_AT_COMMIT = _Signs(numbers=frozenset({3100, 3101}))
#: COMMIT failed with an error of the storage engine. The message has its number; 149 is a deadlock.
_MYSQL_COMMIT_FAILED = _Signs(numbers=frozenset({1180}))
_ENGINE_DEADLOCK = re.compile(r'\b149\b')
_TABLE_MISSING = _Signs(numbers=frozenset({1146}), prefixes=('42P01',))
#: Errors that occur if another node is changing or has changed the schema: table exists (1050), index exists (1061),
#: revision is recorded (1062), table was renamed (1146), table definition changes (1412, 1684). These are numbers,
#: because SQLAlchemy's reflection disables oslo.db's exceptions for a connection.
_SCHEMA_CONFLICTS = _Signs(
    (db_exc.DBDuplicateEntry,), _TABLE_MISSING.numbers | {1050, 1061, 1062, 1684, 1412}, _TABLE_MISSING.prefixes
)

#: The signs of most kinds. ``classify`` takes the first that matches: ``SQLITE_BUSY_...`` is a conflict, and
#: ``SQLITE_BUSY`` alone another kind, although it is a prefix of the former.
_SIGNS: Mapping[ErrorKind, _Signs] = {
    # In addition: the disk (1021, 53100) or the table space (1114) is full; transactions are read-only, as on a standby
    # (25006).
    ErrorKind.READ_ONLY: _Signs(
        numbers=_READ_ONLY_AT_COMMIT.numbers | {1021, 1114},
        prefixes=('25006', '53100', *_READ_ONLY_AT_COMMIT.prefixes),
    ),
    # Cannot connect (2002, 2003), connection broken (1158 to 1161, 2006, 2013, 2055) or killed (1927), too many clients
    # (1040, 1203), server shuts down (1053), Galera node is not ready (1047). On PostgreSQL connection exceptions
    # (08...), shutting down or starting (57P..), too many connections (53300). On SQLite the file cannot be read or is
    # none; on a full disk the files beside it cannot be created, which even readers need.
    ErrorKind.UNAVAILABLE: _Signs(
        (db_exc.DBConnectionError, db_exc.DBNonExistentDatabase, sa_exc.TimeoutError),
        frozenset({1040, 1047, 1053, 1158, 1159, 1160, 1161, 1203, 1927, 2002, 2003, 2006, 2013, 2055}),
        ('08', '57P', '53300', 'SQLITE_IOERR', 'SQLITE_CANTOPEN', 'SQLITE_NOTADB', 'SQLITE_CORRUPT'),
    ),
    # A deadlock, lock wait timeout (1205), a lock that MySQL does not get at once (3572), record has changed since last
    # read (1020), and on Group Replication a COMMIT that the plugin rejected (3100, 3101); serialization failure
    # (40001), lock not available (55P03). A violated foreign key: since the transaction read a row, another one has
    # deleted it or inserted a reference to it.
    ErrorKind.CONFLICT: _Signs(
        (db_exc.DBDeadlock, db_exc.DBReferenceError),
        _DEADLOCK.numbers | _GROUP_REPLICATION_AT_COMMIT.numbers | {1205, 1020, 3572},
        (*_DEADLOCK.prefixes, '40001', '55P03', 'SQLITE_LOCKED', 'SQLITE_BUSY_'),
    ),
    ErrorKind.SQLITE_BUSY: _Signs(prefixes=('SQLITE_BUSY',)),
    ErrorKind.INTERRUPTED: _Signs(numbers=frozenset({1317})),
    # ``max_statement_time`` of MariaDB (1969), ``max_execution_time`` of MySQL (3024). On PostgreSQL
    # ``pg_cancel_backend`` or ``statement_timeout`` (57014), ``idle_in_transaction_session_timeout`` (25P03),
    # ``transaction_timeout`` (25P04).
    ErrorKind.CANCELED: _Signs(numbers=frozenset({1969, 3024}), prefixes=('57014', '25P03', '25P04')),
    ErrorKind.TABLE_MISSING: _TABLE_MISSING,
}
#: What ``translated`` raises.
_EXCEPTIONS: Mapping[ErrorKind, type[exception.DatabaseUnavailable]] = {
    ErrorKind.READ_ONLY: exception.DatabaseReadOnly,
    ErrorKind.UNAVAILABLE: exception.DatabaseUnavailable,
    ErrorKind.CANCELED: exception.SingleFailure,
    ErrorKind.TABLE_MISSING: SchemaMissing,
}


def classify(error: BaseException) -> ErrorKind:
    """Return the kind of an error."""
    if is_disconnect(error):
        return ErrorKind.UNAVAILABLE
    for kind, signs in _SIGNS.items():
        if signs.match(error):
            return kind
    message = str(_driver_error(error))
    if _MYSQL_COMMIT_FAILED.match(error) and _ENGINE_DEADLOCK.search(message):
        return ErrorKind.CONFLICT
    return ErrorKind.TABLE_MISSING if 'no such table' in message else ErrorKind.OTHER


def excludes_commit(error: BaseException) -> bool:
    """Return whether ``error``, which COMMIT raised, guarantees that the transaction is not committed.

    =====================  =========================================================================================
    Kind                   At COMMIT
    =====================  =========================================================================================
    CONFLICT, SQLITE_BUSY  not committed: the database rejected the transaction, or SQLite did not get its lock; except
                           that after 3100 and 3101 the other members of a group may have committed
    READ_ONLY              not committed, except that a server without space on its disk (1021, 1114, 53100) may have
                           committed, and nothing is known of 25006 at COMMIT. SQLite writes the pages of a
                           transaction at COMMIT, and only then is it committed
    INTERRUPTED, CANCELED  may be committed: the statement is canceled at any moment
    UNAVAILABLE            may be committed: nobody knows what happened before the connection or the file failed
    TABLE_MISSING, OTHER   may be committed: nothing is known of such an error
    =====================  =========================================================================================
    """
    if _GROUP_REPLICATION_AT_COMMIT.match(error):
        return False
    return _READ_ONLY_AT_COMMIT.match(error) or classify(error) in CONFLICTS - {ErrorKind.INTERRUPTED}


def is_conflict(error: BaseException) -> bool:
    """Return whether ``error`` is a conflict with a concurrent transaction (``CONFLICTS``)."""
    return classify(error) in CONFLICTS


def is_read_only(error: BaseException) -> bool:
    """Return whether the database rejects changes at the moment."""
    return _SIGNS[ErrorKind.READ_ONLY].match(error)


def is_deadlock(error: BaseException) -> bool:
    """Return whether ``error`` says that the database rolled the transaction back because of a deadlock."""
    return _DEADLOCK.match(error)


def is_concurrent_change_of_schema(error: BaseException) -> bool:
    """Return whether ``error`` says that another node of a cluster is changing the schema at the same time."""
    return is_conflict(error) or _SCHEMA_CONFLICTS.match(error)


def is_disconnect(error: BaseException) -> bool:
    """Return whether the connection broke. One that we closed because the database is read-only did not break.

    This relies on SQLAlchemy's flag, because psycopg raises the same OperationalError without a SQLSTATE for a
    statement that it cannot send, such as one with too many parameters.
    """
    return bool(getattr(_unwrapped(error), 'connection_invalidated', False)) and not is_read_only(error)


def broke_early(error: BaseException, connection: sa.Connection) -> bool:
    """Return whether ``connection`` broke within a second after it was obtained, as one that was closed before.

    If it breaks later, the server may not respond, and a retry would wait as long again.
    """
    return is_disconnect(error) and time.monotonic() - connection.get_execution_options()[OBTAINED] < MAX_STALE_SECONDS


def _driver_error(error: BaseException) -> BaseException | None:
    """Return the driver's own exception inside SQLAlchemy's or oslo.db's, or None."""
    error = _unwrapped(error)
    return error.orig if isinstance(error, sa_exc.DBAPIError) else None


def _unwrapped(error: BaseException) -> BaseException:
    """Return SQLAlchemy's exception inside oslo.db's."""
    if isinstance(error, db_exc.DBError) and error.inner_exception is not None:
        return error.inner_exception
    return error


@contextlib.contextmanager
def translated(*, conflicts: bool = False) -> Iterator[None]:
    """Raise the ``DatabaseUnavailable`` that belongs to the kind of an error, if there is one.

    :param conflicts: whether conflicts are errors that no caller retries.
    """
    try:
        yield
    except Exception as error:
        kind = classify(error)
        if conflicts and kind in CONFLICTS:
            raise exception.SingleFailure from error
        if kind in _EXCEPTIONS:
            raise _EXCEPTIONS[kind] from error
        raise
