"""SQLite set up for several processes and threads that write.

In WAL mode readers are not blocked by a writer. A transaction that is going to write takes the write lock when it
begins. So a second writer waits, for up to the busy timeout; it would fail if it took the lock at its first write.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import weakref
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: Execution option of a connection whose next transaction writes.
WRITES = 'placement_writes'


@contextlib.contextmanager
def without_foreign_keys(connection: sa.Connection) -> Iterator[None]:
    """Turn off the checks of foreign keys for a transaction that begins in the block.

    With them no table could be replaced. Does nothing on other databases.
    """
    if connection.dialect.name != 'sqlite':
        yield
        return
    driver: Any = connection.connection.dbapi_connection
    (checked,) = driver.execute('PRAGMA foreign_keys').fetchone()
    driver.execute('PRAGMA foreign_keys = OFF')
    try:
        yield
    finally:
        driver.execute(f'PRAGMA foreign_keys = {checked}')


class Keeper:
    """Keeps one idle connection open in each process.

    SQLite merges the write-ahead log into the database file and deletes it when the last connection is closed. oslo.db
    opens and closes a connection for each transaction, so without this that would happen at nearly every one.

    :param path: the file, None for a database in memory, which needs none.
    """

    def __init__(self, path: str | None) -> None:
        self._path = path
        self._kept: dict[int, sqlite3.Connection] = {}
        # For owners that do not call ``close``.
        weakref.finalize(self, _close, self._kept)

    def keep(self) -> None:
        """Open the connection of this process unless it is open. One inherited through a fork is not used."""
        if self._path and os.getpid() not in self._kept:
            connection = sqlite3.connect(self._path, check_same_thread=False)
            try:
                # SQLite opens the file at the first statement.
                connection.execute('PRAGMA schema_version').fetchone()
            except sqlite3.Error:
                connection.close()
                raise
            self._kept[os.getpid()] = connection

    def close(self) -> None:
        """Close this process's connection."""
        _close(self._kept)


def _close(kept: dict[int, sqlite3.Connection]) -> None:
    connection = kept.pop(os.getpid(), None)
    if connection is not None:
        connection.close()


def prepare(engine: sa.Engine, busy_timeout: int) -> Keeper:
    """Attach the listeners that set up each connection and begin each transaction of ``engine``.

    :param busy_timeout: seconds that a writer waits for the lock.
    :returns: what holds the database open between transactions.
    """
    keeper = Keeper(engine.url.database if engine.url.database != ':memory:' else None)

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.execute(f'PRAGMA busy_timeout = {int(busy_timeout) * 1000}')
        dbapi_connection.execute('PRAGMA journal_mode = WAL')
        # After the switch: a connection that was opened before it would not keep the write-ahead log.
        keeper.keep()

    # oslo.db begins each transaction with a plain BEGIN, which takes no lock.
    @event.listens_for(engine, 'before_cursor_execute', retval=True)
    def begin_with_lock(
        connection: sa.Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool
    ) -> tuple[str, Any]:
        if statement == 'BEGIN' and connection.get_execution_options().get(WRITES):
            statement = 'BEGIN IMMEDIATE'
        return statement, parameters

    return keeper
