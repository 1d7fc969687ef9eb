"""SQLite set up for several processes and threads that write.

WAL lets readers go on while one writes. A transaction that will write takes the write lock when it begins, so that
two writers queue (for up to the busy timeout) instead of failing when the second tries to upgrade its read lock.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: Execution option of a connection whose next transaction writes.
WRITES = 'placement_writes'


def prepare(engine: sa.Engine, busy_timeout: int) -> None:
    """Attach the listeners that set up each connection and begin each transaction of ``engine``.

    :param busy_timeout: seconds that a writer waits for the lock.
    """

    @event.listens_for(engine, 'connect')
    def set_up(dbapi_connection: Any, _record: Any) -> None:
        dbapi_connection.execute(f'PRAGMA busy_timeout = {int(busy_timeout) * 1000}')
        dbapi_connection.execute('PRAGMA journal_mode = WAL')

    # oslo.db begins each transaction with a plain BEGIN, which takes no lock yet.
    @event.listens_for(engine, 'before_cursor_execute', retval=True)
    def begin_with_lock(
        connection: sa.Connection, _cursor: Any, statement: str, parameters: Any, _context: Any, _many: bool
    ) -> tuple[str, Any]:
        if statement == 'BEGIN' and connection.get_execution_options().get(WRITES):
            statement = 'BEGIN IMMEDIATE'
        return statement, parameters
