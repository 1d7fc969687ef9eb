"""``placement-manage capacity``: the figures, as text and as JSON."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from oslo_config import cfg

from placement import validation
from placement.db.api import Database
from tests.support import clouds
from tests.support.clouds import Cloud, Provider, uuid_of
from tests.support.fixtures import PointCommandsAt, Printed
from tests.support.terminal import shown_by


@pytest.fixture(autouse=True)
def _configured(conf: cfg.ConfigOpts, db: Database, point_commands_at: PointCommandsAt) -> None:
    point_commands_at(conf.placement_database.connection)


@pytest.fixture
def nested(db: Database) -> None:
    clouds.create_cloud(db, clouds.nested())


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
