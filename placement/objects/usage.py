"""Usages: how much of each resource class is used."""

from __future__ import annotations

import sqlalchemy as sa

from placement.db import statements, tables
from placement.objects import base, inventory, provider_parts
from placement.objects.base import Context

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users


@base.register
class Usage(base.PlacementObject):
    """The amount of one class that is used."""

    VERSION = '1.0'

    resource_class: str
    usage: int


@base.register
class UsageList(base.ObjectList[Usage]):
    """Usages in order of class id, each class once."""

    VERSION = '1.0'

    @classmethod
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[provider_parts.Provider, UsageList]:
        """Read a provider, and one usage (perhaps 0) for each class that it has inventory of.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)

    @classmethod
    def get_all_by_project_user(cls, context: Context, project_id: str, user_id: str | None = None) -> UsageList:
        """Read what all consumers of a project hold, or those of one of its users. Classes without usage are left out.

        :param project_id: external id, as is ``user_id``.
        """
        if not all(statements.storable(text) for text in (project_id, user_id or '')):
            return cls.from_rows(context, [])
        query = _OF_PROJECT if user_id is None else _OF_PROJECT_AND_USER
        return cls.from_rows(context, context.db.ask(query, {'project': project_id, 'user': user_id}))


_WITH_PROVIDER = provider_parts.statement(
    inventory.JOINED,
    _classes.c.id,
    _classes.c.name.label('resource_class'),
    _inventories.c.used.label('usage'),
)

# On some databases the sum of integers is a decimal.
_TOTAL = sa.cast(sa.func.sum(_allocations.c.used), sa.BigInteger)
_OF_PROJECT = (
    sa.select(_classes.c.name.label('resource_class'), _TOTAL.label('usage'))
    .join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
    .join(_projects, _projects.c.id == _consumers.c.project_id)
    .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .where(_projects.c.external_id == sa.bindparam('project'))
    .group_by(_classes.c.id, _classes.c.name)
    .order_by(_classes.c.id)
)
_OF_PROJECT_AND_USER = _OF_PROJECT.join(_users, _users.c.id == _consumers.c.user_id).where(
    _users.c.external_id == sa.bindparam('user')
)
