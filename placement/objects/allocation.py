"""Allocations: the amounts of resources that consumers use of providers."""

from __future__ import annotations

from placement.db import tables
from placement.objects import base

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes = tables.resource_classes

#: The fields of an ``Allocation``, with its provider, its class and its consumer.
COLUMNS = (
    _allocations.c.used,
    _allocations.c.created_at,
    _allocations.c.updated_at,
    _allocations.c.consumer_id.label('consumer_uuid'),
    _classes.c.name.label('resource_class'),
    _providers.c.uuid.label('resource_provider_uuid'),
    _providers.c.generation.label('resource_provider_generation'),
    _consumers.c.generation.label('consumer_generation'),
)


@base.register
class Allocation(base.Timestamped):
    """The amount of one class that one consumer has allocated on one provider.

    Both generations are as of the time of reading.
    """

    VERSION = '1.0'
    #: In order of id. ``Consumer.get_with_allocations`` reads the allocations of a consumer.
    WITH_PROVIDER = base.with_provider(
        _providers.outerjoin(_allocations, _allocations.c.resource_provider_id == _providers.c.id)
        .outerjoin(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id),
        _consumers.c.id,
        *COLUMNS,
        order=_allocations.c.id,
    )

    resource_provider_uuid: str
    resource_provider_generation: int
    consumer_uuid: str
    consumer_generation: int
    resource_class: str
    used: int
