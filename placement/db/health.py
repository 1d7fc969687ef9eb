"""Reports whether the database can be used, and who is connected to it."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent import futures
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_log import log

from placement import exception
from placement.db import errors, sql, tables
from placement.db.api import Database

LOG = log.getLogger(__name__)

#: The maximum time that callers wait for a check of the database.
MAX_CHECK_SECONDS = 2.0
#: How many seconds other connections have to close, or to begin to wait for our lock on the schema.
_DISCONNECT_GRACE_SECONDS = 3

#: By dialect, the query of the other connections, except those that wait for our lock to change the schema. SQLite has
#: no list of connections.
_QUERIES = {
    'postgresql': (
        'SELECT usename AS account, host(client_addr) AS address, application_name AS program,'
        ' usename = current_user AS is_own FROM pg_stat_activity'
        " WHERE datname = current_database() AND usename IS NOT NULL AND coalesce(backend_type, '') IN"
        " ('client backend', '') AND pid <> pg_backend_pid()"
        " AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
    ),
    'mysql': (
        "SELECT user AS account, host AS address, '' AS program, user = substring_index(user(), '@', 1) AS is_own"
        ' FROM information_schema.processlist WHERE db = database() AND id <> connection_id()'
        " AND coalesce(state, '') <> 'User lock'"
    ),
}


def find_problem(db: Database) -> str | None:
    """Return a sentence that says why the database cannot be used at the moment; None if it can be used.

    The sentence names no host, user or statement, because health checks show it to everybody.

    A read-only database can be used (``availability``). But its connections are closed, so that a process that only
    reads, such as the exporter, does not stay connected to a server that is no longer the primary.
    """
    try:
        with db.reader() as connection:
            connection.execute(sa.select(tables.resource_providers.c.id).limit(1))
    except errors.SchemaMissing:
        return 'The database does not have the expected tables.'
    except exception.DatabaseUnavailable:
        return 'The database cannot be reached.'
    except errors.DATABASE_ERRORS:
        return 'The database does not have the expected tables.'
    db.try_to_write()
    return None


class CheckFailed(exception.DatabaseUnavailable):
    """A check has no result: the database accepts connections but does not respond, or there is no thread for it."""

    template = '{reason}'


class TimedCheck:
    """A check of the database with a time limit: a database may accept a connection and then not respond.

    One check runs at a time, in a thread. Callers during a check share its result, if it ends in time.

    :param check: returns a sentence that says why the database cannot be used, or None.
    """

    def __init__(self, db: Database, check: Callable[[Database], str | None] = find_problem) -> None:
        self._db = db
        self._check = check
        self._lock = threading.Lock()
        self._result: futures.Future[str | None] = futures.Future()
        self._result.set_result(None)
        self._started = 0.0
        #: Whether the log says that there is no result. ``Availability`` logs errors of the database.
        self._is_silent = False

    def problem(self) -> str | None:
        """Return a sentence that says why the database cannot be used or does not answer; None if it can be used."""
        try:
            return self.result()
        except CheckFailed as error:
            return str(error)

    def result(self) -> str | None:
        """Return the result of the check.

        :raises CheckFailed: the check started ``MAX_CHECK_SECONDS`` ago and has no result, or no thread can be started,
            for example because the number of processes is limited. Then the next call tries again.
        """
        with self._lock:
            if self._result.done():
                self._start()
            result, started = self._result, self._started
        futures.wait([result], max(started + MAX_CHECK_SECONDS - time.monotonic(), 0))
        if not result.done():
            raise self._failure(f'The database has not answered for {time.monotonic() - started:.0f} seconds.')
        return result.result()

    def _start(self) -> None:
        result: futures.Future[str | None] = futures.Future()
        started = time.monotonic()
        try:
            threading.Thread(target=self._run, args=(result,), name='database check', daemon=True).start()
        except RuntimeError as error:
            raise self._failure(f'The database cannot be checked: {error}.') from error
        # Only now, because callers wait for this result, and nothing would set it without the thread.
        self._result, self._started = result, started

    def _failure(self, reason: str) -> CheckFailed:
        """Log the first of consecutive failures, and return the exception."""
        if not self._is_silent:
            self._is_silent = True
            LOG.warning('%s', reason)
        return CheckFailed(reason=reason)

    def _run(self, result: futures.Future[str | None]) -> None:
        try:
            problem = self._check(self._db)
        except Exception as error:
            result.set_exception(error)
            return
        if self._is_silent and problem is None:
            self._is_silent = False
            LOG.info('The database answers again')
        result.set_result(problem)


class Session(NamedTuple):
    """One connection: its database account, the client's address and program. They are empty if unknown.

    ``is_own`` tells whether it has the same account as the connection that reads this.
    """

    account: str
    address: str
    program: str
    is_own: bool

    def __str__(self) -> str:
        where = f' from {self.address}' if self.address else ''
        return f'{self.account}{where}' + (f' ({self.program})' if self.program else '')


def list_sessions(connection: sa.Connection) -> list[Session]:
    """Return the other connections that the account of ``connection`` may see, on this node of a cluster.

    There are none on SQLite.
    """
    query = _QUERIES.get(connection.dialect.name)
    if query is None:
        return []
    if connection.dialect.name == 'postgresql':
        # Without this, PostgreSQL shows the same connections during the whole transaction.
        connection.execute(sa.select(sa.func.pg_stat_clear_snapshot()))
    rows = sql.execute_text(connection, query).all()
    return [Session(row.account, row.address or '', row.program or '', bool(row.is_own)) for row in rows]


def wait_for_disconnects(connection: sa.Connection) -> list[Session]:
    """Wait for up to three seconds until there are no other connections, and return those that remain."""
    deadline = time.monotonic() + _DISCONNECT_GRACE_SECONDS
    while (sessions := list_sessions(connection)) and time.monotonic() <= deadline:
        time.sleep(0.1)
    return sessions


def connections(db: Database) -> list[dict[str, Any]] | None:
    """Count the other connections by account, address without port, and program; return None on SQLite.

    :returns: the fields of ``Session``, and ``connections``, the number. Other accounts come first.
    """
    with db.reader() as connection:
        if connection.dialect.name == 'sqlite':
            return None
        # MariaDB has addresses such as ``10.0.0.1:45678`` or ``localhost``. An IPv6 address has several colons.
        counts = Counter(
            session._replace(address=re.sub(r'^([^:]*):[0-9]+\Z', r'\1', session.address))
            for session in list_sessions(connection)
        )
    ordered = sorted(counts.items(), key=lambda item: (item[0].is_own, -item[1], item[0]))
    return [{**session._asdict(), 'connections': count} for session, count in ordered]
