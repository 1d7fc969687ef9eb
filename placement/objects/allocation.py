"""Allocations as they are read. ``placement.claims.claim`` writes them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement.db import names, tables
from placement.objects import base, provider_parts
from placement.objects.base import fields

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users


@base.register
class Allocation(base.Timestamped):
    """The amount of one class on one provider that one consumer holds."""

    resource_provider_uuid: str
    resource_provider_generation: int
    consumer_uuid: str
    consumer_generation: int
    project_id: str
    user_id: str
    resource_class: str
    used: int
    fields = {
        'resource_provider_uuid': fields.StringField(),
        'resource_provider_generation': fields.IntegerField(),
        'consumer_uuid': fields.StringField(),
        'consumer_generation': fields.IntegerField(),
        'project_id': fields.StringField(),
        'user_id': fields.StringField(),
        'resource_class': fields.StringField(),
        'used': fields.IntegerField(),
    }


@base.register
class AllocationList(base.ObjectList):
    """Allocations in the order they were written."""

    fields = {'objects': fields.ListOfObjectsField('Allocation')}

    @classmethod
    def get_all_by_consumer(cls, context: Any, consumer_uuid: str) -> AllocationList:
        """What the consumer with this canonical uuid holds; nothing for text that is no consumer."""
        if not names.storable(consumer_uuid):
            return cls.from_rows(context, Allocation, [])
        rows = context.db.ask(_OF_CONSUMER, {'consumer': consumer_uuid, **_nobody(context)})
        return cls.from_rows(context, Allocation, rows)

    @classmethod
    def get_with_provider(cls, context: Any, uuid: str) -> tuple[provider_parts.Provider, AllocationList]:
        """A provider and what anybody holds on it.

        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid, **_nobody(context))
        return provider, cls.from_rows(context, Allocation, rows)


def _nobody(context: Any) -> dict[str, str]:
    """Project and user of an allocation of an adopted database that lacks a consumer record."""
    options = context.conf.placement
    return {
        'nobody_project': options.incomplete_consumer_project_id,
        'nobody_user': options.incomplete_consumer_user_id,
    }


_WITH_CONSUMERS = (
    _allocations.join(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
    .outerjoin(_projects, _projects.c.id == _consumers.c.project_id)
    .outerjoin(_users, _users.c.id == _consumers.c.user_id)
)
_COLUMNS = (
    _allocations.c.used,
    _allocations.c.created_at,
    _allocations.c.updated_at,
    _allocations.c.consumer_id.label('consumer_uuid'),
    _classes.c.name.label('resource_class'),
    _providers.c.uuid.label('resource_provider_uuid'),
    _providers.c.generation.label('resource_provider_generation'),
    sa.func.coalesce(_consumers.c.generation, 0).label('consumer_generation'),
    sa.func.coalesce(_projects.c.external_id, sa.bindparam('nobody_project', type_=sa.String)).label('project_id'),
    sa.func.coalesce(_users.c.external_id, sa.bindparam('nobody_user', type_=sa.String)).label('user_id'),
)
_OF_CONSUMER = (
    sa.select(*_COLUMNS)
    .select_from(_WITH_CONSUMERS.join(_providers, _providers.c.id == _allocations.c.resource_provider_id))
    .where(_allocations.c.consumer_id == sa.bindparam('consumer'))
    .order_by(_allocations.c.id)
)
_WITH_PROVIDER = provider_parts.statement(
    _WITH_CONSUMERS, _allocations.c.resource_provider_id, _allocations.c.id, *_COLUMNS
)
