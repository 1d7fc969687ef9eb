"""The figures of reports: capacity by class and aggregate, lists of trees, and allocations by consumer."""

from __future__ import annotations

import numpy as np
import pytest

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db import tables
from placement.db.api import Database
from placement.reports import capacity, consumers
from placement.reports.capacity import ClassFigures, Filling, Scope
from placement.reports.tree_list import Order, listing
from tests.support import clouds
from tests.support.clouds import Cloud, Provider, uuid_of


@pytest.fixture
def nested(db: Database) -> Snapshot:
    clouds.plant(db, clouds.nested())
    return ProviderCache(db).current()


def test_figures_of_each_class(nested: Snapshot) -> None:
    told = capacity.summary(nested, Scope())
    assert (told.providers, told.trees) == (21, 5)
    assert told.classes == [
        ClassFigures('VCPU', 8, capacity=512, used=164, free=348, max_allocatable=64, full=1),
        ClassFigures('MEMORY_MB', 8, capacity=520192, used=166912, free=353280, max_allocatable=65024, full=1),
        ClassFigures('DISK_GB', 1, capacity=20000, used=1360, free=18640, max_allocatable=18640, full=0),
        ClassFigures('SRIOV_NET_VF', 8, capacity=64, used=12, free=52, max_allocatable=8, full=0),
    ]


def test_a_scope_selects_whole_trees(nested: Snapshot) -> None:
    rack = Scope(uuid_of('rack-a'))
    (vcpu, *_) = capacity.by_class(nested, rack)
    assert (vcpu.resource_class, vcpu.capacity, vcpu.used) == ('VCPU', 256, 152)
    both = Scope(uuid_of('rack-b'), frozenset({'COMPUTE_STATUS_DISABLED', 'HW_NIC_SRIOV'}))
    assert capacity.summary(nested, both).trees == 1
    assert capacity.summary(nested, Scope(uuid_of('nowhere'))).trees == 0
    with pytest.raises(exception.TraitNotFound):
        capacity.by_class(nested, Scope(traits=frozenset({'CUSTOM_NOTHING'})))


def test_largest_amounts_follow_the_units_and_over_commitment_is_not_free(db: Database) -> None:
    inventories = {
        'stepped': {'total': 10, 'step_size': 4},
        'small': {'total': 10, 'max_unit': 3},
        'least': {'total': 10, 'min_unit': 8},
        'over': {'total': 4},
    }
    cloud = Cloud([Provider(name, {'VCPU': columns}) for name, columns in inventories.items()])
    cloud.held = {'one': {'least': {'VCPU': 8}}, 'two': {'over': {'VCPU': 6}}}
    clouds.plant(db, cloud)
    (vcpu,) = capacity.by_class(ProviderCache(db).current(), Scope())
    assert vcpu == ClassFigures('VCPU', 4, capacity=34, used=14, free=22, max_allocatable=8, full=2)


def test_heat_map_counts_a_tree_for_every_aggregate_of_its_providers(nested: Snapshot) -> None:
    heat = capacity.heat_map(nested)
    assert heat.classes == ['VCPU', 'MEMORY_MB', 'DISK_GB', 'SRIOV_NET_VF']
    fullest, other = heat.rows
    assert (fullest.aggregate, fullest.trees) == (uuid_of('rack-a'), 3)
    assert fullest.fillings[0] == Filling(256, 152)
    # The shared disk is in both aggregates.
    assert fullest.fillings[2] == other.fillings[2] == Filling(20000, 1360)
    assert capacity.heat_map(nested, 1, 1).rows == [other]


def test_aggregates_come_in_the_order_of_their_fullest_class(db: Database) -> None:
    half, most = {'VCPU': {'total': 8}, 'DISK_GB': {'total': 8}}, {'VCPU': {'total': 8}}
    cloud = Cloud([Provider('half', half, (), ('x',)), Provider('most', most, (), ('y',))])
    # Both classes of x together have a larger share in use than the one of y.
    cloud.held = {'one': {'half': {'VCPU': 4, 'DISK_GB': 4}}, 'two': {'most': {'VCPU': 6}}}
    clouds.plant(db, cloud)
    rows = capacity.heat_map(ProviderCache(db).current()).rows
    assert [row.aggregate for row in rows] == [uuid_of('y'), uuid_of('x')]


