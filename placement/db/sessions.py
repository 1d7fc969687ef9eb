"""Lists the other connections to the database: their processes may have to be stopped."""

from __future__ import annotations

import dataclasses
import time

import sqlalchemy as sa

from placement.db import sql

#: How many seconds other connections have to close, or to begin to wait for our lock on the schema.
_DISCONNECT_GRACE_SECONDS = 3

#: By dialect, the query of the other connections, except those that wait for our lock to change the schema. SQLite has
#: no list of connections.
_QUERIES = {
    'postgresql': (
        'SELECT usename AS account, host(client_addr) AS address, application_name AS program,'
        ' usename = current_user AS own FROM pg_stat_activity'
        " WHERE datname = current_database() AND usename IS NOT NULL AND coalesce(backend_type, '') IN"
        " ('client backend', '') AND pid <> pg_backend_pid()"
        " AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
    ),
}
_QUERIES['mysql'] = _QUERIES['mariadb'] = (
    "SELECT user AS account, host AS address, '' AS program, user = substring_index(user(), '@', 1) AS own"
    ' FROM information_schema.processlist WHERE db = database() AND id <> connection_id()'
    " AND coalesce(state, '') <> 'User lock'"
)


@dataclasses.dataclass(frozen=True)
class Session:
    """One connection: its database account, the client's address and program. They are empty if unknown.

    ``own`` tells whether it has the same account as the connection that reads this.
    """

    account: str
    address: str
    program: str
    own: bool

    def __str__(self) -> str:
        where = f' from {self.address}' if self.address else ''
        return f'{self.account}{where}' + (f' ({self.program})' if self.program else '')


def list_others(connection: sa.Connection) -> list[Session]:
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
    return [Session(row.account, row.address or '', row.program or '', bool(row.own)) for row in rows]


def wait_for_disconnects(connection: sa.Connection) -> list[Session]:
    """Wait for up to three seconds until there are no other connections, and return those that remain."""
    deadline = time.monotonic() + _DISCONNECT_GRACE_SECONDS
    while (others := list_others(connection)) and time.monotonic() <= deadline:
        time.sleep(0.1)
    return others
