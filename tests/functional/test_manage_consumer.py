"""``placement-manage consumer`` and ``tree --consumers``: where an instance is, and who is on a host."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from oslo_config import cfg

from placement.db.api import Database
from placement.ops.reports.consumers import consumers_by_provider
from tests.support import clouds, corruption
from tests.support.clouds import uuid_of
from tests.support.fixtures import Counter, PointCommandsAt, Printed

MACHINE = uuid_of('machine-3')


@pytest.fixture
def url(conf: cfg.ConfigOpts, db: Database, point_commands_at: PointCommandsAt) -> str:
    """The URL of a database with the nested cloud; commands that the test runs use it."""
    clouds.create_cloud(db, clouds.nested())
    return point_commands_at(conf.placement_database.connection)


def in_json(printed: Printed, *arguments: str) -> Any:
    return json.loads(printed(*arguments, '--format', 'json'))


@pytest.mark.parametrize('spelling', [MACHINE, MACHINE.upper(), MACHINE.replace('-', '')])
def test_a_consumer_has_its_owner_and_its_allocations_by_provider(url: str, spelling: str, printed: Printed) -> None:
    corruption.plant(
        url,
        "UPDATE placement_consumers SET created_at = '2026-11-20 09:12:33', updated_at = '2026-11-24 08:10:00'",
        "UPDATE placement_allocations SET created_at = '2026-11-24 08:10:00.125'",
    )
    lines = printed('consumer', spelling).splitlines()
    assert lines[:2] == [
        f'{MACHINE} of project project-blue, user user-ada',
        'created 2026-11-20 09:12 UTC, last written 2026-11-24 08:10 UTC',
    ]
    assert [re.split('  +', line.strip()) for line in lines[5:]] == [
        ['compute-0-nic1', 'SRIOV_NET_VF', '2', '2026-11-24 08:10 UTC'],
        ['compute-0-numa1', 'VCPU', '16', '2026-11-24 08:10 UTC'],
        ['compute-0-numa1', 'MEMORY_MB', '15.9 GiB', '2026-11-24 08:10 UTC'],
        ['store', 'DISK_GB', '80 GiB', '2026-11-24 08:10 UTC'],
    ]
    consumer = in_json(printed, 'consumer', spelling)['consumer']
    allocations = consumer.pop('allocations')
    assert consumer == {
        'uuid': MACHINE,
        'project': 'project-blue',
        'user': 'user-ada',
        'generation': 1,
        'type': None,
        'created_at': '2026-11-20T09:12:33+00:00',
        'updated_at': '2026-11-24T08:10:00+00:00',
    }
    assert allocations[0] == {
        'provider_uuid': uuid_of('compute-0-nic1'),
        'provider_name': 'compute-0-nic1',
        'resource_class': 'SRIOV_NET_VF',
        'amount': 2,
        'created_at': '2026-11-24T08:10:00.125000+00:00',
    }


def test_a_consumer_without_a_record_and_one_without_allocations(url: str, printed: Printed, failed: Printed) -> None:
    corruption.plant(url, f"DELETE FROM placement_consumers WHERE uuid = '{MACHINE}'")
    lines = printed('consumer', MACHINE).splitlines()
    assert lines[:2] == [f'{MACHINE} has no record of its project and user', '']
    assert 'compute-0-numa1' in lines[5]
    machine = uuid_of('machine-1')
    corruption.plant(url, f"DELETE FROM placement_allocations WHERE consumer_id = '{machine}'")
    assert 'It has no allocations. See: placement-manage audit\n' in printed('consumer', machine)
    corruption.plant(url, f"DELETE FROM placement_consumers WHERE uuid = '{machine}'")
    assert failed('consumer', machine) == (
        f"placement-manage: There is no consumer with the uuid '{machine}': it has neither a record nor allocations.\n"
    )


def test_names_of_owners_cannot_write_control_characters(url: str, printed: Printed) -> None:
    corruption.plant(url, "UPDATE placement_projects SET external_id = 'a' || char(27) || '[31m[red]'")
    for arguments in (['consumer', MACHINE], ['tree', 'compute-0', '--consumers']):
        assert 'of project a\\x1b[31m[red], user user-ada' in printed(*arguments)


def test_a_tree_has_the_consumers_of_each_provider(url: str, printed: Printed) -> None:
    owner = 'of project project-blue, user user-ada'
    text = printed('tree', 'compute-0', '--consumers')
    branch = text[text.index('compute-0-numa1') : text.index('compute-0-nic1')]
    machines = sorted(uuid_of(f'machine-{number}') for number in (1, 3, 5))
    # The consumers are between the inventories and the traits.
    lines = [line.lstrip('│├└─ ') for line in branch.splitlines()]
    assert lines[3:6] == [f'{uuid} {owner}: VCPU 16, MEMORY_MB 15.9 GiB' for uuid in machines]
    assert lines[6].startswith('traits: ')
    assert 'project' not in printed('tree', 'compute-0')
    (tree,) = in_json(printed, 'tree', 'compute-0', '--consumers')['trees']
    consumers = {provider['name']: provider['consumers'] for provider in tree['providers']}
    assert consumers['compute-0'] == []
    assert [consumer['uuid'] for consumer in consumers['compute-0-numa1']] == machines
    assert [consumer['uuid'] for consumer in consumers['compute-0-nic1']] == [MACHINE]
    (allocation,) = consumers['compute-0-nic1'][0]['allocations']
    assert (allocation['resource_class'], allocation['amount']) == ('SRIOV_NET_VF', 2)
    (tree,) = in_json(printed, 'tree', 'compute-0')['trees']
    assert 'consumers' not in tree['providers'][0]


@pytest.mark.usefixtures('url')
def test_many_consumers_take_few_statements(db: Database, queries: Counter) -> None:
    with queries(at_most=3):
        by_provider = consumers_by_provider(db, range(1, 22))
    assert sum(map(len, by_provider.values())) == 40


def test_tree_of_a_consumer_names_the_command(url: str, failed: Printed) -> None:
    assert failed('tree', MACHINE.upper()) == (
        f'placement-manage: {MACHINE} is a consumer, not a resource provider.'
        f' See: placement-manage consumer {MACHINE}\n'
    )
