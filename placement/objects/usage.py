"""Usages: the amount of each resource class that consumers use."""

from __future__ import annotations

import functools
from typing import Any

import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.generation import ProviderGeneration
from placement.objects import base, consumer, inventory
from placement.objects.base import Context

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users
_types = tables.consumer_types


def get_with_provider(context: Context, uuid: str) -> tuple[ProviderGeneration, dict[str, int]]:
    """Read a provider and the usage, perhaps 0, of each class of its inventories.

    :param uuid: a canonical uuid.
    :raises ResourceProviderNotFound: no such provider.
    """
    provider, rows = base.read_with_provider(context, _WITH_PROVIDER, uuid)
    return provider, {row.resource_class: row.used for row in rows}


_WITH_PROVIDER = base.with_provider(
    inventory.JOINED, _classes.c.id, _classes.c.name.label('resource_class'), _inventories.c.used
)


def get_by_project(context: Context, project_id: str, user_id: str | None = None) -> dict[str, int]:
    """Read the usage of the consumers of a project, or of one of its users, by class name, in order of class id.

    Classes without usage are left out.

    :param project_id: external id of the project.
    :param user_id: external id of the user; None for all users.
    """
    return _read_groups(context, project_id, user_id, ALL, with_counts=False).get(ALL, {})


def get_by_consumer_type(
    context: Context, project_id: str, user_id: str | None = None, type_: str | None = None
) -> dict[str, dict[str, int]]:
    """Read the usage of the consumers of a project, or of one of its users, by type, in one statement.

    :param project_id: external id of the project.
    :param user_id: external id of the user; None for all users.
    :param type_: the type of the only group, which may be ``consumer.UNKNOWN_TYPE``; ``ALL`` for one group of all
        consumers; None for one group per type.
    :returns: by type, for groups with at least one consumer: the number of consumers as ``CONSUMER_COUNT``, then the
        amounts by class name, in order of class id.
    """
    groups = _read_groups(context, project_id, user_id, type_, with_counts=True)
    # A type that has only allocations whose consumers somebody deleted by hand has no group.
    return {name: group for name, group in groups.items() if CONSUMER_COUNT in group}


def _read_groups(
    context: Context, project_id: str, user_id: str | None, type_: str | None, *, with_counts: bool
) -> dict[str, dict[str, int]]:
    if not all(sql.storable(text) for text in (project_id, user_id or '')):
        return {}
    query = _grouped(
        of_user=user_id is not None, of_type=type_ not in (None, ALL), all_types=type_ == ALL, with_counts=with_counts
    )
    groups: dict[str, dict[str, int]] = {}
    for row in context.db.fetch_all(query, {'project': project_id, 'user': user_id, 'type': type_}):
        groups.setdefault(row.consumer_type, {})[row.resource_class] = row.amount
    return groups


#: The name of the group of all consumers.
ALL = 'all'
#: Instead of a class name: the row has the number of consumers. No class has a name in lower case.
CONSUMER_COUNT = 'consumer_count'

_PROJECT = sa.select(_projects.c.id).where(_projects.c.external_id == sa.bindparam('project')).scalar_subquery()
_USER = sa.select(_users.c.id).where(_users.c.external_id == sa.bindparam('user')).scalar_subquery()


def _amounts(*, of_user: bool) -> list[sa.Select[Any]]:
    """Return queries of amounts by type of consumer and class. They may return several rows for one type and class.

    For allocations with copies of the columns of their consumer, one index has all columns of the query, in the order
    of the groups, so the database neither reads nor sorts rows.
    """
    copies, copied = _allocations.c, _allocations.c.consumer_project_id
    amount = sa.func.sum(_allocations.c.used).label('amount')
    read_from_copies = (
        sa.select(copies.consumer_type_id, copies.resource_class_id, amount)
        .where(copied == _PROJECT, *([copies.consumer_user_id == _USER] if of_user else []))
        .group_by(copies.consumer_user_id, copies.consumer_type_id, copies.resource_class_id)
    )
    read_from_consumers = (
        sa.select(_consumers.c.consumer_type_id, copies.resource_class_id, amount)
        .join(_consumers, _consumers.c.uuid == copies.consumer_id)
        # "+ 0" keeps a database from beginning with all consumers of the project: few allocations have no copies.
        .where(copied.is_(None), _consumers.c.project_id + 0 == _PROJECT)
        .where(*([_consumers.c.user_id + 0 == _USER] if of_user else []))
        .group_by(_consumers.c.consumer_type_id, copies.resource_class_id)
    )
    return [read_from_copies, read_from_consumers]


@functools.cache
def _grouped(*, of_user: bool, of_type: bool, all_types: bool, with_counts: bool) -> sa.Select[str, Any, int]:
    """Select for each group the number of consumers if ``with_counts``, then the sums by class.

    The parameters are ``project``, ``user`` if ``of_user``, and ``type`` if ``of_type``.

    :param all_types: make one group of all types.
    """
    count: sa.Function[int] = sa.func.count()
    counts = (
        sa.select(
            _consumers.c.consumer_type_id,
            sa.literal_column('-1', sa.Integer).label('resource_class_id'),
            count.label('amount'),
        )
        .where(_consumers.c.project_id == _PROJECT, *([_consumers.c.user_id == _USER] if of_user else []))
        # A record without allocations, which an adopted database may have, does not count as a consumer.
        .where(sa.exists().where(_allocations.c.consumer_id == _consumers.c.uuid))
        .group_by(_consumers.c.consumer_type_id)
    )
    amounts = _amounts(of_user=of_user)
    rows = sa.union_all(*([counts, *amounts] if with_counts else amounts)).subquery()
    type_name = sa.literal_column(f"'{ALL}'", sa.String) if all_types else consumer.TYPE_NAME
    class_name = sa.func.coalesce(_classes.c.name, sa.literal_column(f"'{CONSUMER_COUNT}'", sa.String))
    keys = [rows.c.resource_class_id, class_name] if all_types else [type_name, rows.c.resource_class_id, class_name]
    return (
        sa.select(
            type_name.label('consumer_type'),
            class_name.label('resource_class'),
            # On some databases the sum of integers is a decimal.
            sa.cast(sa.func.sum(rows.c.amount), sa.BigInteger).label('amount'),
        )
        .select_from(rows)
        .outerjoin(_types, _types.c.id == rows.c.consumer_type_id)
        .outerjoin(_classes, _classes.c.id == rows.c.resource_class_id)
        .where(*([sa.bindparam('type') == consumer.TYPE_NAME] if of_type else []))
        .group_by(*keys)
        .order_by(rows.c.resource_class_id)
    )
