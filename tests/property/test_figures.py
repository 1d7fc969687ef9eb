"""The figures of operators, computed on columns, are the sums over the single inventories by the capacity rule."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from placement import capacity as capacity_rule
from placement.cache.providers import Provider
from placement.cache.snapshot import KnownNames, Snapshot
from placement.capacity import InventoryRecord
from placement.ops.reports import capacity_report
from placement.ops.reports.capacity_report import NAME, ClassFigures, Utilization, list_trees
from placement.ops.reports.tree_filter import FULL, InventoryState, TreeFilter

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
    return Snapshot.build(KnownNames(CLASSES, frozenset()), providers, size=2)


def _state(inventory: InventoryRecord) -> InventoryState:
    limit = max(inventory.capacity, 0)
    if inventory.used > limit:
        return InventoryState.OVER_COMMITTED
    if limit == 0:
        return InventoryState.RESERVED
    return InventoryState.AVAILABLE if _max_allocatable(inventory) else InventoryState.FULLY_ALLOCATED


def _max_allocatable(inventory: InventoryRecord) -> int:
    return int(capacity_rule.max_allocatable(inventory, max(inventory.max_increase, 0)))


def _utilization(inventories: Iterable[InventoryRecord]) -> Utilization:
    limits = [(max(inventory.capacity, 0), inventory.used) for inventory in inventories]
    return Utilization(
        sum(limit for limit, _ in limits),
        sum(used for _, used in limits),
        sum(max(used - limit, 0) for limit, used in limits),
    )


def _figures(name: str, inventories: list[InventoryRecord]) -> ClassFigures:
    states = [_state(inventory) for inventory in inventories]
    utilization = _utilization(inventories)
    return ClassFigures(
        name,
        providers=len(inventories),
        total=sum(inventory.total for inventory in inventories),
        reserved=sum(inventory.reserved for inventory in inventories),
        capacity=utilization.capacity,
        used=utilization.used,
        free=sum(max(max(inventory.capacity, 0) - inventory.used, 0) for inventory in inventories),
        over_committed=utilization.over_committed,
        max_allocatable=max(map(_max_allocatable, inventories)),
        full=sum(state in FULL for state in states),
        providers_fully_allocated=states.count(InventoryState.FULLY_ALLOCATED),
        providers_reserved=states.count(InventoryState.RESERVED),
        providers_over_committed=states.count(InventoryState.OVER_COMMITTED),
    )


def _of_class(providers: Iterable[Provider], name: str) -> list[InventoryRecord]:
    return [provider.inventories[name] for provider in providers if name in provider.inventories]


@given(clouds(), st.sampled_from([None, *AGGREGATES]))
def test_figures_of_classes(state: Snapshot, aggregate: str | None) -> None:
    providers = list(state.providers())
    roots = {provider.root_id for provider in providers if aggregate is None or aggregate in provider.aggregates}
    inside = [provider for provider in providers if provider.root_id in roots]
    summary = capacity_report.summary(state, TreeFilter(frozenset() if aggregate is None else frozenset({aggregate})))
    assert (summary.providers, summary.trees) == (len(inside), len(roots))
    by_class = {name: _of_class(inside, name) for name in CLASSES.values()}
    assert list(summary.classes) == [
        _figures(name, inventories) for name, inventories in by_class.items() if inventories
    ]
    assert all(figures.free - figures.over_committed == figures.capacity - figures.used for figures in summary.classes)


@given(clouds())
def test_figures_of_aggregates_and_trees(state: Snapshot) -> None:
    providers = list(state.providers())
    heat = capacity_report.heat_map(state)
    for row in heat.rows:
        roots = {provider.root_id for provider in providers if row.aggregate in provider.aggregates}
        inside = [provider for provider in providers if provider.root_id in roots]
        expected = [_utilization(_of_class(inside, name)) for name in heat.classes]
        shown = [utilization or Utilization(0, 0) for utilization in row.utilizations]
        assert (row.trees, shown) == (len(roots), expected)
    for tree in list_trees(state, order=NAME, count=10_000)[1]:
        (root_id,) = (provider.root_id for provider in providers if provider.uuid == tree.uuid)
        members = [provider for provider in providers if provider.root_id == root_id]
        assert tree.utilizations == {name: _utilization(_of_class(members, name)) for name in tree.utilizations}


@given(clouds(), st.sampled_from(sorted(FULL, key=lambda state: state.value)))
def test_hosts_in_a_state(state: Snapshot, inventory_state: InventoryState) -> None:
    hosts = TreeFilter(states=frozenset({inventory_state}))
    classes = capacity_report.summary(state, hosts).classes
    affected = [
        (provider.root_id, inventory)
        for provider in state.providers()
        for inventory in provider.inventories.values()
        if _state(inventory) is inventory_state
    ]
    assert sum(getattr(figures, f'providers_{inventory_state.value}') for figures in classes) == len(affected)
    names = [f'p{root_id:03}' for root_id in sorted({root_id for root_id, _ in affected})]
    assert [row.name for row in list_trees(state, hosts, NAME, count=10_000)[1]] == names


@given(clouds(), st.dictionaries(st.sampled_from(sorted(CLASSES.values())), st.integers(1, 12), min_size=1))
def test_hosts_without_capacity(state: Snapshot, size: dict[str, int]) -> None:
    hosts = TreeFilter(lacking=size)
    names = []
    for root_id in sorted({provider.root_id for provider in state.providers()}):
        members = [provider for provider in state.providers() if provider.root_id == root_id]
        supplied = {
            name: [inventory for inventory in _of_class(members, name) if inventory.capacity > 0] for name in size
        }
        fits = all(
            any(_fits(inventory, size[name]) for inventory in inventories) for name, inventories in supplied.items()
        )
        if all(supplied.values()) and not fits:
            names.append(f'p{root_id:03}')
    assert [row.name for row in list_trees(state, hosts, NAME, count=10_000)[1]] == names
    assert capacity_report.summary(state, hosts).trees == len(names)


def _fits(inventory: InventoryRecord, amount: int) -> bool:
    return inventory.violated_limit(amount) is None
