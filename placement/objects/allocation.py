"""Allocations: who holds how much of what."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from placement.claims import claim
from placement.claims.request import ConsumerClaim
from placement.db import tables
from placement.objects import base, provider_parts
from placement.objects.base import Context

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes = tables.resource_classes


@base.register
class Allocation(base.Timestamped):
    """The amount of one class on one provider that one consumer holds; generations are those when it was read."""

    VERSION = '1.0'

    resource_provider_uuid: str
    resource_provider_generation: int
    consumer_uuid: str
    consumer_generation: int
    resource_class: str
    used: int


@base.register
class AllocationList(base.ObjectList[Allocation]):
    """Allocations in the order they were written. ``Consumer.get_with_allocations`` reads those of a consumer."""

    VERSION = '1.0'

    @classmethod
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[provider_parts.Provider, AllocationList]:
        """A provider and what anybody holds on it.

        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)

    @classmethod
    def replace_all(cls, context: Context, claims: Sequence[ConsumerClaim]) -> None:
        """Let each consumer that ``claims`` name hold exactly what its claim says: all of it, or nothing changes.

        What is raised and when: ``claim.replace_allocations``.
        """
        claim.replace_allocations(context.db, claims)

    @classmethod
    def delete_all_by_consumer(cls, context: Context, consumer_uuid: str) -> None:
        """Take everything from a consumer, whatever its generation, and forget the consumer.

        :param consumer_uuid: canonical.
        :raises AllocationsNotFound: it holds nothing.
        """
        claim.delete_allocations(context.db, consumer_uuid)


#: The fields of an ``Allocation``, with its provider, its class and, unless an adopted database lacks it, its consumer.
COLUMNS = (
    _allocations.c.used,
    _allocations.c.created_at,
    _allocations.c.updated_at,
    _allocations.c.consumer_id.label('consumer_uuid'),
    _classes.c.name.label('resource_class'),
    _providers.c.uuid.label('resource_provider_uuid'),
    _providers.c.generation.label('resource_provider_generation'),
    sa.func.coalesce(_consumers.c.generation, 0).label('consumer_generation'),
)
_WITH_PROVIDER = provider_parts.statement(
    _providers.outerjoin(_allocations, _allocations.c.resource_provider_id == _providers.c.id)
    .outerjoin(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id),
    _classes.c.id,
    *COLUMNS,
    order=_allocations.c.id,
)
