"""Usages: the amount of each resource class that consumers use."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.generation import ProviderVersion
from placement.objects import base, consumer, inventory, provider_query
from placement.objects.base import Context

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users
_types = tables.consumer_types


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
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[ProviderVersion, UsageList]:
        """Read a provider, and one usage (perhaps 0) for each class that it has inventory of.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_query.read_with_parts(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)

    @classmethod
    def get_all_by_project_user(cls, context: Context, project_id: str, user_id: str | None = None) -> UsageList:
        """Read the usage of the consumers of a project, or of one of its users. Classes without usage are left out.

        :param project_id: external id, as is ``user_id``.
        """
        if not all(sql.storable(text) for text in (project_id, user_id or '')):
            return cls.from_rows(context, [])
        query = _OF_PROJECT if user_id is None else _OF_PROJECT_AND_USER
        return cls.from_rows(context, context.db.fetch_all(query, {'project': project_id, 'user': user_id}))


class UsageGroup(NamedTuple):
    """The usage of the consumers of one type, or of all consumers: ``usages`` maps class name to amount."""

    consumer_type: str
    consumer_count: int
    usages: Mapping[str, int]

    @classmethod
    def get_all(
        cls, context: Context, project_id: str, user_id: str | None = None, type_: str | None = None
    ) -> list[UsageGroup]:
        """Read the usage of the consumers of a project, or of one of its users, by type, in one statement.

        :param project_id: external id, as is ``user_id``.
        :param type_: a name or ``consumer.UNKNOWN_TYPE`` for the group of that type alone, ``ALL`` for one group of all
            consumers, None for a group for each type.
        :returns: groups with at least one consumer; their classes are in order of class id.
        """
        if not all(sql.storable(text) for text in (project_id, user_id or '')):
            return []
        query = _grouped(of_user=user_id is not None, of_type=type_ not in (None, ALL), all_types=type_ == ALL)
        rows = context.db.fetch_all(query, {'project': project_id, 'user': user_id, 'type': type_})
        amounts: dict[str, dict[str, int]] = {}
        for row in rows:
            amounts.setdefault(row.consumer_type, {})[row.resource_class] = row.amount
        return [cls(name, usages.pop(_COUNT), usages) for name, usages in amounts.items()]


#: The name of the group of all consumers.
ALL = 'all'
#: In place of a class name: the row has the number of consumers. No class has such a name.
_COUNT = ''

_WITH_PROVIDER = provider_query.statement(
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


@functools.cache
def _grouped(*, of_user: bool, of_type: bool, all_types: bool) -> sa.CompoundSelect[Any]:
    """Select the number of consumers of each group and their sums by class, with the number first.

    The parameters are ``project``, ``user`` if ``of_user``, and ``type`` if ``of_type``.

    :param all_types: make one group of all types.
    """
    name = sa.literal_column(f"'{ALL}'", sa.String) if all_types else consumer.TYPE_NAME
    by_name = [] if all_types else [consumer.TYPE_NAME]
    consumers = _consumers.join(_projects, _projects.c.id == _consumers.c.project_id)
    consumers = consumers.outerjoin(_types, _types.c.id == _consumers.c.consumer_type_id)
    which = [_projects.c.external_id == sa.bindparam('project')]
    if of_user:
        consumers = consumers.join(_users, _users.c.id == _consumers.c.user_id)
        which.append(_users.c.external_id == sa.bindparam('user'))
    if of_type:
        which.append(sa.bindparam('type') == consumer.TYPE_NAME)
    count: sa.Function[int] = sa.func.count()
    counts = (
        sa.select(
            name.label('consumer_type'),
            sa.literal_column(f"'{_COUNT}'", sa.String).label('resource_class'),
            sa.literal_column('-1', sa.Integer).label('class_id'),
            count.label('amount'),
        )
        .select_from(consumers)
        # A record without allocations, as an adopted database may have, is no consumer.
        .where(*which, sa.exists().where(_allocations.c.consumer_id == _consumers.c.uuid))
        .group_by(*by_name)
        .having(count > 0)
    )
    sums = (
        sa.select(name, _classes.c.name, _classes.c.id, _TOTAL)
        .select_from(consumers)
        .join(_allocations, _allocations.c.consumer_id == _consumers.c.uuid)
        .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .where(*which)
        .group_by(*by_name, _classes.c.id, _classes.c.name)
    )
    return sa.union_all(counts, sums).order_by('class_id')
