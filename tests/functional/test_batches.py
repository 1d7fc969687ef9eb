"""Lists that take several statements give the same responses and rows as with one; the tests use very short batches."""

from __future__ import annotations

import uuid

import pytest

from placement import exception
from placement.capacity import InventoryRecord
from placement.claims.claim import replace_allocations
from placement.claims.requested import ConsumerClaim
from placement.db import sql
from placement.objects import aggregate
from placement.objects.allocation import Allocation
from placement.objects.inventory import Inventory
from placement.objects.resource_class import ResourceClass
from placement.objects.resource_provider import ResourceProvider
from placement.objects.trait import Trait
from placement.ops.audit import audit
from placement.ops.audit.kinds import KINDS
from placement.search import filter_providers
from placement.search.request import NameSetFilter, RequestGroup
from placement.web.authentication import RequestContext
from tests.support.cache_equality import compare
from tests.support.objects import create_provider, set_aggregates, set_inventories, set_traits

CLASSES = [f'CUSTOM_{number}' for number in range(7)]
COUNT = 5


@pytest.fixture(autouse=True)
def short_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two values or rows per statement."""
    monkeypatch.setattr(sql.chunks, '__defaults__', (2,))
    for name in ('MAX_VALUES_PER_STATEMENT', 'MAX_ROWS_PER_STATEMENT'):
        monkeypatch.setattr(sql, name, 2)


@pytest.fixture
def providers(context: RequestContext, short_batches: None) -> list[ResourceProvider]:
    """Providers with 10 of each class."""
    for name in CLASSES:
        ResourceClass.create(context, name)
    return [create_provider(context, **dict.fromkeys(CLASSES, 10)) for _ in range(COUNT)]


def claims(providers: list[ResourceProvider], amount: int, generation: int | None = None) -> list[ConsumerClaim]:
    """Consumers, each with a project and a user of its own, that hold as much of every class of every provider."""
    allocations = {provider.uuid: dict.fromkeys(CLASSES, amount) for provider in providers} if amount else {}
    return [
        ConsumerClaim(
            f'0000000{number}-0000-4000-8000-000000000000', f'p{number}', f'u{number}', allocations, generation
        )
        for number in range(COUNT)
    ]


def usages(context: RequestContext, provider: ResourceProvider) -> set[int]:
    return {inventory.used for inventory in Inventory.get_all_with_provider(context, provider.uuid)[1]}


def test_claims(context: RequestContext, providers: list[ResourceProvider]) -> None:
    context.provider_cache.up_to_date()
    for generation, amount in enumerate((1, 2, 0), start=1):
        replace_allocations(context.db, claims(providers, amount, generation - 1 or None))
        for provider in providers:
            assert usages(context, provider) == {amount * COUNT}
            shown, allocations = Allocation.get_all_with_provider(context, provider.uuid)
            assert shown.generation == 1 + generation
            of_consumers = [allocation.consumer_generation for allocation in allocations]
            assert of_consumers == [generation] * (COUNT * len(CLASSES) if amount else 0)
        assert not any(audit.find(context.db, context.conf, kind) for kind in KINDS)
        compare(context.provider_cache, context.db)


def test_rejections(context: RequestContext, providers: list[ResourceProvider]) -> None:
    with pytest.raises(exception.AllocationCapacityExceeded) as rejected:
        replace_allocations(context.db, claims(providers, 3))
    assert (rejected.value.uuid, rejected.value.resource_class) == (providers[0].uuid, CLASSES[0])
    unknown = str(uuid.uuid4())
    allocations = {uuid_: {CLASSES[0]: 1} for uuid_ in [*(provider.uuid for provider in providers), unknown]}
    with pytest.raises(exception.AllocationProviderNotFound, match=unknown):
        replace_allocations(context.db, [ConsumerClaim(unknown, 'p', 'u', allocations)])
    assert [usages(context, provider) for provider in providers] == [{0}] * COUNT


def test_inventories_and_their_removal(context: RequestContext, providers: list[ResourceProvider]) -> None:
    context.provider_cache.up_to_date()
    for provider in providers:
        set_inventories(provider, (CLASSES[3], InventoryRecord(4)))
    compare(context.provider_cache, context.db)
    inventories = Inventory.get_all_with_provider(context, providers[0].uuid)[1]
    assert [(row.resource_class, row.total) for row in inventories] == [(CLASSES[3], 4)]
    with pytest.raises(exception.ResourceClassNotFound, match='CUSTOM_NONE'):
        set_inventories(providers[0], *[(name, InventoryRecord(1)) for name in [*CLASSES, 'CUSTOM_NONE']])


def test_traits_and_aggregates(context: RequestContext, providers: list[ResourceProvider]) -> None:
    for name in CLASSES:
        Trait.create(context, name)
    aggregates = [str(uuid.uuid4()) for _ in range(COUNT)]
    provider = providers[0]
    set_traits(provider, [*CLASSES, 'HW_CPU_X86_VMX'])
    set_aggregates(provider, aggregates, increment_generation=True)
    assert sorted(aggregate.get_with_provider(context, provider.uuid)[1]) == sorted(aggregates)
    group = RequestGroup('', True, {}, NameSetFilter.all_of(CLASSES), NameSetFilter((frozenset(aggregates),)))
    listed = filter_providers(context.provider_cache.up_to_date(), group)
    assert [block.providers[row].uuid for block, rows in listed for row in rows] == [provider.uuid]
    set_traits(provider, CLASSES[:1])
    assert [trait.name for trait in Trait.get_all_with_provider(context, provider.uuid)[1]] == CLASSES[:1]
    with pytest.raises(exception.TraitNotFound, match='CUSTOM_NONE, CUSTOM_NOTHING'):
        set_traits(provider, ['CUSTOM_NONE', *CLASSES, 'CUSTOM_NOTHING'])
