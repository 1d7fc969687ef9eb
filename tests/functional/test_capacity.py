"""Reports on a stored cloud: which trees are listed, in which order, and ``placement-manage capacity``."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

from placement import exception, validation
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database
from placement.ops.reports import capacity, consumers
from placement.ops.reports.capacity import NAME, Utilization, list_trees
from placement.ops.reports.tree_filter import FULL, TreeFilter
from tests.functional.terminal import shown_by
from tests.support import clouds
from tests.support.clouds import Cloud, Provider, uuid_of
from tests.support.fixtures import Printed

pytestmark = pytest.mark.usefixtures('url')


@pytest.fixture
def nested(db: Database) -> Snapshot:
    clouds.create_cloud(db, clouds.nested())
    return ProviderCache(db).up_to_date()


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
        (TreeFilter(traits=frozenset({'COMPUTE_STATUS_DISABLED', 'HW_NIC_SRIOV'})), ['compute-3'], None),
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


# The command ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures('nested')
def test_text_output(printed: Printed) -> None:
    assert (
        printed('capacity', '--fit', 'VCPU:4,DISK_GB:10')
        == """\
21 resource providers in 5 trees

                                                         Max
Class         Used of capacity  Share      Free  allocatable
────────────────────────────────────────────────────────────
VCPU                164 of 512    32%       348           64
MEMORY_MB       163 of 508 GiB    32%   345 GiB     63.5 GiB
DISK_GB       1.33 of 19.5 TiB     6%  18.2 TiB     18.2 TiB
SRIOV_NET_VF          12 of 64    18%        52            8

                             Fully                Over-
Class         Providers  allocated  Reserved  committed
───────────────────────────────────────────────────────
VCPU                  8          1         0          0
MEMORY_MB             8          1         0          0
DISK_GB               1          0         0          0
SRIOV_NET_VF          8          0         0          0

VCPU:4,DISK_GB:10 fits 87 more times, 32 of them on disabled hosts
"""
    )


def test_nothing_is_truncated_on_a_terminal_of_80_columns(db: Database) -> None:
    long = f'CUSTOM_{"LONG" * 20}'
    stored = {
        'VCPU': (1_234_567, 1_000_000),
        'MEMORY_MB': (351_698_944, 967_578_624),
        'NET_BW_EGR_KILOBIT_PER_SEC': (1_123_456_000, 2_147_000_000),
        long: (1_000_000_000, 1_000_000_001),
    }
    name = 'numa-004.hpc.eu-central-1.cloud.example.org_NUMA0_pf_enp59s0f0'
    cloud = Cloud([Provider(name, {resource_class: {'total': total} for resource_class, (_, total) in stored.items()})])
    cloud.allocations = {'machine': {name: {resource_class: used for resource_class, (used, _) in stored.items()}}}
    clouds.create_cloud(db, cloud)
    lines = shown_by('capacity')
    assert max(map(len, lines)) <= 80
    assert '…' not in ''.join(lines)
    rows = [re.split('  +', line) for line in lines]
    assert ['VCPU', '1,234,567 of 1,000,000', '123%', '0', '0'] in rows
    assert ['VCPU', '1', '0', '0', '1 by 234,567'] in rows
    assert ['MEMORY_MB', '335 of 923 TiB', '36%', '587 TiB', '587 TiB'] in rows
    assert any('1,000,000,000 of 1,000,000,001' in line and '99%' in line for line in lines)
    assert ''.join(row[0] for row in rows).count('LONG' * 3) >= 2


@pytest.mark.usefixtures('nested')
def test_json_output(printed: Printed) -> None:
    arguments = ['--aggregate', uuid_of('rack-a').upper(), '--trait', 'HW_NUMA_ROOT', '--fit', 'VCPU:64']
    data = json.loads(printed('capacity', '--format', 'json', *arguments))
    assert (data['trees'], data['classes'][0]['resource_class'], data['classes'][0]['capacity']) == (2, 'VCPU', 256)
    assert data['fit_estimate'] == {'fit': 0, 'complete': True, 'on_disabled_hosts': 0}
    assert 'fit_by_aggregate' not in data
    # The children have this trait, not the roots.
    data = json.loads(printed('capacity', '--format', 'json', '--root-trait', 'HW_NUMA_ROOT', '--fit', 'VCPU:4'))
    assert (data['providers'], data['trees'], data['fit_estimate']['fit']) == (0, 0, 0)


@pytest.mark.usefixtures('nested')
def test_each_aggregate_has_the_figure_that_it_has_alone(printed: Printed) -> None:
    def report(*arguments: str) -> Any:
        return json.loads(printed('capacity', '--format', 'json', '--fit', 'VCPU:4', *arguments))

    rows = report('--by-aggregate')['fit_by_aggregate']
    assert [row['fit'] for row in rows] == sorted((row['fit'] for row in rows), reverse=True)
    for row in rows:
        aggregate = row.pop('aggregate')
        assert report('--aggregate', aggregate)['fit_estimate'] == row
        disabled = report('--aggregate', aggregate, '--root-trait', 'COMPUTE_STATUS_DISABLED')['fit_estimate']
        assert disabled['fit'] == row['on_disabled_hosts']
    lines = shown_by('capacity', '--fit', 'VCPU:4', '--by-aggregate')
    assert max(map(len, lines)) <= 80
    assert sum(validation.is_uuid(line.split()[0]) for line in lines if line) == len(rows) == 2


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--aggregate', 'rack-a'], "--aggregate takes the uuid of an aggregate, not 'rack-a'."),
        (['--trait', 'CUSTOM_NOTHING'], 'No such trait(s): CUSTOM_NOTHING.'),
        (['--root-trait', '!CUSTOM_NOTHING'], 'No such trait(s): CUSTOM_NOTHING.'),
        (['--root-trait', 'in:CUSTOM_NOTHING'], "'in:' is not supported in a list of traits of a root."),
        (['--fit', 'CUSTOM_NOTHING:1'], 'No such resource class CUSTOM_NOTHING'),
        (['--by-aggregate'], '--by-aggregate requires --fit, and excludes --aggregate.'),
        (['--by-aggregate', '--fit', 'VCPU:1', '--aggregate', uuid_of('rack-a')], 'excludes --aggregate.'),
        (['--fit', 'VCPU'], 'Badly formed resources parameter.'),
    ],
)
def test_invalid_arguments(arguments: list[str], message: str, failed: Printed) -> None:
    assert message in failed('capacity', *arguments)
