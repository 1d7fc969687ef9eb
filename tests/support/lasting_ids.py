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
from tests.support.objects import claim, create_provider, set_aggregates


def _named(kind: type[ResourceClass | Trait], context: RequestContext) -> int:
    named = kind.create(context, f'CUSTOM_{uuid.uuid4().hex.upper()}')
    kind.destroy(context, named.name)
    return named.id


def _resource_provider(context: RequestContext) -> int:
    provider = create_provider(context)
    ResourceProvider.destroy(context, provider.uuid)
    return provider.id


def _newest(context: RequestContext, table: sa.Table) -> int:
    return int(context.db.fetch_all(sa.select(sa.func.max(table.c.id)))[0][0])


def _consumer(context: RequestContext) -> int:
    consumer = claim(context, {create_provider(context, VCPU=1).uuid: {'VCPU': 1}})
    id_ = _newest(context, tables.consumers)
    delete_allocations(context.db, consumer)
    return id_


def _aggregate(context: RequestContext) -> int:
    provider = create_provider(context)
    set_aggregates(provider, [str(uuid.uuid4())], increment_generation=False)
    id_ = _newest(context, tables.placement_aggregates)
    set_aggregates(provider, [], increment_generation=False)
    for finding in audit.find(context.db, context.conf, 'orphaned_aggregate'):
        audit.repair(context.db, finding)
    return id_


#: Functions that create one of a kind, delete it, and return its id.
_KINDS: list[Callable[[RequestContext], int]] = [
    lambda context: _named(ResourceClass, context),
    lambda context: _named(Trait, context),
    _resource_provider,
    _consumer,
    _aggregate,
]


def check(context: RequestContext) -> None:
    """No id is given twice."""
    for create_and_delete in _KINDS:
        ids = [create_and_delete(context) for _ in range(3)]
        assert ids == sorted(set(ids))
