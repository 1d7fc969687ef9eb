"""What is asked of the database to watch over the service: does it answer, and how full is the cloud."""

from __future__ import annotations

from typing import NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

from placement import exception
from placement.db import tables
from placement.db.api import Database, NoTables

#: What reading raises when the database is away, or is not ours.
TROUBLES = (exception.DatabaseUnavailable, db_exc.DBError, sa_exc.SQLAlchemyError)


class ClassTotals(NamedTuple):
    """The sums over all inventories of one resource class."""

    resource_class: str
    total: int
    reserved: int
    used: int


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


def totals_by_class(db: Database) -> list[ClassTotals]:
    """Sums of ``total``, ``reserved`` and ``used`` for each class that has inventory: one grouped query.

    :raises TROUBLES: the database cannot be read.
    """
    inventories, classes = tables.inventories.c, tables.resource_classes.c
    columns = (sa.cast(sa.func.sum(inventories[name]), sa.BigInteger) for name in ('total', 'reserved', 'used'))
    statement = (
        sa.select(classes.name, *columns)
        .join_from(tables.inventories, tables.resource_classes, inventories.resource_class_id == classes.id)
        .group_by(classes.id, classes.name)
        .order_by(classes.name)
    )
    with db.reader() as connection:
        return [ClassTotals(*row) for row in connection.execute(statement)]
