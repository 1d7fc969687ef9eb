"""What tests make through the versioned objects: providers with inventory, and claims."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping

from placement.capacity import InventoryRecord
from placement.claims.claim import replace_allocations
from placement.claims.requested import ConsumerClaim
from placement.objects import aggregate
from placement.objects.inventory import Inventory, read_inventories
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait, read_traits
from placement.web.authentication import RequestContext


def create_provider(
    context: RequestContext, name: str | None = None, parent: str | None = None, /, **totals: int
) -> ResourceProvider:
    """A new provider with these amounts by class; its name is its uuid unless given."""
    identity = str(uuid.uuid4())
    provider = ResourceProvider.create(context, name=name or identity, uuid=identity, parent_provider_uuid=parent)
    if totals:
        set_inventories(provider, *((class_, InventoryRecord(total)) for class_, total in totals.items()))
    return provider


def claim(context: RequestContext, amounts: Mapping[str, Mapping[str, int]], consumer: str | None = None) -> str:
    """Claim these amounts by provider and class for a consumer, a new one by default; returns its uuid."""
    consumer = consumer or str(uuid.uuid4())
    replace_allocations(context.db, [ConsumerClaim(consumer, 'project', 'user', amounts)])
    return consumer


def set_inventories(provider: ResourceProvider, *inventories: tuple[str, InventoryRecord]) -> None:
    """Make these all inventories of a provider."""
    context = provider._context
    stored, present = read_inventories(context, provider.uuid)
    provider.generation = Inventory.replace(context, stored, present, dict(inventories)).generation


def set_aggregates(provider: ResourceProvider, uuids: Iterable[str], increment_generation: bool) -> None:
    """Put a provider into exactly these aggregates."""
    aggregate.replace(provider._context, provider.uuid, uuids, provider.generation if increment_generation else None)
    provider.generation += increment_generation


def set_traits(provider: ResourceProvider, names: Iterable[str]) -> list[Trait]:
    """Give a provider exactly these traits; returns them."""
    context, names = provider._context, sorted(names)
    stored, present, named = read_traits(context, provider.uuid, names)
    stored, traits = Trait.replace_all(context, stored, present, named, names)
    provider.generation = stored.generation
    return traits
