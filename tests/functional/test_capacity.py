"""Reports on a stored cloud: which trees are listed, in which order, and ``placement-manage capacity``."""

from __future__ import annotations

import json
import re

import pytest

from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db import tables
from placement.db.api import Database
from placement.ops.reports import consumer_reports
from placement.ops.reports.capacity_report import NAME, list_trees
from placement.ops.reports.tree_filter import FULL, TreeFilter
from tests.support import clouds
from tests.support.clouds import uuid_of
from tests.support.fixtures import Printed

pytestmark = pytest.mark.usefixtures('url')


@pytest.fixture
def nested(db: Database) -> Snapshot:
    clouds.create_cloud(db, clouds.nested())
    return ProviderCache(db).up_to_date()


def test_the_most_common_size_is_that_of_the_latest_consumers(db: Database) -> None:
    assert consumer_reports.most_common_size(db, latest=100) is None
    clouds.create_cloud(db, clouds.nested())
    small = {'VCPU': 4, 'MEMORY_MB': 4096, 'DISK_GB': 80}
    assert consumer_reports.most_common_size(db, latest=100) == small
    assert consumer_reports.most_common_size(db, latest=0) is None


def test_trees_are_listed_fullest_first(nested: Snapshot) -> None:
    number, rows = list_trees(nested)
    assert number == 5
    assert [row.name for row in rows] == ['compute-0', 'compute-1', 'compute-2', 'store', 'compute-3']
    assert list(rows[0].utilizations) == ['VCPU', 'MEMORY_MB', 'SRIOV_NET_VF']
    assert [row.name for row in list_trees(nested, order='DISK_GB', count=1)[1]] == ['store']
    assert [row.name for row in list_trees(nested, order=NAME, first=3)[1]] == ['compute-3', 'store']
    assert [row.name for row in list_trees(nested, first=1, count=1)[1]] == ['compute-1']


@pytest.mark.parametrize(
    ('trees', 'names'),
    [
        (TreeFilter(name='COMPUTE-1'), ['compute-1']),
        (TreeFilter(name='compute-1-nic1'), ['compute-1']),
        (TreeFilter(name='-NIC0'), [f'compute-{n}' for n in range(4)]),
        (TreeFilter(name=uuid_of('store')[:13]), ['store']),
        (TreeFilter(traits=frozenset({'COMPUTE_STATUS_DISABLED'})), ['compute-3']),
        (TreeFilter(traits=frozenset({'COMPUTE_STATUS_DISABLED', 'HW_NIC_SRIOV'})), ['compute-3']),
        (TreeFilter(classes=frozenset({'DISK_GB'})), ['store']),
        (TreeFilter(classes=frozenset({'DISK_GB', 'VCPU'})), []),
        (TreeFilter(states=FULL), ['compute-0']),
        # The shared disk supplies DISK_GB to all hosts, and is no host itself.
        (TreeFilter(lacking={'VCPU': 60, 'DISK_GB': 10}), ['compute-0', 'compute-1']),
        (TreeFilter(states=FULL, classes=frozenset({'SRIOV_NET_VF'})), []),
        (TreeFilter(frozenset({uuid_of('rack-b')}), name='store'), ['store']),
        (TreeFilter(frozenset({uuid_of('rack-b')}), name='compute-0'), []),
    ],
)
def test_trees_are_found(nested: Snapshot, trees: TreeFilter, names: list[str]) -> None:
    number, rows = list_trees(nested, trees, NAME)
    assert [row.name for row in rows] == names
    assert number == len(names)


# The command ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures('nested')
def test_text_output(printed: Printed) -> None:
    lines = printed('capacity', '--fit', 'VCPU:4,DISK_GB:10').splitlines()
    rows = [re.split('  +', line) for line in lines]
    assert ['MEMORY_MB', '163 of 508 GiB', '32%', '345 GiB', '63.5 GiB'] in rows
    assert ['MEMORY_MB', '8', '1', '0', '0'] in rows
    assert lines[0] == '21 resource providers in 5 trees'
    assert lines[-1] == 'VCPU:4,DISK_GB:10 fits 87 more times, 32 of them on disabled hosts'


@pytest.mark.usefixtures('nested')
def test_json_output(printed: Printed) -> None:
    arguments = ['--aggregate', uuid_of('rack-a'), '--trait', 'HW_NUMA_ROOT', '--fit', 'VCPU:64']
    data = json.loads(printed('capacity', '--format', 'json', *arguments))
    assert (data['trees'], data['classes'][0]['resource_class'], data['classes'][0]['capacity']) == (2, 'VCPU', 256)
    nothing = {'fit': 0, 'complete': True, 'on_disabled_hosts': 0, 'exact': True, 'prevented_by_pools': 0}
    assert data['fit_estimate'] == nothing
    # The children have this trait, not the roots.
    data = json.loads(printed('capacity', '--format', 'json', '--root-trait', 'HW_NUMA_ROOT', '--fit', 'VCPU:4'))
    assert (data['providers'], data['trees'], data['fit_estimate']['fit']) == (0, 0, 0)


@pytest.mark.usefixtures('nested')
def test_nothing_is_on_disabled_hosts_if_the_database_lacks_the_trait(db: Database, printed: Printed) -> None:
    names = tables.traits.c.name
    with db.engine.begin() as connection:
        connection.execute(tables.traits.update().where(names == 'COMPUTE_STATUS_DISABLED').values(name='CUSTOM_OFF'))
    assert printed('capacity', '--fit', 'VCPU:4,DISK_GB:10').splitlines()[-1].endswith('fits 87 more times')


@pytest.mark.usefixtures('nested')
@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--aggregate', 'rack-a'], "'rack-a' is not the uuid of an aggregate."),
        (['--trait', 'CUSTOM_NOTHING'], 'No such trait(s): CUSTOM_NOTHING.'),
        (['--root-trait', '!CUSTOM_NOTHING'], 'No such trait(s): CUSTOM_NOTHING.'),
        (['--root-trait', 'in:CUSTOM_NOTHING'], "'in:' is not supported in a list of traits of a root."),
        (['--fit', 'CUSTOM_NOTHING:1'], 'No such resource class CUSTOM_NOTHING'),
        (['--fit', 'VCPU'], 'Badly formed resources parameter.'),
    ],
)
def test_invalid_arguments(arguments: list[str], message: str, failed: Printed) -> None:
    assert message in failed('capacity', *arguments)
