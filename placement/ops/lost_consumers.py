"""Finds the consumers that have allocations but no record, and the owners that their allocations record."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.db import tables

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_projects, _users = tables.projects, tables.users

#: The columns of the owner and the type of a consumer, in the order of ``tables.CONSUMER_COPIES``.
OWNER_COLUMNS = ('project_id', 'user_id', 'consumer_type_id')


class LostConsumer(NamedTuple):
    """A consumer that has allocations but no record."""

    uuid: str
    #: The rows of its allocations, in order of their ids.
    allocations: list[Any]
    #: ``OWNER_COLUMNS`` by name, as recorded with the newest allocation whose project and user exist; None if there is
    #: no such allocation.
    owner: dict[str, Any] | None


def read_lost_consumers(
    tx: sa.Connection, *columns: sa.ColumnElement[Any], uuid: str | None = None
) -> Iterator[LostConsumer]:
    """Read all lost consumers in one statement.

    :param columns: columns that the rows of the allocations have besides those of the table.
    :param uuid: read only this consumer.
    """
    owner_exists = sa.and_(_projects.c.id.is_not(None), _users.c.id.is_not(None)).label('owner_exists')
    query = (
        sa.select(_allocations, owner_exists, *columns)
        # Allocations of providers that do not exist are no claims: an audit deletes them, an adoption rejects them.
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .outerjoin(_projects, _projects.c.id == _allocations.c.consumer_project_id)
        .outerjoin(_users, _users.c.id == _allocations.c.consumer_user_id)
        .where(_consumers.c.id.is_(None))
        .order_by(_allocations.c.consumer_id, _allocations.c.id)
    )
    if uuid is not None:
        query = query.where(_allocations.c.consumer_id == uuid)
    copies = operator.attrgetter(*tables.CONSUMER_COPIES)
    for consumer, group in itertools.groupby(tx.execute(query), key=operator.attrgetter('consumer_id')):
        rows = list(group)
        owned = [row for row in rows if row.owner_exists]
        owner = dict(zip(OWNER_COLUMNS, copies(owned[-1]), strict=True)) if owned else None
        yield LostConsumer(consumer, rows, owner)
