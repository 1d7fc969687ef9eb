"""The figures of reports: capacity by class and aggregate, lists of trees, and allocations by consumer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db import tables
from placement.db.api import Database
from placement.ops.reports import capacity, consumers
from placement.ops.reports.capacity import NAME, ClassFigures, Utilization, list_trees
from placement.ops.reports.consumers import MostCommonSize
from placement.ops.reports.tree_filter import FULL, InventoryState, TreeFilter
from tests.support import clouds
from tests.support.clouds import Cloud, Provider, uuid_of


@pytest.fixture
def nested(db: Database) -> Snapshot:
    clouds.create_cloud(db, clouds.nested())
    return ProviderCache(db).up_to_date()


def _figures(resource_class: str, **different: int) -> ClassFigures:
    """Figures of a class, 0 unless given. What is reserved is not part of the capacity."""
    return ClassFigures(resource_class, **{name: different.get(name, 0) for name in _FIGURES})


_FIGURES = [field.name for field in dataclasses.fields(ClassFigures)][1:]


def test_figures_of_each_class(nested: Snapshot) -> None:
    figures = capacity.summary(nested)
    assert (figures.providers, figures.trees) == (21, 5)
    full = {'full': 1, 'providers_fully_allocated': 1}
    assert figures.classes == [
        _figures('VCPU', providers=8, total=128, capacity=512, used=164, free=348, max_allocatable=64, **full),
        _figures(
            'MEMORY_MB',
            providers=8,
            total=524288,
            reserved=4096,
            capacity=520192,
            used=166912,
            free=353280,
            max_allocatable=65024,
            **full,
        ),
        _figures('DISK_GB', providers=1, total=20000, capacity=20000, used=1360, free=18640, max_allocatable=18640),
        _figures('SRIOV_NET_VF', providers=8, total=64, capacity=64, used=12, free=52, max_allocatable=8),
    ]


def test_a_filter_selects_whole_trees(nested: Snapshot) -> None:
    rack = TreeFilter(frozenset({uuid_of('rack-a')}))
    (vcpu, *_) = capacity.summary(nested, rack).classes
    assert (vcpu.resource_class, vcpu.capacity, vcpu.used) == ('VCPU', 256, 152)
    both = TreeFilter(frozenset({uuid_of('rack-b')}), frozenset({'COMPUTE_STATUS_DISABLED', 'HW_NIC_SRIOV'}))
    assert capacity.summary(nested, both).trees == 1
    assert capacity.summary(nested, TreeFilter(frozenset({uuid_of('nowhere')}))).trees == 0
    with pytest.raises(exception.TraitNotFound):
        capacity.summary(nested, TreeFilter(traits=frozenset({'CUSTOM_NOTHING'})))


@pytest.fixture
def in_all_states(db: Database) -> Snapshot:
    """Inventories in each state, for different reasons."""
    inventories = {
        'stepped': {'total': 10, 'step_size': 4},
        'small': {'total': 10, 'max_unit': 3},
        'least': {'total': 10, 'min_unit': 8},
        'over': {'total': 4},
        'reserved': {'total': 7, 'reserved': 7},
        'more-reserved': {'total': 7, 'reserved': 9},
        'over-reserved': {'total': 7, 'reserved': 9},
    }
    cloud = Cloud([Provider(name, {'VCPU': columns}) for name, columns in inventories.items()])
    cloud.allocations = {
        'one': {'least': {'VCPU': 8}},
        'two': {'over': {'VCPU': 6}},
        'three': {'over-reserved': {'VCPU': 1}},
    }
    clouds.create_cloud(db, cloud)
    return ProviderCache(db).up_to_date()


def test_over_commitment_is_not_free_and_full_inventories_have_a_reason(in_all_states: Snapshot) -> None:
    (vcpu,) = capacity.summary(in_all_states).classes
    assert vcpu == _figures(
        'VCPU',
        providers=7,
        total=55,
        reserved=25,
        capacity=34,
        used=15,
        free=22,
        over_committed=3,
        max_allocatable=8,
        full=5,
        providers_fully_allocated=1,
        providers_reserved=2,
        providers_over_committed=2,
    )


def test_hosts_with_a_problem_are_counted_and_can_be_selected(in_all_states: Snapshot) -> None:
    for inventory_state, names in {
        InventoryState.OVER_COMMITTED: ['over', 'over-reserved'],
        InventoryState.RESERVED: ['more-reserved', 'reserved'],
        InventoryState.FULLY_ALLOCATED: ['least'],
    }.items():
        hosts = TreeFilter(states=frozenset({inventory_state}))
        summary = capacity.summary(in_all_states, hosts)
        inventories = [getattr(figures, f'providers_{inventory_state.value}') for figures in summary.classes]
        assert (summary.trees, sum(inventories)) == (len(names), len(names))
        assert [row.name for row in list_trees(in_all_states, hosts, NAME).rows] == names


def test_hosts_without_capacity_for_a_size(nested: Snapshot) -> None:
    """The shared disk supplies DISK_GB to all hosts, and is no host itself."""
    hosts = [f'compute-{number}' for number in range(4)]
    for amount, names in ((1, []), (45, hosts[:1]), (60, hosts[:2]), (65, hosts)):
        lacking = TreeFilter(lacking={'VCPU': amount, 'MEMORY_MB': 1024, 'DISK_GB': 10})
        assert [row.name for row in list_trees(nested, lacking, NAME).rows] == names
        assert capacity.summary(nested, lacking).trees == len(names)
    with pytest.raises(exception.ResourceClassNotFound):
        capacity.summary(nested, TreeFilter(lacking={'CUSTOM_NOTHING': 1}))


def test_reserved_hosts_supply_nothing(in_all_states: Snapshot) -> None:
    lacking = TreeFilter(lacking={'VCPU': 8})
    assert [row.name for row in list_trees(in_all_states, lacking, NAME).rows] == ['least', 'over', 'small']


@pytest.mark.usefixtures('nested')
def test_the_most_common_size_is_that_of_the_latest_consumers(db: Database) -> None:
    small = {'VCPU': 4, 'MEMORY_MB': 4096, 'DISK_GB': 80}
    assert consumers.most_common_size(db) == MostCommonSize(small, 6, 17)
    assert consumers.most_common_size(db, latest=1) == MostCommonSize(small, 1, 1)


def test_without_allocations_there_is_no_most_common_size(db: Database) -> None:
    assert consumers.most_common_size(db) is None


def test_heat_map_counts_a_tree_for_every_aggregate_of_its_providers(nested: Snapshot) -> None:
    heat = capacity.heat_map(nested)
    assert heat.classes == ['VCPU', 'MEMORY_MB', 'DISK_GB', 'SRIOV_NET_VF']
    fullest, other = heat.rows
    assert (fullest.aggregate, fullest.trees) == (uuid_of('rack-a'), 3)
    assert fullest.utilizations[0] == Utilization(256, 152)
    # The shared disk is in both aggregates.
    assert fullest.utilizations[2] == other.utilizations[2] == Utilization(20000, 1360)


def test_aggregates_come_in_the_order_of_their_fullest_class(db: Database) -> None:
    half, fuller = {'VCPU': {'total': 8}, 'DISK_GB': {'total': 8}}, {'VCPU': {'total': 8}}
    cloud = Cloud([Provider('half', half, (), ('x',)), Provider('most', fuller, (), ('y',))])
    # Both classes of x together have a larger share in use than the one of y.
    cloud.allocations = {'one': {'half': {'VCPU': 4, 'DISK_GB': 4}}, 'two': {'most': {'VCPU': 6}}}
    clouds.create_cloud(db, cloud)
    rows = capacity.heat_map(ProviderCache(db).up_to_date()).rows
    assert [row.aggregate for row in rows] == [uuid_of('y'), uuid_of('x')]


@pytest.mark.parametrize(('capacity_', 'used', 'share'), [(8, 2, 0.25), (0, 0, 0.0), (0, 2, 1.0)])
def test_an_inventory_without_capacity_is_full_if_anything_of_it_is_used(
    capacity_: int, used: int, share: float
) -> None:
    assert Utilization(capacity_, used).share == share
    assert capacity.shares(np.array([float(capacity_)]), np.array([float(used)])).tolist() == [share]


def test_cells_without_inventory_are_empty(db: Database) -> None:
    members = [Provider('a', {'VCPU': {'total': 1}}, (), ('x',)), Provider('b', {'DISK_GB': {'total': 1}}, (), ('y',))]
    clouds.create_cloud(db, Cloud(members))
    rows = capacity.heat_map(ProviderCache(db).up_to_date()).rows
    cells = {row.aggregate: row.utilizations for row in rows}
    assert cells == {uuid_of('x'): [Utilization(1, 0), None], uuid_of('y'): [None, Utilization(1, 0)]}


def test_trees_are_listed_fullest_first(nested: Snapshot) -> None:
    page = list_trees(nested)
    assert page.trees == 5
    assert [row.name for row in page.rows] == ['compute-0', 'compute-1', 'compute-2', 'store', 'compute-3']
    assert [column.resource_class for column in page.rows[0].classes] == ['VCPU', 'MEMORY_MB', 'SRIOV_NET_VF']
    assert [row.name for row in list_trees(nested, order=NAME, first=3).rows] == ['compute-3', 'store']
    assert [row.name for row in list_trees(nested, first=1, count=1).rows] == ['compute-1']


def test_trees_are_listed_by_one_class(db: Database) -> None:
    allocated = {'half': {'VCPU': 4, 'DISK_GB': 8}, 'most': {'VCPU': 6}}
    cloud = Cloud(
        [
            Provider(name, {resource_class: {'total': 8} for resource_class in amounts})
            for name, amounts in allocated.items()
        ]
    )
    cloud.providers.append(Provider('none', {}))
    cloud.allocations = {f'of-{name}': {name: amounts} for name, amounts in allocated.items()}
    clouds.create_cloud(db, cloud)
    state = ProviderCache(db).up_to_date()
    assert [row.name for row in list_trees(state).rows] == ['half', 'most', 'none']
    assert [row.name for row in list_trees(state, order='VCPU').rows] == ['most', 'half', 'none']


@pytest.mark.parametrize(
    ('trees', 'names', 'match'),
    [
        (TreeFilter(name='COMPUTE-1'), ['compute-1'], None),
        (TreeFilter(name='compute-1-nic1'), ['compute-1'], 'compute-1-nic1'),
        (TreeFilter(name='COMPUTE-?-nic0'), [f'compute-{n}' for n in range(4)], 'nic0'),
        (TreeFilter(name='compute-?'), [f'compute-{n}' for n in range(4)], None),
        (TreeFilter(name=uuid_of('store')[:13]), ['store'], None),
        (TreeFilter(traits=frozenset({'COMPUTE_STATUS_DISABLED'})), ['compute-3'], None),
        (TreeFilter(classes=frozenset({'DISK_GB'})), ['store'], None),
        (TreeFilter(classes=frozenset({'DISK_GB', 'VCPU'})), [], None),
        (TreeFilter(states=FULL), ['compute-0'], None),
        (TreeFilter(states=FULL, classes=frozenset({'SRIOV_NET_VF'})), [], None),
        (TreeFilter(frozenset({uuid_of('rack-b')}), name='store'), ['store'], None),
        (TreeFilter(frozenset({uuid_of('rack-b')}), name='compute-0'), [], None),
    ],
)
def test_trees_are_found(nested: Snapshot, trees: TreeFilter, names: list[str], match: str | None) -> None:
    page = list_trees(nested, trees, NAME)
    assert [row.name for row in page.rows] == names
    assert page.trees == len(names)
    assert all((row.found is None) if match is None else str(row.found).endswith(match) for row in page.rows)


@pytest.mark.usefixtures('nested')
def test_consumers_of_a_tree_are_listed_with_their_allocations_there(db: Database) -> None:
    page = consumers.consumers_of_tree(db, 1, 0, 100)
    assert page.consumers == len(page.rows) == 7
    by_uuid = {row.uuid: row for row in page.rows}
    consumer = by_uuid[uuid_of('machine-3')]
    assert (consumer.project, consumer.user, consumer.generation) == ('project-blue', 'user-ada', 1)
    # The disk belongs to another tree.
    assert [
        (allocation.provider_name, allocation.resource_class, allocation.amount) for allocation in consumer.allocations
    ] == [
        ('compute-0-nic1', 'SRIOV_NET_VF', 2),
        ('compute-0-numa1', 'VCPU', 16),
        ('compute-0-numa1', 'MEMORY_MB', 16256),
    ]
    assert consumers.consumers_of_tree(db, 1, 5, 100).rows == page.rows[5:]


@pytest.mark.usefixtures('nested')
def test_a_consumer_is_shown_with_all_its_allocations(db: Database) -> None:
    consumer = consumers.read_consumer(db, uuid_of('machine-3'))
    assert consumer is not None
    assert [allocation.resource_class for allocation in consumer.allocations] == [
        'SRIOV_NET_VF',
        'VCPU',
        'MEMORY_MB',
        'DISK_GB',
    ]
    assert consumers.read_consumer(db, uuid_of('nobody')) is None


@pytest.mark.usefixtures('nested')
def test_the_type_of_a_consumer_is_shown(db: Database) -> None:
    with db.engine.begin() as connection:
        connection.execute(tables.consumer_types.insert(), {'id': 1, 'name': 'INSTANCE'})
        machine = tables.consumers.c.uuid == uuid_of('machine-3')
        connection.execute(tables.consumers.update().where(machine).values(consumer_type_id=1))
    (typed, untyped) = (consumers.read_consumer(db, uuid_of(name)) for name in ('machine-3', 'machine-4'))
    assert (typed and typed.type, untyped and untyped.type) == ('INSTANCE', None)
    shown = {consumer.uuid: consumer.type for consumer in consumers.consumers_of_tree(db, 1, 0, 100).rows}
    assert shown[uuid_of('machine-3')] == 'INSTANCE'
    assert set(shown.values()) == {'INSTANCE', None}
