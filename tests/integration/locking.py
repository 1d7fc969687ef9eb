"""Clients of an application in the process of the test, and one more session of its database that makes them wait."""

from __future__ import annotations

import concurrent.futures
import contextlib
import re
import time
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
import webob

from tests.support.http_client import send_request
from tests.support.waiting import wait_until

#: A request that is not done by then and waits for no lock of the database waits for something else; and the same for
#: one that has to wait for a lock, of which even a busy machine shows that it does.
MAX_SECONDS, MAX_BLOCKED_SECONDS = 1.5, 30
#: So that a request that waits keeps its locks until the test has sent the others. By default, its transaction would be
#: rolled back after 5 s, and another request could go first.
LONG_WAITS = {'lock_wait_timeout': 4 * MAX_BLOCKED_SECONDS, 'socket_timeout': 5 * MAX_BLOCKED_SECONDS}
#: SQLite does not say who waits: a request that is not done by then waits for the lock on the file.
SQLITE_SECONDS = 0.05
#: The sessions of PostgreSQL that wait for a lock in the database of the connection.
POSTGRESQL_WAITING = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
#: The sessions in the database of the connection, and whether they wait for a lock of a table, on MariaDB and MySQL.
MYSQL_SESSIONS = (
    "SELECT id, state LIKE 'Waiting for table%%lock' FROM information_schema.processlist WHERE db = database()"
)

Answer = concurrent.futures.Future[webob.Response]


class Service:
    """An application, a pool of clients, and the session that holds locks.

    :param app: the application.
    :param url: its database.
    """

    def __init__(self, app: Any, url: sa.URL) -> None:
        self.app = app
        # So that MariaDB locks gaps, whatever is its default; SQLite has no such level.
        levels = {} if url.get_backend_name() == 'sqlite' else {'isolation_level': 'REPEATABLE READ'}
        self._engine = sa.create_engine(url, poolclass=sa.NullPool, **levels)
        self._pool = concurrent.futures.ThreadPoolExecutor(4)
        self._answers: list[Answer] = []

    def call(self, method: str, path: str, body: Any = None, version: str = '1.29') -> webob.Response:
        """Send a request and wait for the answer."""
        return send_request(self.app, method, path, body, version)

    def begin(
        self, method: str, path: str, body: Any = None, version: str = '1.29', seconds: float = MAX_SECONDS
    ) -> Answer:
        """Send a request, and wait until it is done or waits for a lock."""
        self._answers = [answer for answer in self._answers if not answer.done()]
        wait_until(lambda: self._waiting() <= len(self._answers), 'more sessions wait than were made to')
        waiting = self._waiting()
        answer = self._pool.submit(self.call, method, path, body, version)
        self._answers.append(answer)
        deadline = time.monotonic() + (SQLITE_SECONDS if self.dialect == 'sqlite' else seconds)
        while not answer.done() and self._waiting() <= waiting and time.monotonic() < deadline:
            concurrent.futures.wait([answer], 0.05)
        return answer

    def begin_blocked(self, method: str, path: str, body: Any = None, version: str = '1.29') -> Answer:
        """Send a request that has to wait for a lock, and wait a moment until it does."""
        answer = self.begin(method, path, body, version, MAX_BLOCKED_SECONDS)
        assert not answer.done(), answer.result().text
        return answer

    @contextlib.contextmanager
    def holding(self, statement: str) -> Iterator[None]:
        """A transaction of another session, which runs one statement and is rolled back at the end."""
        with self._engine.connect() as connection:
            connection.exec_driver_sql(statement)
            yield
            connection.rollback()

    def lock(self, table: str, column: str, value: str) -> contextlib.AbstractContextManager[None]:
        """Lock one row, on SQLite the file, in another session."""
        if self.dialect == 'sqlite':
            return self.holding('BEGIN IMMEDIATE')
        return self.holding(f"SELECT id FROM {table} WHERE {column} = '{value}' FOR UPDATE")

    @property
    def dialect(self) -> str:
        """What SQLAlchemy calls the kind of database."""
        return self._engine.dialect.name

    def _waiting(self) -> int:
        """The number of sessions that wait for a lock."""
        if self.dialect == 'sqlite':
            return 0
        with self._engine.connect() as connection:
            if self.dialect == 'postgresql':
                return len(connection.exec_driver_sql(POSTGRESQL_WAITING).all())
            # Not information_schema.innodb_trx: it shows an old state for as long as it is read every 0.1 s.
            status = connection.exec_driver_sql('SHOW ENGINE INNODB STATUS').one().Status
            sessions = connection.exec_driver_sql(MYSQL_SESSIONS).all()
        waiting = {
            int(session)
            for transaction in status.split('---TRANSACTION')[1:]
            if '\nLOCK WAIT' in transaction
            for session in re.findall(r'(?:MariaDB|MySQL) thread id (\d+)', transaction)
        }
        return sum(bool(in_table or session in waiting) for session, in_table in sessions)

    def scalar(self, query: str) -> Any:
        """The first value that a query returns."""
        with self._engine.connect() as connection:
            return connection.exec_driver_sql(query).scalar()

    def close(self) -> None:
        """End the clients."""
        self._pool.shutdown()
        self._engine.dispose()
