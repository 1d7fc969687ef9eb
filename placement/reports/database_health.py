"""Reports whether the database can be used, when it was last changed, and who is connected to it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import errors, sessions, tables, types
from placement.db.api import Database, SchemaMissing


def trouble(db: Database) -> str | None:
    """Return a sentence that says why the database cannot be used at the moment; None when it can be used.

    The sentence names no host, user or statement, because health checks show it to anybody.
    """
    try:
        with db.reader() as connection:
            connection.execute(sa.select(tables.resource_providers.c.id).limit(1))
    except SchemaMissing:
        return 'The database does not have the expected tables.'
    except (exception.DatabaseUnavailable, db_exc.DBNonExistentDatabase):
        return 'The database cannot be reached.'
    except errors.DATABASE_ERRORS:
        return 'The database does not have the expected tables.'
    return None


def seconds_since_change(db: Database) -> float | None:
    """Return how many seconds ago, by the clock of the database, the newest entry was appended to the change log."""
    slots = tables.change_log_slots.c
    newest = sa.select(sa.func.max(slots.updated_at).label('at'), types.UtcNow().label('now')).where(slots.sequence > 0)
    with db.reader() as connection:
        row = connection.execute(newest).one()
    return None if row.at is None else float((row.now - row.at).total_seconds())


class Connections(NamedTuple):
    """The number of connections to the database that one account has from one address with one program.

    ``own`` says whether it is the account of this service.
    """

    account: str
    address: str
    program: str
    own: bool
    connections: int


def connections(db: Database) -> list[Connections] | None:
    """Return the connections to the database besides this one, those of other accounts first; None on SQLite."""
    with db.reader() as connection:
        if connection.dialect.name == 'sqlite':
            return None
        found = Counter(
            (one.account, _without_port(one.address), one.program, one.own) for one in sessions.list_others(connection)
        )
    rows = (Connections(*place, connections=count) for place, count in found.items())
    return sorted(rows, key=lambda one: (one.own, -one.connections, one))


def _without_port(address: str) -> str:
    """Return the host in an address, which MariaDB gives as ``10.0.0.1:45678`` or ``localhost``."""
    host, colon, port = address.rpartition(':')
    return host if colon and port.isdigit() and ':' not in host else address
