"""The figures of operators, computed on columns, are the sums over the single inventories by the capacity rule."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from placement import capacity as capacity_rule
from placement.cache.snapshot import KnownNames, Snapshot
from placement.candidates.providers import InventoryRecord, Provider
from placement.reports import capacity, host_problems
from placement.reports.capacity import ClassFigures, Filling
from placement.reports.tree_filter import FULL, InventoryState, TreeFilter
from placement.reports.tree_list import Order, listing

CLASSES = {0: 'VCPU', 1: 'MEMORY_MB', 2: 'DISK_GB'}
AGGREGATES = [str(uuid.UUID(int=number)) for number in range(3)]
AMOUNTS = st.one_of(st.integers(0, 12), st.integers(0, 2**31 - 1))
RECORDS = st.builds(
    InventoryRecord,
    total=AMOUNTS.map(lambda value: value + 1),
    reserved=AMOUNTS,
    min_unit=st.integers(1, 5),
    max_unit=st.one_of(st.integers(1, 9), st.just(2**31 - 1)),
    step_size=st.integers(1, 4),
    allocation_ratio=st.sampled_from([0.5, 1.0, 1.15, 4.0, 16.0]),
    used=AMOUNTS,
)


@st.composite
def clouds(draw: st.DrawFn) -> Snapshot:
    """Some trees of one to three providers with some of a few inventories, in partitions of about two providers."""
    records = draw(st.lists(RECORDS, min_size=1, max_size=6))
    rng = draw(st.randoms(use_true_random=True))
    providers: list[Provider] = []
    for _ in range(rng.randint(0, 5)):
        root_id = len(providers) + 1
        for id_ in range(root_id, root_id + rng.randint(1, 3)):
            classes = sorted(rng.sample(sorted(CLASSES), rng.randint(0, len(CLASSES))))
            by_name = {CLASSES[class_id]: rng.choice(records) for class_id in classes}
            aggregates = frozenset(rng.sample(AGGREGATES, rng.randint(0, len(AGGREGATES))))
            parent_id = None if id_ == root_id else root_id
            uuid_ = str(uuid.UUID(int=id_))
            providers.append(Provider(id_, uuid_, root_id, parent_id, by_name, frozenset(), aggregates, f'p{id_:03}'))
    return Snapshot.of(KnownNames(CLASSES, frozenset()), providers, size=2)


def _state(one: InventoryRecord) -> InventoryState:
    limit = max(one.capacity, 0)
    if one.used > limit:
        return InventoryState.OVER_COMMITTED
    if limit == 0:
        return InventoryState.RESERVED
    return InventoryState.AVAILABLE if _max_allocatable(one) else InventoryState.FULLY_ALLOCATED


def _max_allocatable(one: InventoryRecord) -> int:
    return int(capacity_rule.max_allocatable(one, max(one.headroom, 0)))


def _filling(some: Iterable[InventoryRecord]) -> Filling:
    limits = [(max(one.capacity, 0), one.used) for one in some]
    return Filling(
        sum(limit for limit, _ in limits),
        sum(used for _, used in limits),
        sum(max(used - limit, 0) for limit, used in limits),
    )


def _figures(name: str, some: list[InventoryRecord]) -> ClassFigures:
    states = [_state(one) for one in some]
    filling = _filling(some)
    return ClassFigures(
        name,
        providers=len(some),
        total=sum(one.total for one in some),
        reserved=sum(one.reserved for one in some),
        capacity=filling.capacity,
        used=filling.used,
        free=sum(max(max(one.capacity, 0) - one.used, 0) for one in some),
        over_committed=filling.over_committed,
        max_allocatable=max(map(_max_allocatable, some)),
        full=sum(state in FULL for state in states),
        providers_fully_allocated=states.count(InventoryState.FULLY_ALLOCATED),
        providers_reserved=states.count(InventoryState.RESERVED),
        providers_over_committed=states.count(InventoryState.OVER_COMMITTED),
    )


def _of_class(providers: Iterable[Provider], name: str) -> list[InventoryRecord]:
    return [one.inventories[name] for one in providers if name in one.inventories]


@given(clouds(), st.sampled_from([None, *AGGREGATES]))
def test_figures_of_classes(state: Snapshot, aggregate: str | None) -> None:
    providers = list(state.providers())
    roots = {one.root_id for one in providers if aggregate is None or aggregate in one.aggregates}
    inside = [one for one in providers if one.root_id in roots]
    found = capacity.summary(state, TreeFilter(frozenset() if aggregate is None else frozenset({aggregate})))
    assert (found.providers, found.trees) == (len(inside), len(roots))
    by_class = {name: _of_class(inside, name) for name in CLASSES.values()}
    assert list(found.classes) == [_figures(name, some) for name, some in by_class.items() if some]
    assert all(one.free - one.over_committed == one.capacity - one.used for one in found.classes)


@given(clouds())
def test_figures_of_aggregates_and_trees(state: Snapshot) -> None:
    providers = list(state.providers())
    heat = capacity.heat_map(state)
    for row in heat.rows:
        roots = {one.root_id for one in providers if row.aggregate in one.aggregates}
        inside = [one for one in providers if one.root_id in roots]
        expected = [_filling(_of_class(inside, name)) for name in heat.classes]
        shown = [one or Filling(0, 0) for one in row.fillings]
        assert (row.trees, shown) == (len(roots), expected)
    for tree in listing(state, order=Order.NAME, count=None).rows:
        (root_id,) = (one.root_id for one in providers if one.uuid == tree.uuid)
        members = [one for one in providers if one.root_id == root_id]
        expected = [_filling(_of_class(members, one.resource_class)) for one in tree.classes]
        assert [one.filling for one in tree.classes] == expected


@given(clouds(), st.sampled_from(sorted(FULL, key=lambda state: state.value)))
def test_hosts_in_a_state(state: Snapshot, inventory_state: InventoryState) -> None:
    found = host_problems.in_state(state, inventory_state)
    affected = [
        (provider.root_id, one)
        for provider in state.providers()
        for one in provider.inventories.values()
        if _state(one) is inventory_state
    ]
    assert found.inventories == len(affected)
    names = [f'p{root_id:03}' for root_id in sorted({root_id for root_id, _ in affected})]
    assert [row.name for row in listing(state, found.trees, Order.NAME, count=None).rows] == names


@given(clouds(), st.dictionaries(st.sampled_from(sorted(CLASSES.values())), st.integers(1, 12), min_size=1))
def test_hosts_without_capacity(state: Snapshot, size: dict[str, int]) -> None:
    found = host_problems.without_capacity(state, size)
    names = []
    for root_id in sorted({one.root_id for one in state.providers()}):
        members = [one for one in state.providers() if one.root_id == root_id]
        supplied = {name: [one for one in _of_class(members, name) if one.capacity > 0] for name in size}
        fits = all(any(_fits(one, size[name]) for one in some) for name, some in supplied.items())
        if all(supplied.values()) and not fits:
            names.append(f'p{root_id:03}')
    assert [row.name for row in listing(state, found.trees, Order.NAME, count=None).rows] == names
    assert found.hosts == len(names)


def _fits(one: InventoryRecord, amount: int) -> bool:
    limit = capacity_rule.capacity_limit(one)
    return not any(capacity_rule.violations(one, limit, amount))
