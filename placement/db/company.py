"""Who else is connected to the database."""

from __future__ import annotations

import dataclasses
import time

import sqlalchemy as sa

#: Seconds that other connections get to end, or to wait for our lock.
_LEAVING_SECONDS = 3

#: Not those that change the schema as well, and wait for us. SQLite cannot tell.
_QUESTIONS = {
    'postgresql': (
        'SELECT usename AS account, host(client_addr) AS address, application_name AS program,'
        ' usename = current_user AS own FROM pg_stat_activity'
        " WHERE datname = current_database() AND usename IS NOT NULL AND coalesce(backend_type, '') IN"
        " ('client backend', '') AND pid <> pg_backend_pid()"
        " AND pid NOT IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory')"
    ),
}
_QUESTIONS['mysql'] = _QUESTIONS['mariadb'] = (
    "SELECT user AS account, host AS address, '' AS program, user = substring_index(user(), '@', 1) AS own"
    ' FROM information_schema.processlist WHERE db = database() AND id <> connection_id()'
    " AND coalesce(state, '') <> 'User lock'"
)


@dataclasses.dataclass(frozen=True)
class Other:
    """One connection: of which account, from where, with which program, as far as the server tells.

    ``own``: of the account of the one who asks.
    """

    account: str
    address: str
    program: str
    own: bool

    def __str__(self) -> str:
        where = f' from {self.address}' if self.address else ''
        return f'{self.account}{where}' + (f' ({self.program})' if self.program else '')


def others(connection: sa.Connection) -> list[Other]:
    """The other connections to this database, of those that this account and this node can see."""
    question = _QUESTIONS.get(connection.dialect.name)
    if question is None:
        return []
    if connection.dialect.name == 'postgresql':
        # It shows a transaction what it showed it before.
        connection.execute(sa.select(sa.func.pg_stat_clear_snapshot()))
    rows = connection.exec_driver_sql(question).all()
    return [Other(row.account, row.address or '', row.program or '', bool(row.own)) for row in rows]


def staying(connection: sa.Connection, *, own: bool = False) -> list[Other]:
    """The other connections that do not end within three seconds.

    :param own: only those of the same account.
    """
    deadline = time.monotonic() + _LEAVING_SECONDS
    while found := [one for one in others(connection) if one.own or not own]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    return found
