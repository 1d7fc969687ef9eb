"""Reads a provider together with its *parts* (inventories, traits, aggregates, allocations or usages) in one statement.

That takes one round trip, and the generation of the provider and its parts are of one state of the database.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.db import sql, tables
from placement.db.generation import ProviderVersion
from placement.objects.base import Context

# ``ProviderVersion`` is for annotations in handlers, which import nothing of ``db``.
__all__ = ['ProviderVersion', 'read_with_parts', 'statement']

_providers = tables.resource_providers

#: The column that is NULL in the one row of a provider without parts, as the outer join gives it.
_PART = 'part_id'


def statement(
    parts: sa.Join,
    part: sa.ColumnElement[int],
    *columns: sa.ColumnElement[Any],
    order: sa.ColumnElement[int] | None = None,
) -> sa.Select[Any]:
    """Make a query for ``read_with_parts``. To be called once, at import.

    :param parts: the providers and, by outer joins one after another, the tables of the parts. Not an outer join of
        tables that are joined with one another: SQLite reads the whole of these first.
    :param part: the id in the last of the tables that a part must have: NULL where there is no whole part.
    :param columns: the columns of ``parts`` to select.
    :param order: the column to sort by, ``part`` if it is not given.
    """
    return (
        sa.select(
            _providers.c.id.label('owner_id'),
            _providers.c.generation.label('owner_generation'),
            part.label(_PART),
            *columns,
        )
        .select_from(parts)
        .where(_providers.c.uuid == sa.bindparam('owner_uuid'))
        .order_by(part if order is None else order)
    )


def read_with_parts(
    context: Context, query: sa.Executable, uuid: str, **parameters: Any
) -> tuple[ProviderVersion, list[sa.Row[Any]]]:
    """Read a provider and its parts.

    :param query: made by ``statement``.
    :param uuid: canonical.
    :param parameters: values of further bind parameters of ``query``.
    :returns: the provider, and a row with the columns of ``query`` for each part.
    :raises ResourceProviderNotFound: there is no such provider.
    """
    # No provider has a uuid that cannot be stored.
    rows = context.db.fetch_all(query, {'owner_uuid': uuid, **parameters}) if sql.storable(uuid) else []
    if not rows:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    first = rows[0]
    provider = ProviderVersion(first.owner_id, uuid, first.owner_generation)
    return provider, [row for row in rows if getattr(row, _PART) is not None]
