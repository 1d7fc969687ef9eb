"""Whether the database can be used, when it was last changed, and who is connected to it."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from placement import exception
from placement.db import other_connections, tables
from placement.db.api import Database, NoTables
from placement.mirror import keeper

#: The exceptions that reading raises when the database is unavailable, or does not have our tables.
TROUBLES = (exception.DatabaseUnavailable, db_exc.DBError, sa_exc.SQLAlchemyError)


def trouble(db: Database) -> str | None:
    """Return a sentence that says why the database cannot be used at the moment; None when it can be used.

    The sentence names no host, user or statement, because health checks show it to anybody.
    """
    try:
        with db.reader() as connection:
            connection.execute(sa.select(tables.resource_providers.c.id).limit(1))
    except NoTables:
        return 'The database does not have the expected tables.'
    except (exception.DatabaseUnavailable, db_exc.DBNonExistentDatabase):
        return 'The database cannot be reached.'
    except TROUBLES:
        return 'The database does not have the expected tables.'
    return None


def seconds_since_change(db: Database) -> float | None:
    """How long ago the newest entry of the log of changes was written; None when the log is empty."""
    with db.reader() as connection:
        return min(keeper.silent_seconds(connection).values(), default=None)


class Connections(NamedTuple):
    """How many connections to the database one account has from one address with one program.

    ``own`` says whether it is the account of this service.
    """

    account: str
    address: str
    program: str
    own: bool
    connections: int


def connections(db: Database) -> list[Connections] | None:
    """The connections to the database besides this one, those of other accounts first; None on SQLite."""
    with db.reader() as connection:
        if connection.dialect.name == 'sqlite':
            return None
        found = Counter(
            (one.account, _without_port(one.address), one.program, one.own)
            for one in other_connections.others(connection)
        )
    rows = (Connections(*place, connections=count) for place, count in found.items())
    return sorted(rows, key=lambda one: (one.own, -one.connections, one))


def _without_port(address: str) -> str:
    """Return the host in an address, which MariaDB gives as ``10.0.0.1:45678`` or ``localhost``."""
    host, colon, port = address.rpartition(':')
    return host if colon and port.isdigit() and ':' not in host else address
