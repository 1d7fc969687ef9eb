"""Allocations as they are read. ``placement.objects.claim`` writes them."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement.db import names, tables
from placement.objects import base
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
        return cls._where(context, _allocations.c.consumer_id == consumer_uuid)

    @classmethod
    def get_all_by_provider(cls, context: Any, provider: Any) -> AllocationList:
        """What anybody holds on a ``ResourceProvider``."""
        return cls._where(context, _allocations.c.resource_provider_id == provider.id)

    @classmethod
    def _where(cls, context: Any, condition: sa.ColumnElement[bool]) -> AllocationList:
        with context.db.reader() as tx:
            rows = tx.execute(_select(context.conf.placement).where(condition)).all()
        return cls.from_rows(context, Allocation, rows)


def _select(options: Any) -> sa.Select[Any]:
    """All allocations. Those of an adopted database may lack a consumer record (contract B 2.1)."""
    return (
        sa.select(
            _allocations.c.used,
            _allocations.c.created_at,
            _allocations.c.updated_at,
            _allocations.c.consumer_id.label('consumer_uuid'),
            _classes.c.name.label('resource_class'),
            _providers.c.uuid.label('resource_provider_uuid'),
            _providers.c.generation.label('resource_provider_generation'),
            sa.func.coalesce(_consumers.c.generation, 0).label('consumer_generation'),
            sa.func.coalesce(_projects.c.external_id, options.incomplete_consumer_project_id).label('project_id'),
            sa.func.coalesce(_users.c.external_id, options.incomplete_consumer_user_id).label('user_id'),
        )
        .select_from(_allocations)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .outerjoin(_projects, _projects.c.id == _consumers.c.project_id)
        .outerjoin(_users, _users.c.id == _consumers.c.user_id)
        .order_by(_allocations.c.id)
    )
