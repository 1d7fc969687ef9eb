"""Finds the consumers that have allocations but no record, and the owners that their allocations record."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.db import tables

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers

#: The tables of the owner and the type of a consumer by its column, in the order of ``tables.CONSUMER_COPIES``.
OWNER_COLUMNS = {'project_id': tables.projects, 'user_id': tables.users, 'consumer_type_id': tables.consumer_types}


class LostConsumer(NamedTuple):
    """A consumer that has allocations but no record."""

    uuid: str
    #: The rows of its allocations, in order of their ids.
    allocations: list[Any]
    #: ``OWNER_COLUMNS`` by name, as recorded with the newest allocation whose project and user exist; None if there is
    #: no such allocation. A type that does not exist is None.
    owner: dict[str, Any] | None


def read_lost_consumers(
    tx: sa.Connection, *columns: sa.ColumnElement[Any], uuid: str | None = None, are_inserted: bool = False
) -> Iterator[LostConsumer]:
    """Read all lost consumers in one statement.

    :param columns: columns that the rows of the allocations have besides those of the table.
    :param uuid: read only this consumer.
    :param are_inserted: whether the projects, users and types that other consumers refer to count as existing, because
        an audit inserts them before it repairs lost consumers.
    """
    other = _consumers.alias()
    owner_columns: list[sa.ColumnElement[Any]] = []
    for (name, table), copy in zip(OWNER_COLUMNS.items(), tables.CONSUMER_COPIES, strict=True):
        id_ = _allocations.c[copy]
        exists: sa.ColumnElement[bool] = sa.exists().where(table.c.id == id_)
        if are_inserted:
            exists |= sa.exists().where(other.c[name] == id_)
        owner_columns.append(sa.case((exists, id_)).label(f'owner_{name}'))
    query = (
        sa.select(_allocations, *owner_columns, *columns)
        # Allocations of providers that do not exist are no claims: an audit deletes them, an adoption rejects them.
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .where(_consumers.c.id.is_(None))
        .order_by(_allocations.c.consumer_id, _allocations.c.id)
    )
    if uuid is not None:
        query = query.where(_allocations.c.consumer_id == uuid)
    owner_of = operator.attrgetter(*(column.name for column in owner_columns))
    for consumer, group in itertools.groupby(tx.execute(query), key=operator.attrgetter('consumer_id')):
        rows = list(group)
        owned = [row for row in rows if None not in (row.owner_project_id, row.owner_user_id)]
        owner = dict(zip(OWNER_COLUMNS, owner_of(owned[-1]), strict=True)) if owned else None
        yield LostConsumer(consumer, rows, owner)
