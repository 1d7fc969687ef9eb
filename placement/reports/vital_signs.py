"""Whether the service can work with its database."""

from __future__ import annotations

import sqlalchemy as sa
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from placement import exception
from placement.db import tables
from placement.db.api import Database, NoTables

#: What reading raises when the database is away, or is not ours.
TROUBLES = (exception.DatabaseUnavailable, db_exc.DBError, sa_exc.SQLAlchemyError)


def trouble(db: Database) -> str | None:
    """Why the service cannot work with its database at the moment, as one short sentence; None when it can.

    The sentence names no host, user or statement: whoever asks need not be an operator.
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
