"""A reshape: inventories of several providers and allocations of several consumers, replaced in one change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from placement.claims import claim
from placement.claims.request import ConsumerClaim, NewInventories
from placement.objects import inventory
from placement.objects.base import Context
from placement.objects.inventory import Inventory


class ReshapedProvider(NamedTuple):
    """A provider, the generation that the caller sent for it, and all inventories that it is to have."""

    uuid: str
    generation: int
    inventories: Sequence[Inventory]


def reshape(context: Context, providers: Sequence[ReshapedProvider], claims: Sequence[ConsumerClaim]) -> None:
    """Replace the inventories of ``providers`` and the allocations of the consumers of ``claims``.

    Only the outcome is judged (api-ref/reshaper.md#meaning). On any failure nothing changes.

    :param providers: at least one; each provider once, in the order of the request, as are ``claims``.
    :raises PlacementError: as for ``claims.claim.reshape``.
    """
    used = claim.reshape(context.db, [_new_inventories(provider) for provider in providers], claims)
    for provider in providers:
        inventory.warn_of_overcommitment(provider.uuid, used[provider.uuid], provider.inventories)


def _new_inventories(provider: ReshapedProvider) -> NewInventories:
    # A reshape came after microversion 1.26, which allowed a capacity of 0.
    errors = (record.capacity_error(provider.uuid, zero_allowed=True) for record in provider.inventories)
    records = {record.resource_class: record for record in provider.inventories}
    return NewInventories(provider.uuid, provider.generation, records, next(filter(None, errors), None))
