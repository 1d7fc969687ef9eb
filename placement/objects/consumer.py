"""Consumers: the owners of allocations, each with a project, a user and perhaps a type."""

from __future__ import annotations

import sqlalchemy as sa

from placement.db import sql, tables
from placement.objects import allocation, base
from placement.objects.allocation import Allocation
from placement.objects.base import Context

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users
_types = tables.consumer_types

#: The type of consumers without a type, as the API names it.
UNKNOWN_TYPE = 'unknown'

#: The name of the type in a query with an outer join to the table of types.
TYPE_NAME: sa.ColumnElement[str] = sa.func.coalesce(_types.c.name, sa.literal_column(f"'{UNKNOWN_TYPE}'", sa.String))


@base.register
class Consumer(base.PlacementObject):
    """An owner of allocations. It exists as long as it has any; ``placement.claims`` writes both together."""

    VERSION = '1.1'

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str

    @classmethod
    def get_with_allocations(cls, context: Context, uuid: str) -> tuple[Consumer | None, list[Allocation]]:
        """Read a consumer and its allocations.

        ``consumer_type`` is ``UNKNOWN_TYPE`` for a consumer without a type.

        :param uuid: a canonical uuid, or any other text.
        :returns: None and an empty list if there is no such consumer.
        """
        rows = context.db.fetch_all(_WITH_ALLOCATIONS, {'sought': uuid}) if sql.storable(uuid) else []
        if not rows:
            return None, []
        return cls.from_row(context, rows[0]), Allocation.from_rows(context, rows)


_WITH_ALLOCATIONS = (
    sa.select(
        *allocation.COLUMNS,
        _allocations.c.consumer_id.label('uuid'),
        _consumers.c.generation,
        _projects.c.external_id.label('project_id'),
        _users.c.external_id.label('user_id'),
        TYPE_NAME.label('consumer_type'),
    )
    .select_from(
        _allocations.join(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .join(_projects, _projects.c.id == _consumers.c.project_id)
        .join(_users, _users.c.id == _consumers.c.user_id)
        .outerjoin(_types, _types.c.id == _consumers.c.consumer_type_id)
    )
    .where(_allocations.c.consumer_id == sa.bindparam('sought'))
    .order_by(_allocations.c.id)
)