@pytest.mark.parametrize(('capacity_', 'used', 'share'), [(8, 2, 0.25), (0, 0, 0.0), (0, 2, 1.0)])
def test_an_inventory_without_capacity_is_full_if_anything_of_it_is_used(
    capacity_: int, used: int, share: float
) -> None:
    assert Filling(capacity_, used).share == share
    assert capacity.shares(np.array([float(capacity_)]), np.array([float(used)])).tolist() == [share]


def test_cells_without_inventory_are_empty(db: Database) -> None:
    members = [Provider('a', {'VCPU': {'total': 1}}, (), ('x',)), Provider('b', {'DISK_GB': {'total': 1}}, (), ('y',))]
    clouds.plant(db, Cloud(members))
    rows = capacity.heat_map(ProviderCache(db).current()).rows
    cells = {row.aggregate: row.fillings for row in rows}
    assert cells == {uuid_of('x'): [Filling(1, 0), None], uuid_of('y'): [None, Filling(1, 0)]}


def test_trees_are_listed_fullest_first(nested: Snapshot) -> None:
    page = listing(nested)
    assert page.trees == 5
    assert [row.name for row in page.rows] == ['compute-0', 'compute-1', 'compute-2', 'store', 'compute-3']
    assert [one.resource_class for one in page.rows[0].classes] == ['VCPU', 'MEMORY_MB', 'SRIOV_NET_VF']
    assert [row.name for row in listing(nested, order=Order.NAME, first=3).rows] == ['compute-3', 'store']
    assert [row.name for row in listing(nested, first=1, count=1).rows] == ['compute-1']


@pytest.mark.parametrize(
    ('text', 'scope', 'names', 'found'),
    [
        ('COMPUTE-1', Scope(), ['compute-1'], None),
        ('compute-1-nic1', Scope(), ['compute-1'], 'compute-1-nic1'),
        (uuid_of('store')[:13], Scope(), ['store'], None),
        ('', Scope(traits=frozenset({'COMPUTE_STATUS_DISABLED'})), ['compute-3'], None),
        ('store', Scope(uuid_of('rack-b')), ['store'], None),
        ('compute-0', Scope(uuid_of('rack-b')), [], None),
    ],
)
def test_trees_are_found_by_name_and_uuid(
    nested: Snapshot, text: str, scope: Scope, names: list[str], found: str | None
) -> None:
    page = listing(nested, text, scope)
    assert [row.name for row in page.rows] == names
    assert page.trees == len(names)
    assert all(row.found == found for row in page.rows)


@pytest.mark.usefixtures('nested')
def test_consumers_of_a_tree_are_listed_with_their_allocations_there(db: Database) -> None:
    page = consumers.of_tree(db, 1, 0, 100)
    assert page.consumers == len(page.rows) == 7
    by_uuid = {one.uuid: one for one in page.rows}
    one = by_uuid[uuid_of('machine-3')]
    assert (one.project, one.user, one.generation) == ('project-blue', 'user-ada', 1)
    # The disk belongs to another tree.
    assert [(held.provider_name, held.resource_class, held.amount) for held in one.held] == [
        ('compute-0-nic1', 'SRIOV_NET_VF', 2),
        ('compute-0-numa1', 'VCPU', 16),
        ('compute-0-numa1', 'MEMORY_MB', 16256),
    ]
    assert consumers.of_tree(db, 1, 5, 100).rows == page.rows[5:]


@pytest.mark.usefixtures('nested')
def test_a_consumer_is_shown_with_all_its_allocations(db: Database) -> None:
    one = consumers.one(db, uuid_of('machine-3'))
    assert one is not None
    assert [held.resource_class for held in one.held] == ['SRIOV_NET_VF', 'VCPU', 'MEMORY_MB', 'DISK_GB']
    assert consumers.one(db, uuid_of('nobody')) is None


@pytest.mark.usefixtures('nested')
def test_the_type_of_a_consumer_is_shown(db: Database) -> None:
    with db.engine.begin() as connection:
        connection.execute(tables.consumer_types.insert(), {'id': 1, 'name': 'INSTANCE'})
        which = tables.consumers.c.uuid == uuid_of('machine-3')
        connection.execute(tables.consumers.update().where(which).values(consumer_type_id=1))
    (typed, untyped) = (consumers.one(db, uuid_of(name)) for name in ('machine-3', 'machine-4'))
    assert (typed and typed.type, untyped and untyped.type) == ('INSTANCE', None)
    shown = {one.uuid: one.type for one in consumers.of_tree(db, 1, 0, 100).rows}
    assert shown[uuid_of('machine-3')] == 'INSTANCE'
    assert set(shown.values()) == {'INSTANCE', None}
