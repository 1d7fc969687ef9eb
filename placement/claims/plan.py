"""The plan of a claim or a reshape: what its transaction writes, given the request and what it read."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.capacity import InventoryRecord
from placement.claims.current import CurrentState, read_current_state
from placement.claims.requested import ConsumerClaim, ReshapedProvider, Unset
from placement.claims.usage import UsageDelta
from placement.db import sql, tables
from placement.db.api import Database
from placement.db.generation import ProviderGeneration
from placement.db.inventories import InventoryKey


class RequestedAllocation(NamedTuple):
    """One requested allocation."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    #: The ids of the provider and of the class.
    inventory: InventoryKey
    amount: int


@dataclasses.dataclass(frozen=True)
class ClaimPlan:
    """What the transaction of a claim or a reshape writes, with the ids of all names."""

    #: The consumers of ``claims`` and their allocations as they were read.
    current: CurrentState
    claims: Sequence[ConsumerClaim]
    #: The new allocations, in the order of the request.
    requested: Sequence[RequestedAllocation]
    #: The sums of the current allocations that have an inventory.
    released: Mapping[InventoryKey, int]
    #: The sums of the current allocations that have none.
    orphaned: Mapping[InventoryKey, int]
    #: The providers whose inventories are replaced, in the order of the request; empty unless it is a reshape.
    reshaped: Sequence[ReshapedProvider]
    #: The same providers as they were read, by uuid, each at the generation that was sent.
    providers: Mapping[str, ProviderGeneration]
    #: Their new inventories.
    inventories: Mapping[InventoryKey, InventoryRecord]

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
        cleared = {claim.consumer_uuid for claim in self.claims if not claim.allocations and not claim.is_deletion}
        released = {row.resource_provider_id for row in self.current.rows if row.consumer_uuid in cleared}
        return released.union(allocation.inventory[0] for allocation in self.requested)

    @property
    def reshaped_ids(self) -> set[int]:
        """The ids of the providers whose inventories are replaced."""
        return {provider.id for provider in self.providers.values()}


def make_plan(
    db: Database, tx: sa.Connection, claims: Sequence[ConsumerClaim], reshaped: Sequence[ReshapedProvider]
) -> ClaimPlan:
    """Execute steps 0 to 2 of ``claims.claim``, and plan the writes of the others.

    :param reshaped: the providers whose inventories are replaced; empty unless it is a reshape.
    :raises PlacementError: as for ``claims.claim.replace_allocations`` and ``claims.claim.reshape``.
    """
    # 0. Providers whose inventories are replaced, in the order of the request.
    providers = read_providers(tx, reshaped) if reshaped else {}
    for provider in reshaped:
        _check_provider(provider, providers.get(provider.uuid))
    # 1. Read.
    current = read_current_state(tx, [claim.consumer_uuid for claim in claims], claims)
    for claim in claims:
        if claim.is_deletion and not current.rows:
            raise exception.AllocationsNotFound(consumer=claim.consumer_uuid)
        _check_generation(claim, current)
    # 2. Resource classes of the inventories and of the allocations.
    names = [name for provider in reshaped for name in provider.inventories]
    for claim in claims:
        for uuid, amounts in claim.allocations.items():
            if uuid not in current.providers:
                raise exception.AllocationProviderNotFound(uuid=uuid)
            names += amounts
    class_ids = db.resource_classes.lock_ids(tx, names)

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
        claims=claims,
        requested=requested,
        released=released,
        orphaned=orphaned,
        reshaped=reshaped,
        providers=providers,
        inventories=inventories,
    )


def read_providers(tx: sa.Connection, reshaped: Sequence[ReshapedProvider]) -> dict[str, ProviderGeneration]:
    """Read the ids and generations of the providers of a reshape, by uuid."""
    rows: list[Any] = []
    for chunk in sql.chunks([provider.uuid for provider in reshaped]):
        template = 'SELECT id, uuid, generation FROM {table} WHERE uuid IN ({uuids})'
        text = sql.statement(template, table=tables.resource_providers, uuids=sql.placeholders(len(chunk)))
        rows += sql.execute_text(tx, text, *chunk)
    return {row.uuid: ProviderGeneration(*row) for row in rows}


def _check_provider(provider: ReshapedProvider, stored: ProviderGeneration | None) -> None:
    """Compare a provider of a reshape with what was read, and check its new inventories.

    :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: it does not exist, has
        another generation, or has an inventory that may not be stored.
    """
    if stored is None:
        raise exception.ResourceProviderNotFound(uuid=provider.uuid)
    if stored.generation != provider.generation:
        raise exception.ReshapeGenerationConflict(uuid=stored.uuid, actual=stored.generation, given=provider.generation)
    for resource_class, inventory in provider.inventories.items():
        # Since microversion 1.26 a capacity may be 0, and reshapes came later.
        inventory.raise_unless_capacity_valid(resource_class, provider.uuid, zero_allowed=True)


def _check_generation(claim: ConsumerClaim, current: CurrentState) -> None:
    """Compare the generation in the claim with the current one, or with None if the consumer does not exist.

    :raises ConsumerGenerationConflict: they differ.
    """
    row = current.consumers.get(claim.consumer_uuid)
    stored = row and row.generation
    if not isinstance(claim.generation, Unset) and claim.generation != stored:
        expected = 'null' if stored is None else stored
        raise exception.ConsumerGenerationConflict(
            expected=expected, got=claim.generation, consumer=claim.consumer_uuid
        )
