"""Classifies database errors, and raises the exceptions of the service that belong to them.

``ERRORS`` is the table of all known errors: what each means, and whether COMMIT may have succeeded. ``ErrorKind`` has
what follows from it (``db.retries``). oslo.db has exceptions for some errors. Codes identify the others; messages do
not, because their language varies.
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
    """What an error means, and what ``Database.write`` does after a statement that raised it.

    After its COMMIT it does the same if the row of ``ERRORS`` has ``rolls_back_at_commit``, but runs nothing again
    after ``UNAVAILABLE``. Otherwise the COMMIT is in doubt, whatever the kind is;
    doc/database.md#a-commit-that-fails has what follows, also without a slot.
    """

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
    #: The database cannot be reached, or begins no transaction: a 503. If the connection was broken or closed early, it
    #: is as for ``READ_ONLY``.
    UNAVAILABLE = enum.auto()
    #: Our tables are not there: a 503.
    TABLE_MISSING = enum.auto()
    #: Anything else: it is raised.
    OTHER = enum.auto()


#: Another transaction was in the way. ``Database.read`` repeats its statement after each of these, ``Database.write``
#: its transaction except after ``SQLITE_BUSY``, because it has already waited for a whole timeout.
CONFLICTS = frozenset({ErrorKind.CONFLICT, ErrorKind.INTERRUPTED, ErrorKind.SQLITE_BUSY})


class KnownError(NamedTuple):
    """A row of ``ERRORS``: errors that mean the same."""

    kind: ErrorKind
    #: A pattern of the codes: error numbers of MySQL and MariaDB, SQLSTATEs of PostgreSQL, names of SQLite.
    codes: str
    #: A pattern that the message has to contain, if the code is not enough.
    message: str = ''
    #: Exceptions of oslo.db and SQLAlchemy that mean the same, whatever the code is.
    types: tuple[type[Exception], ...] = ()
    #: Whether every error that broke the connection, and is in no row before, is in this row, whatever its code is.
    has_disconnects: bool = False
    #: Whether there is evidence that a transaction is not committed if its COMMIT raises this. Without, it is in doubt.
    rolls_back_at_commit: bool = False
    #: Whether all connections of the pool are replaced, although they are open, because a new one may reach another
    #: server, which accepts the transaction (``connections.create_engine``). The error then counts as one that broke
    #: its connection. So these rows are before the one with ``has_disconnects``.
    discards_pool: bool = False

    def match(self, error: BaseException) -> bool:
        """Return whether ``error`` is in this row."""
        has_code = re.fullmatch(self.codes, _code(error)) and re.search(self.message, str(_driver_error(error)))
        return bool(has_code) or isinstance(error, self.types) or (self.has_disconnects and _is_invalidated(error))


#: What each error means, in a statement and at COMMIT. The first row that matches counts. The comments name the codes,
#: and the evidence for COMMIT.
ERRORS = (
    # The option read_only: the server checks it at COMMIT, too, and rolls back
    # (``test_a_server_that_was_demoted_before_a_commit_rolls_back``). InnoDB or the transaction is read-only (1836,
    # 1792): then there is nothing to commit.
    KnownError(ErrorKind.READ_ONLY, '1290|1792|1836', rolls_back_at_commit=True, discards_pool=True),
    # SQLite writes the pages of a transaction at COMMIT, and only after all of them the mark that commits it
    # (sqlite.org/wal.html; ``test_a_full_disk_below_sqlite_is_one_line``).
    KnownError(ErrorKind.READ_ONLY, 'SQLITE_READONLY.*|SQLITE_FULL', rolls_back_at_commit=True, discards_pool=True),
    # The disk (1021, 53100) or the table space (1114) is full: the log that makes COMMIT permanent may have been
    # written before. A standby of PostgreSQL (25006): nothing is known about COMMIT.
    KnownError(ErrorKind.READ_ONLY, '1021|1114|53100|25006', discards_pool=True),
    # The server is not in its cluster: a Galera node is not ready (1047). A member of Group Replication begins no
    # transaction, because it has left its group (3783, 3796) or leaves it (3782, 3799)
    # (``test_a_member_that_has_left_its_group_is_unavailable``).
    KnownError(ErrorKind.UNAVAILABLE, '1047|3782|3783|3796|3799', discards_pool=True),
    # No connection, or it broke, or the file failed: nobody knows what happened before that.
    KnownError(
        ErrorKind.UNAVAILABLE,
        # MySQL and MariaDB.
        '2002|2003|'  # cannot connect
        '1158|1159|1160|1161|2006|2013|2055|'  # connection broken
        '1927|'  # connection killed
        # Connection idle for ``wait_timeout``. Only MySQL sends it; on MariaDB it is about triggers, and we have none.
        '4031|'
        '1040|1203|'  # too many clients
        '1053|'  # the server shuts down
        # PostgreSQL.
        '08.*|'  # connection exceptions
        '57P.*|'  # shutting down, starting, ``idle_session_timeout``
        '25P03|25P04|'  # ``idle_in_transaction_session_timeout``, ``transaction_timeout``: both end the session
        '53300|'  # too many connections
        # SQLite.
        'SQLITE_IOERR.*|SQLITE_NOTADB|SQLITE_CORRUPT.*|'  # the file cannot be read or is none
        'SQLITE_CANTOPEN.*',  # also on a full disk: even readers need the files beside it, which cannot be created
        types=(db_exc.DBConnectionError, db_exc.DBNonExistentDatabase, sa_exc.TimeoutError),
        has_disconnects=True,
    ),
    # The plugin of Group Replication rejects COMMIT: certification failed, or the primary has lost its majority. In the
    # second case the other members may have the transaction, and commit it
    # (``test_a_claim_that_an_isolated_primary_rejects_may_have_been_made``).
    KnownError(ErrorKind.CONFLICT, '3100|3101'),
    # A deadlock, whose victim is rolled back (manuals of all servers); at COMMIT only on Galera, where another node
    # has committed a conflicting change (``test_a_commit_that_conflicts_with_another_node_is_rolled_back``).
    KnownError(ErrorKind.CONFLICT, '1213|40P01', rolls_back_at_commit=True),
    # COMMIT failed in the engine, whose number is in the message: a deadlock, as this member of Group Replication has
    # applied a conflicting change of another one (the test of the same name). With another number nothing is known.
    KnownError(ErrorKind.CONFLICT, '1180', message=r'\b149\b', rolls_back_at_commit=True),
    # A lock was not released in time: COMMIT needs one against FLUSH TABLES WITH READ LOCK, and is rolled back without
    # it (``test_a_commit_that_waits_too_long_for_a_lock_is_rolled_back``).
    KnownError(ErrorKind.CONFLICT, '1205', rolls_back_at_commit=True),
    # Only other statements than COMMIT get these: a lock that is not waited for (3572, 55P03), and a record that has
    # changed since it was read (1020).
    KnownError(ErrorKind.CONFLICT, '3572|55P03|1020', rolls_back_at_commit=True),
    # A serialization failure, which PostgreSQL finds before it commits, and rolls back (its manual, "Serialization
    # Failure Handling"). A violated foreign key, which is never checked at COMMIT: since the transaction
    # read a row, another one has deleted it or inserted a reference to it.
    KnownError(
        ErrorKind.CONFLICT, '40001', rolls_back_at_commit=True, types=(db_exc.DBDeadlock, db_exc.DBReferenceError)
    ),
    # SQLite did not get its lock, and COMMIT could be repeated (sqlite.org/lang_transaction.html).
    KnownError(ErrorKind.CONFLICT, 'SQLITE_LOCKED.*|SQLITE_BUSY_.*', rolls_back_at_commit=True),
    KnownError(ErrorKind.SQLITE_BUSY, 'SQLITE_BUSY', rolls_back_at_commit=True),
    # A statement is canceled at any moment, also when the transaction is already committed: KILL QUERY (1317).
    KnownError(ErrorKind.INTERRUPTED, '1317'),
    # ``max_statement_time`` of MariaDB (1969), ``max_execution_time`` of MySQL (3024). On PostgreSQL
    # ``pg_cancel_backend`` or ``statement_timeout`` (57014). A transaction of Group Replication has waited for other
    # members for ``wait_timeout`` before it began (3781, 3797, 3798).
    KnownError(ErrorKind.CANCELED, '1969|3024|57014|3781|3797|3798'),
    KnownError(ErrorKind.TABLE_MISSING, '1146|42P01'),
    KnownError(ErrorKind.TABLE_MISSING, 'SQLITE_ERROR', message='no such table'),
    KnownError(ErrorKind.OTHER, '.*'),
)
#: What ``as_unavailable`` raises.
_EXCEPTIONS: Mapping[ErrorKind, type[exception.DatabaseUnavailable]] = {
    ErrorKind.READ_ONLY: exception.DatabaseReadOnly,
    ErrorKind.UNAVAILABLE: exception.DatabaseUnavailable,
    ErrorKind.CANCELED: exception.TransactionInterrupted,
    ErrorKind.TABLE_MISSING: SchemaMissing,
}


def known_error_of(error: BaseException) -> KnownError:
    """Return the row of ``ERRORS`` that an error is in."""
    return next(row for row in ERRORS if row.match(error))


def classify(error: BaseException) -> ErrorKind:
    """Return the kind of an error."""
    return known_error_of(error).kind


def is_conflict(error: BaseException) -> bool:
    """Return whether ``error`` is a conflict with a concurrent transaction (``CONFLICTS``)."""
    return classify(error) in CONFLICTS


def is_deadlock(error: BaseException) -> bool:
    """Return whether ``error`` says that the database rolled the transaction back because of a deadlock."""
    return _code(error) in {'1213', '40P01'}


def is_concurrent_change_of_schema(error: BaseException) -> bool:
    """Return whether ``error`` says that another node of a cluster is changing the schema at the same time."""
    # Table exists (1050), index exists (1061), revision is recorded (1062), table was renamed (1146, 42P01), table
    # definition changes (1412, 1684). SQLAlchemy's reflection disables oslo.db's exceptions for a connection.
    codes = {'1050', '1061', '1062', '1146', '42P01', '1412', '1684'}
    return _code(error) in codes or isinstance(error, db_exc.DBDuplicateEntry) or is_conflict(error)


def is_disconnect(error: BaseException) -> bool:
    """Return whether no statement can be sent on the connection: it broke, or its server is not in its cluster."""
    return _is_invalidated(error) and classify(error) is ErrorKind.UNAVAILABLE


def broke_early(error: BaseException, connection: sa.Connection) -> bool:
    """Return whether ``connection`` broke within a second after it was obtained, as one that was closed before.

    If it breaks later, the server may not respond, and a retry would wait as long again.
    """
    return is_disconnect(error) and time.monotonic() - connection.get_execution_options()[OBTAINED] < MAX_STALE_SECONDS


def _driver_error(error: BaseException) -> BaseException | None:
    """Return the driver's own exception inside SQLAlchemy's or oslo.db's, or None."""
    error = _unwrapped(error)
    return error.orig if isinstance(error, sa_exc.DBAPIError) else None


