"""Reports on a stored cloud: which trees are selected and listed, in which order; property tests have the figures."""

from __future__ import annotations

import numpy as np
import pytest

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database
from placement.ops.reports import capacity, consumers
from placement.ops.reports.capacity import NAME, Utilization, list_trees
from placement.ops.reports.tree_filter import FULL, TreeFilter
from tests.support import clouds
from tests.support.clouds import Cloud, Provider, uuid_of


@pytest.fixture
def nested(db: Database) -> Snapshot:
    clouds.create_cloud(db, clouds.nested())
    return ProviderCache(db).up_to_date()


def test_a_filter_selects_whole_trees(nested: Snapshot) -> None:
    rack = TreeFilter(frozenset({uuid_of('rack-a')}))
    (vcpu, *_) = capacity.summary(nested, rack).classes
    assert (vcpu.resource_class, vcpu.capacity, vcpu.used) == ('VCPU', 256, 152)
    both = TreeFilter(frozenset({uuid_of('rack-b')}), frozenset({'COMPUTE_STATUS_DISABLED', 'HW_NIC_SRIOV'}))
    assert capacity.summary(nested, both).trees == 1
    assert capacity.summary(nested, TreeFilter(frozenset({uuid_of('nowhere')}))).trees == 0
    with pytest.raises(exception.TraitNotFound):
        capacity.summary(nested, TreeFilter(traits=frozenset({'CUSTOM_NOTHING'})))


def test_hosts_without_capacity_for_a_size(nested: Snapshot) -> None:
    """The shared disk supplies DISK_GB to all hosts, and is no host itself."""
    hosts = [f'compute-{number}' for number in range(4)]
    for amount, names in ((1, []), (45, hosts[:1]), (60, hosts[:2]), (65, hosts)):
        lacking = TreeFilter(lacking={'VCPU': amount, 'MEMORY_MB': 1024, 'DISK_GB': 10})
        assert [row.name for row in list_trees(nested, lacking, NAME).rows] == names
        assert capacity.summary(nested, lacking).trees == len(names)
    with pytest.raises(exception.ResourceClassNotFound):
        capacity.summary(nested, TreeFilter(lacking={'CUSTOM_NOTHING': 1}))


def test_the_most_common_size_is_that_of_the_latest_consumers(db: Database) -> None:
    assert consumers.most_common_size(db, latest=100) is None
    clouds.create_cloud(db, clouds.nested())
    small = {'VCPU': 4, 'MEMORY_MB': 4096, 'DISK_GB': 80}
    assert consumers.most_common_size(db, latest=100) == small
    assert consumers.most_common_size(db, latest=0) is None


def test_aggregates_come_in_the_order_of_their_fullest_class(db: Database) -> None:
    vcpu, disk = {'VCPU': {'total': 8}}, {'DISK_GB': {'total': 8}}
    cloud = Cloud([Provider('half', vcpu | disk, (), ('x',)), Provider('most', vcpu, (), ('y',))])
    # Both classes of x together have a larger share in use than the one of y.
    cloud.allocations = {'one': {'half': {'VCPU': 4, 'DISK_GB': 4}}, 'two': {'most': {'VCPU': 6}}}
    clouds.create_cloud(db, cloud)
    fuller, other = capacity.heat_map(ProviderCache(db).up_to_date()).rows
    assert (fuller.aggregate, fuller.utilizations) == (uuid_of('y'), [Utilization(8, 6), None])
    assert (other.aggregate, other.utilizations) == (uuid_of('x'), [Utilization(8, 4), Utilization(8, 4)])


@pytest.mark.parametrize(('capacity_', 'used', 'share'), [(8, 2, 0.25), (0, 0, 0.0), (0, 2, 1.0)])
def test_an_inventory_without_capacity_is_full_if_anything_of_it_is_used(
    capacity_: int, used: int, share: float
) -> None:
    assert Utilization(capacity_, used).share == share
    assert capacity.shares(np.array([float(capacity_)]), np.array([float(used)])).tolist() == [share]


def test_trees_are_listed_fullest_first(nested: Snapshot) -> None:
    page = list_trees(nested)
    assert page.trees == 5
    assert [row.name for row in page.rows] == ['compute-0', 'compute-1', 'compute-2', 'store', 'compute-3']
    assert list(page.rows[0].utilizations) == ['VCPU', 'MEMORY_MB', 'SRIOV_NET_VF']
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
