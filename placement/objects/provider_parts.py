"""What hangs on a provider, read along with the provider: one statement, one round trip, one state of the database."""

from __future__ import annotations

from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.db import statements, tables
from placement.objects.base import Context

_providers = tables.resource_providers

#: The column that is NULL in the only row of a provider that has no parts.
_PART = 'part_id'


class Provider(NamedTuple):
    """What an answer about the parts of a provider says of the provider itself."""

    id: int
    uuid: str
    generation: int


def statement(
    parts: sa.Join,
    part: sa.ColumnElement[int],
    *columns: sa.ColumnElement[Any],
    order: sa.ColumnElement[int] | None = None,
) -> sa.Select[Any]:
    """What ``read`` runs. Built once, at import.

    :param parts: the providers and, by outer joins one after another, the tables of what belongs to each. Not an outer
        join of tables that are joined with one another: SQLite reads the whole of these first.
    :param part: the column that is not NULL where a part is whole: the id in the last of the tables that it must have.
    :param columns: what to select of each part.
    :param order: what to sort by, ``part`` if it is not given.
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


def read(context: Context, query: sa.Executable, uuid: str, **parameters: Any) -> tuple[Provider, list[sa.Row[Any]]]:
    """The provider with a canonical ``uuid``, and a row for each of its parts.

    :param query: made by ``statement``.
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
