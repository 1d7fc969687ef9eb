"""SQLite set up for several processes and threads that write.

In WAL mode readers are not blocked by a writer. A transaction that is going to write takes the write lock when it
begins. So a second writer waits, for up to the busy timeout; it would fail if it took the lock at its first write.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event


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


def prepare(engine: sa.Engine, busy_timeout: int) -> None:
    """Attach the listener that sets up each connection of ``engine``.

    The pool keeps connections open. When the last connection of all processes is closed, SQLite merges the write-ahead
    log into the database file and deletes it.

    :param busy_timeout: seconds that a writer waits for the lock.
    """

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.execute(f'PRAGMA busy_timeout = {int(busy_timeout) * 1000}')
        dbapi_connection.execute('PRAGMA journal_mode = WAL')
        dbapi_connection.execute('PRAGMA foreign_keys = ON')
