"""The plan of a claim or a reshape: what its transaction writes, given the request and what it read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception, validation
from placement.capacity import InventoryRecord
from placement.claims import consumers
from placement.claims.consumers import ConsumerAttributes
from placement.claims.current import CurrentState, read_current_state
from placement.claims.request import ConsumerClaim, ReshapedProvider, Unset
from placement.claims.usage import InventoryKey, UsageDelta
from placement.db import sql
from placement.db.api import Database
from placement.db.generation import ProviderGeneration


class RequestedAllocation(NamedTuple):
    """One requested allocation. ``inventory`` has the ids of ``provider_uuid`` and ``class_name``."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    inventory: InventoryKey
    amount: int


@dataclasses.dataclass(frozen=True)
class ClaimPlan:
    """What the transaction of a claim or a reshape writes, with the ids of all names.

    ``current`` has the consumers and their allocations as they were read. ``consumers`` has the columns to write, by
    consumer uuid; None for a consumer without requested allocations. ``requested`` has the new allocations, in the
    order of the request. ``released`` has the sums of the current allocations that have an inventory, ``orphaned`` the
    sums of the others.

    ``class_ids`` has the ids of all classes of the request, by name. The other fields are empty unless it is a reshape.
    ``reshaped`` is in the order of the request. ``providers`` has the same providers as they were read, by uuid, each
    at the generation that was sent. ``inventories`` has their new inventories.
    """

    current: CurrentState
    consumers: Mapping[str, ConsumerAttributes | None]
    requested: Sequence[RequestedAllocation]
    released: Mapping[InventoryKey, int]
    orphaned: Mapping[InventoryKey, int]
    reshaped: Sequence[ReshapedProvider]
    providers: Mapping[str, ProviderGeneration]
    inventories: Mapping[InventoryKey, InventoryRecord]
    class_ids: Mapping[str, int]

    @functools.cached_property
    def changes(self) -> Sequence[UsageDelta]:
        """The changes of usage, in order of provider and class."""
        amounts: dict[InventoryKey, list[int]] = {inventory: [] for inventory in self.released}
        for allocation in self.requested:
            amounts.setdefault(allocation.inventory, []).append(allocation.amount)
        return [
            UsageDelta(inventory, sum(amounts[inventory]) - self.released.get(inventory, 0), amounts[inventory])
            for inventory in sorted(amounts)
        ]

    @functools.cached_property
    def incremented(self) -> set[int]:
        """The ids of the providers whose generations the claims increment. A reshape also increments ``reshaped_ids``.

        The rule is api-ref/allocations.md#generations-that-a-write-increments.
        """
        cleared = {row.resource_provider_id for row in self.current.rows if self.consumers[row.consumer_uuid] is None}
        return cleared.union(allocation.inventory[0] for allocation in self.requested)

    @property
    def reshaped_ids(self) -> set[int]:
        """The ids of the providers whose inventories are replaced."""
        return {provider.id for provider in self.providers.values()}


def make_plan(
    db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim], reshaped: Sequence[ReshapedProvider]
) -> ClaimPlan:
    """Take steps 0 to 3 of ``claims.claim``, and plan the others.

    :raises PlacementError: as for ``claims.claim.reshape``, except errors that depend on stored inventories.
    """
    providers: Mapping[str, ProviderGeneration] = {}
    if reshaped:
        providers = read_providers(tx, reshaped)
        _check_providers(reshaped, providers)
    # 1. Read.
    current = read_current_state(tx, [claim.consumer_uuid for claim in claims], claims)
    for claim in claims:
        check_generation(claim, current)
    # 2. Resource classes of the inventories and of the allocations.
    names = [name for provider in reshaped for name in provider.inventories]
    for claim in claims:
        for uuid, amounts in claim.allocations.items():
            if uuid not in current.providers:
                raise exception.AllocationProviderNotFound(uuid=uuid)
            names += amounts
    class_ids = db.resource_classes.lock_ids(tx, names)
    # 3. Projects, users and types.
    desired = consumers.ensure_owners_and_types(tx, claims, current)

    requested = [
        RequestedAllocation(claim.consumer_uuid, uuid, name, (current.providers[uuid], class_ids[name]), amount)
        for claim in claims
        for uuid, amounts in claim.allocations.items()
        for name, amount in amounts.items()
    ]
    inventories = {
        (providers[provider.uuid].id, class_ids[name]): inventory
        for provider in reshaped
        for name, inventory in provider.inventories.items()
    }
    released, orphaned = current.amounts(inventories)
    return ClaimPlan(
        current=current,
        consumers=desired,
        requested=requested,
        released=released,
        orphaned=orphaned,
        reshaped=reshaped,
        providers=providers,
        inventories=inventories,
        class_ids=class_ids,
    )


def check_generation(claim: ConsumerClaim, current: CurrentState) -> None:
    """Compare the generation in the claim with the current one, or with None if the consumer does not exist.

    :raises ConsumerGenerationConflict: they differ.
    """
    row = current.consumers.get(claim.consumer_uuid)
    stored = row and row.generation
    if not isinstance(claim.generation, Unset) and claim.generation != stored:
        expected = 'null' if stored is None else stored
        raise exception.ConsumerGenerationConflict(expected=expected, got=claim.generation)


def read_providers(tx: sa.Connection, reshaped: Sequence[ReshapedProvider]) -> dict[str, ProviderGeneration]:
    """Read the ids and generations of the providers of a reshape, by uuid."""
    rows: list[Any] = []
    for chunk in sql.chunks([provider.uuid for provider in reshaped]):
        template = 'SELECT id, uuid, generation FROM placement_resource_providers WHERE uuid IN ({uuids})'
        rows += sql.execute_text(tx, sql.statement(template, uuids=sql.placeholders(len(chunk))), *chunk)
    return {row.uuid: ProviderGeneration(*row) for row in rows}


def _check_providers(reshaped: Sequence[ReshapedProvider], providers: Mapping[str, ProviderGeneration]) -> None:
    """Check the providers of a reshape, in order.

    :param providers: from ``read_providers``.
    :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: for the first provider that
        does not exist, has another generation, or has an inventory that may not be stored.
    """
    for provider in reshaped:
        stored = providers.get(provider.uuid)
        if stored is None:
            raise exception.ResourceProviderNotFound(uuid=provider.uuid)
        if stored.generation != provider.generation:
            raise exception.ReshapeGenerationConflict(
                uuid=stored.uuid, actual=stored.generation, given=provider.generation
            )
        for resource_class, inventory in provider.inventories.items():
            # Since microversion 1.26 a capacity may be 0, and reshapes came later.
            validation.check_capacity(inventory, resource_class, provider.uuid, zero_allowed=True)