def _code(error: BaseException) -> str:
    """Return the driver's code of an error: the number (MySQL, MariaDB), SQLSTATE (PostgreSQL) or name (SQLite)."""
    cause = _driver_error(error)
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int):
        return str(number)
    return getattr(cause, 'sqlstate', None) or getattr(cause, 'sqlite_errorname', None) or ''


def _unwrapped(error: BaseException) -> BaseException:
    """Return SQLAlchemy's exception inside oslo.db's."""
    if isinstance(error, db_exc.DBError) and error.inner_exception is not None:
        return error.inner_exception
    return error


def _is_invalidated(error: BaseException) -> bool:
    """Return whether the connection is closed: it broke, or the service closed it (``KnownError.discards_pool``).

    This relies on SQLAlchemy's flag, because psycopg raises the same OperationalError without a SQLSTATE for a
    statement that it cannot send, such as one with too many parameters.
    """
    return bool(getattr(_unwrapped(error), 'connection_invalidated', False))


@contextlib.contextmanager
def as_unavailable(*, conflicts: bool = False) -> Iterator[None]:
    """Raise the ``DatabaseUnavailable`` that belongs to the kind of an error, if there is one.

    :param conflicts: whether conflicts are errors that no caller retries.
    """
    try:
        yield
    except Exception as error:
        kind = classify(error)
        if conflicts and kind in CONFLICTS:
            raise exception.TransactionInterrupted from error
        if kind in _EXCEPTIONS:
            raise _EXCEPTIONS[kind] from error
        raise
