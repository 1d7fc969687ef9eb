"""What tests make through the versioned objects: providers with inventory, and claims."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from placement.claims.request import ConsumerClaim
from placement.objects.allocation import AllocationList
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext


def create_provider(
    context: RequestContext, name: str | None = None, parent: str | None = None, /, **totals: int
) -> ResourceProvider:
    """A new provider with these amounts by class; its name is its uuid unless given."""
    identity = str(uuid.uuid4())
    made = ResourceProvider.create(context, name=name or identity, uuid=identity, parent_provider_uuid=parent)
    if totals:
        made.set_inventories([Inventory.from_request(class_, {'total': total}) for class_, total in totals.items()])
    return made


def claim(context: RequestContext, amounts: Mapping[str, Mapping[str, int]], consumer: str | None = None) -> str:
    """Claim these amounts by provider and class for a consumer, a new one by default; returns its uuid."""
    consumer = consumer or str(uuid.uuid4())
    AllocationList.replace_all(context, [ConsumerClaim(consumer, 'project', 'user', amounts)])
    return consumer
