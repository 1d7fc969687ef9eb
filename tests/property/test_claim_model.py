"""Claims and reshapes against a simple model of the rules.

The rules are in api-ref/allocations.md#what-a-write-means and api-ref/reshaper.md#meaning. Hypothesis generates
inventories, changes of them, requests with several consumers, and reshapes. After each step the answer and everything
that is stored must be what the model says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from placement import exception
from placement.capacity import InventoryRecord
from placement.claims.claim import delete_allocations, replace_allocations, reshape
from placement.claims.requested import UNSET, ConsumerClaim, ReshapedProvider, Unset
from placement.db.api import Database
from placement.objects import usage
from placement.objects.consumer import UNKNOWN_TYPE, Consumer
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from placement.web.authentication import RequestContext
from tests.support.objects import set_inventories

PROVIDERS = ('host1', 'host2')
CLASSES = ('VCPU', 'MEMORY_MB')
CONSUMERS = tuple(str(uuid.UUID(int=number)) for number in range(1, 4))

Key = tuple[str, str]
Holding = dict[Key, int]
#: Types by consumer. A consumer that is not named keeps its type.
Types = Mapping[str, str]
#: The new allocations of consumers.
Request = dict[str, Holding]
#: Name, sent generation and new inventories of providers.
Reshaped = Sequence[tuple[str, int, Mapping[str, InventoryRecord]]]


def allows(inventory: InventoryRecord, amount: int) -> bool:
    return inventory.min_unit <= amount <= inventory.max_unit and amount % inventory.step_size == 0


def limit(inventory: InventoryRecord) -> float:
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio


@dataclasses.dataclass
class Model:
    """Inventories and the allocations of consumers."""

    inventories: dict[Key, InventoryRecord] = dataclasses.field(default_factory=dict)
    holdings: dict[str, Holding] = dataclasses.field(default_factory=dict)
    generations: dict[str, int] = dataclasses.field(default_factory=dict)
    types: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Of the providers, by name.
    provider_generations: dict[str, int] = dataclasses.field(default_factory=dict)

    def used(self, key: Key, without: frozenset[str] = frozenset()) -> int:
        return sum(amounts.get(key, 0) for who, amounts in self.holdings.items() if who not in without)

    def rejection(self, request: Request, reshaped: Reshaped) -> type[exception.PlacementError] | None:
        """The error of a claim, or of a reshape, which also replaces the inventories of some providers."""
        for provider, generation, records in reshaped:
            if generation != self.provider_generations[provider]:
                return exception.ReshapeGenerationConflict
            if any(math.trunc(limit(record)) < 0 for record in records.values()):
                return exception.InvalidInventoryCapacity
        new = {(provider, name): record for provider, _, records in reshaped for name, record in records.items()}
        rejected = self.claim_rejection(request, {**self.inventories, **new})
        if rejected is not None:
            return rejected
        replaced = {provider for provider, _, _ in reshaped}
        for key in self.inventories:
            requested = sum(holding.get(key, 0) for holding in request.values())
            if key[0] in replaced and key not in new and self.used(key, without=frozenset(request)) + requested:
                return exception.InventoryInUse
        return None

    def claim_rejection(
        self, request: Request, inventories: Mapping[Key, InventoryRecord]
    ) -> type[exception.PlacementError] | None:
        wishes = [(key, amount) for holding in request.values() for key, amount in holding.items()]
        classes = {name for (_provider, name), _amount in wishes}
        for (provider, _name), _amount in wishes:
            if not any((provider, name) in inventories for name in classes):
                return exception.InvalidAllocationInventory
        running: dict[Key, int] = {}
        for key, amount in wishes:
            if key not in inventories:
                return exception.InvalidAllocationInventory
            if not allows(inventories[key], amount):
                return exception.AllocationConstraintsViolated
            running[key] = running.get(key, 0) + amount
            total = self.used(key, without=frozenset(request)) + running[key]
            if total > limit(inventories[key]) and total > self.used(key):
                return exception.AllocationCapacityExceeded
        return None

    def replace_inventories(self, provider: str, records: Mapping[str, InventoryRecord]) -> None:
        for key in [key for key in self.inventories if key[0] == provider]:
            del self.inventories[key]
        self.inventories.update({(provider, name): record for name, record in records.items()})

    def carry_out(self, request: Request, types: Types, reshaped: Reshaped) -> None:
        for provider, _, records in reshaped:
            self.replace_inventories(provider, records)
            self.provider_generations[provider] += 2 if records else 1
        cleared = {consumer for consumer, holding in request.items() if not holding}
        for provider in {
            provider
            for consumer, holding in request.items()
            for provider, _ in (self.holdings.get(consumer, {}) if consumer in cleared else holding)
        }:
            self.provider_generations[provider] += 1
        for consumer, holding in request.items():
            if holding:
                self.types[consumer] = types.get(consumer, self.types.get(consumer, UNKNOWN_TYPE))
                self.holdings[consumer] = dict(holding)
                self.generations[consumer] = self.generations.get(consumer, 0) + 1
            else:
                self.delete(consumer)

    def delete(self, consumer: str) -> None:
        for by_consumer in (self.types, self.holdings, self.generations):
            by_consumer.pop(consumer, None)


records = st.builds(
    InventoryRecord,
    total=st.integers(1, 12),
    reserved=st.integers(0, 3),
    allocation_ratio=st.sampled_from([0.5, 1.0, 1.15, 2.0]),
    min_unit=st.integers(1, 2),
    max_unit=st.integers(3, 12),
    step_size=st.sampled_from([1, 1, 2, 3]),
    used=st.just(0),
)
keys = st.tuples(st.sampled_from(PROVIDERS), st.sampled_from(CLASSES))
holdings = st.dictionaries(keys, st.integers(1, 8), max_size=3)
types_of_consumers = st.dictionaries(st.sampled_from(CONSUMERS), st.sampled_from(['INSTANCE', 'MIGRATION', 'VOLUME']))
steps = st.one_of(
    st.tuples(st.just('inventory'), st.sampled_from(PROVIDERS), st.dictionaries(st.sampled_from(CLASSES), records)),
    st.tuples(
        st.just('claim'),
        st.dictionaries(st.sampled_from(CONSUMERS), holdings, min_size=1),
        types_of_consumers,
    ),
    st.tuples(st.just('delete'), st.sampled_from(CONSUMERS)),
    st.tuples(
        st.just('reshape'),
        st.dictionaries(
            st.sampled_from(PROVIDERS),
            # The second is added to the generation.
            st.tuples(st.dictionaries(st.sampled_from(CLASSES), records), st.sampled_from([0] * 9 + [1])),
            min_size=1,
        ),
        st.dictionaries(st.sampled_from(CONSUMERS), holdings),
        types_of_consumers,
    ),
)


def by_provider(holding: Holding) -> Holding:
    """The same amounts, grouped by provider in the order of the first amount of each."""
    order = list(dict.fromkeys(provider for provider, _class in holding))
    return dict(sorted(holding.items(), key=lambda item: order.index(item[0][0])))


class Topology:
    """The database and the model, changed by the same steps."""

    def __init__(self, context: RequestContext) -> None:
        self.context = context
        self.model = Model()
        self.uuids = {name: str(uuid.uuid4()) for name in PROVIDERS}
        for name, uuid_ in self.uuids.items():
            ResourceProvider.create(context, name=uuid_, uuid=uuid_)
            self.model.provider_generations[name] = 0
            self.step_inventory(name, {'VCPU': InventoryRecord(8, max_unit=8)})

    def step_inventory(self, name: str, records: dict[str, InventoryRecord]) -> None:
        provider = ResourceProvider.get_by_uuid(self.context, self.uuids[name])
        vanishing = [key for key in self.model.inventories if key[0] == name and key[1] not in records]
        in_use = [key for key in vanishing if self.model.used(key)]
        try:
            set_inventories(provider, *records.items())
        except exception.InventoryInUse:
            assert in_use
            return
        assert not in_use
        self.model.replace_inventories(name, records)
        self.model.provider_generations[name] += 1

    def step_claim(self, request: Request, types: Types) -> None:
        self.step_reshape({}, request, types)

    def step_reshape(
        self, inventories: dict[str, tuple[dict[str, InventoryRecord], int]], request: Request, types: Types
    ) -> None:
        """Reshape; without inventories claim."""
        # The amounts of one provider are together in a body, so they are checked in that order.
        request = {who: by_provider(holding) for who, holding in request.items()}
        reshaped = [
            (name, self.model.provider_generations[name] + off, records) for name, (records, off) in inventories.items()
        ]
        providers = [ReshapedProvider(self.uuids[name], generation, records) for name, generation, records in reshaped]
        claims = [self.claim_of(who, holding, types.get(who, UNSET)) for who, holding in request.items()]
        expected = self.model.rejection(request, reshaped)
        with pytest.raises(expected) if expected else contextlib.nullcontext():
            if inventories:
                reshape(self.context.db, providers, claims)
            else:
                replace_allocations(self.context.db, claims)
        if expected is None:
            self.model.carry_out(request, types, reshaped)

    def claim_of(self, consumer: str, holding: Holding, type_: str | Unset) -> ConsumerClaim:
        allocations: dict[str, dict[str, int]] = {}
        for (provider, class_), amount in holding.items():
            allocations.setdefault(self.uuids[provider], {})[class_] = amount
        return ConsumerClaim(consumer, 'project', 'user', allocations, self.model.generations.get(consumer), type_)

    def step_delete(self, consumer: str) -> None:
        try:
            delete_allocations(self.context.db, consumer)
        except exception.AllocationsNotFound:
            assert consumer not in self.model.holdings
        else:
            assert consumer in self.model.holdings
        self.model.delete(consumer)

    def compare(self) -> None:
        names = {uuid_: name for name, uuid_ in self.uuids.items()}
        for consumer in CONSUMERS:
            record, allocations = Consumer.get_with_allocations(self.context, consumer)
            assert (record.consumer_type if record else None) == self.model.types.get(consumer)
            holding = {
                (names[allocation.resource_provider_uuid], allocation.resource_class): allocation.used
                for allocation in allocations
            }
            assert holding == self.model.holdings.get(consumer, {})
            assert {allocation.consumer_generation for allocation in allocations} <= {
                self.model.generations.get(consumer)
            }
        for name, uuid_ in self.uuids.items():
            expected = {class_: record for (of, class_), record in self.model.inventories.items() if of == name}
            provider, stored = Inventory.get_all_with_provider(self.context, uuid_)
            assert provider.generation == self.model.provider_generations[name]
            assert {
                inventory.resource_class: InventoryRecord(
                    *[getattr(inventory, field) for field in InventoryRecord._fields if field != 'used']
                )
                for inventory in stored
            } == expected
            _, usages = usage.get_with_provider(self.context, uuid_)
            assert usages == {class_: self.model.used((name, class_)) for class_ in expected}

    def clear(self) -> None:
        for consumer in list(self.model.holdings):
            delete_allocations(self.context.db, consumer)
        for uuid_ in self.uuids.values():
            ResourceProvider.destroy(self.context, uuid_)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=st.lists(steps, min_size=1, max_size=8))
def test_claims_do_what_the_model_says(context: RequestContext, db: Database, history: list[tuple[Any, ...]]) -> None:
    topology = Topology(context)
    for kind, *arguments in history:
        getattr(topology, f'step_{kind}')(*arguments)
        topology.compare()
    topology.clear()
