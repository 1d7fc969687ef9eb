"""Checks that ids are never given twice, for each kind of row and on every database."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import sqlalchemy as sa

from placement.claims.claim import delete_allocations
from placement.db import tables
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.ops import audit
from placement.web.context import RequestContext
from tests.support.objects import claim, create_provider


def _name() -> str:
    return f'CUSTOM_{uuid.uuid4().hex.upper()}'


def _id(context: RequestContext, column: sa.Column[str], value: str) -> int:
    with context.db.reader() as tx:
        return int(tx.execute(sa.select(column.table.c.id).where(column == value)).scalar_one())


def _resource_class(context: RequestContext) -> int:
    resource_class = ResourceClass.create(context, _name())
    ResourceClass.destroy(context, resource_class.name)
    return resource_class.id


def _trait(context: RequestContext) -> int:
    trait = Trait.create(context, _name())
    Trait.destroy(context, trait.name)
    return trait.id


def _resource_provider(context: RequestContext) -> int:
    provider = create_provider(context)
    ResourceProvider.destroy(context, provider.uuid)
    return provider.id


def _consumer(context: RequestContext) -> int:
    consumer = claim(context, {create_provider(context, VCPU=1).uuid: {'VCPU': 1}})
    id_ = _id(context, tables.consumers.c.uuid, consumer)
    delete_allocations(context.db, consumer)
    return id_


def _aggregate(context: RequestContext) -> int:
    provider, aggregate = create_provider(context), str(uuid.uuid4())
    provider.set_aggregates([aggregate], increment_generation=False)
    id_ = _id(context, tables.placement_aggregates.c.uuid, aggregate)
    provider.set_aggregates([], increment_generation=False)
    for finding in audit.find(context.db, context.conf, 'orphaned_aggregate'):
        audit.repair(context.db, finding)
    return id_


#: By kind: a function that creates one, deletes it, and returns its id.
KINDS: dict[str, Callable[[RequestContext], int]] = {
    'resource class': _resource_class,
    'trait': _trait,
    'resource provider': _resource_provider,
    'consumer': _consumer,
    'aggregate': _aggregate,
}


def check(context: RequestContext) -> None:
    """No id is given twice."""
    for kind, create_and_delete in KINDS.items():
        ids = [create_and_delete(context) for _ in range(3)]
        assert ids == sorted(set(ids)), kind
