"""What hangs on a provider, read along with the provider: one statement, one round trip, one state of the database."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.db import statements, tables
from placement.objects.base import Context

_providers = tables.resource_providers

#: The column that tells a part from the one row without parts that a provider has which owns none.
_PART = 'part_id'


class Provider(NamedTuple):
    """What an answer about the parts of a provider says of the provider itself."""

    id: int
    uuid: str
    generation: int


def statement(
    parts: sa.FromClause, owner: sa.ColumnElement[int], order: sa.ColumnElement[int], *columns: sa.ColumnElement[Any]
) -> sa.Select[Any]:
    """What ``read`` runs for what belongs to a provider. Built once, at import.

    :param parts: tables, joined with one another.
    :param owner: the column among them that holds the id of the provider.
    :param order: as for ``beside``.
    :param columns: as for ``beside``.
    """
    return beside(parts, owner == _providers.c.id, order, *columns)


def beside(
    parts: sa.FromClause, which: sa.ColumnElement[bool], order: sa.ColumnElement[int], *columns: sa.ColumnElement[Any]
) -> sa.Select[Any]:
    """What ``read`` runs for anything that is read along with a provider.

    :param parts: tables, joined with one another.
    :param which: selects among them.
    :param order: what to sort by; never NULL in a part.
    :param columns: what to select of each part.
    """
    return (
        sa.select(
            _providers.c.id.label('owner_id'),
            _providers.c.generation.label('owner_generation'),
            order.label(_PART),
            *columns,
        )
        .select_from(_providers.outerjoin(parts, which))
        .where(_providers.c.uuid == sa.bindparam('owner_uuid'))
        .order_by(order)
    )


def read(context: Context, query: sa.Executable, uuid: str, **parameters: Any) -> tuple[Provider, list[sa.Row[Any]]]:
    """The provider with a canonical ``uuid``, and a row for each of its parts.

    :param query: made by ``statement`` or ``beside``.
    :param parameters: what ``query`` has parameters for beyond the uuid.
    :raises ResourceProviderNotFound: there is none.
    """
    # No provider has a uuid that no database can hold.
    rows = context.db.ask(query, {'owner_uuid': uuid, **parameters}) if statements.storable(uuid) else []
    if not rows:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    first = rows[0]
    provider = Provider(first.owner_id, uuid, first.owner_generation)
    return provider, [row for row in rows if getattr(row, _PART) is not None]
