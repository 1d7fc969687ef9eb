"""Allocations: the amounts of resources that consumers use of providers."""

from __future__ import annotations

from collections.abc import Sequence

from placement.claims import claim
from placement.claims.request import ConsumerClaim
from placement.db import tables
from placement.db.generation import ProviderVersion
from placement.objects import base, provider_query
from placement.objects.base import Context

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes = tables.resource_classes


@base.register
class Allocation(base.Timestamped):
    """The amount of one class that one consumer has allocated on one provider.

    Both generations are those at the time of reading.
    """

    VERSION = '1.0'

    resource_provider_uuid: str
    resource_provider_generation: int
    consumer_uuid: str
    consumer_generation: int
    resource_class: str
    used: int


@base.register
class AllocationList(base.ObjectList[Allocation]):
    """Allocations in order of id. ``Consumer.get_with_allocations`` reads those of a consumer."""

    VERSION = '1.0'

    @classmethod
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[ProviderVersion, AllocationList]:
        """Read a provider and the allocations of all consumers on it.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_query.read_with_parts(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)

    @classmethod
    def replace_all(cls, context: Context, claims: Sequence[ConsumerClaim]) -> None:
        """Give each consumer named in ``claims`` exactly the allocations of its claim. On any failure nothing changes.

        Parameters and errors are those of ``claims.claim.replace_allocations``.
        """
        claim.replace_allocations(context.db, claims)

    @classmethod
    def delete_all_by_consumer(cls, context: Context, consumer_uuid: str) -> None:
        """Delete a consumer and all its allocations, whatever its generation.

        Parameters and errors are those of ``claims.claim.delete_allocations``.
        """
        claim.delete_allocations(context.db, consumer_uuid)


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
_WITH_PROVIDER = provider_query.statement(
    _providers.outerjoin(_allocations, _allocations.c.resource_provider_id == _providers.c.id)
    .outerjoin(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id),
    _consumers.c.id,
    *COLUMNS,
    order=_allocations.c.id,
)
