"""``placement-manage project``: the allocations of a project, summed up in every way that the command shows."""

from __future__ import annotations

import json
import pathlib
import uuid
from typing import Any

import pytest
from oslo_config import cfg

from tests.support.fixtures import PointCommandsAt, Printed
from tests.support.http_client import claim_body, demand

HOSTS = [f'0000000{number}-0000-4000-8000-000000000000' for number in (1, 2)]
CONSUMERS = [f'c000000{number}-0000-4000-8000-000000000000' for number in (1, 2, 3)]
AGGREGATES = [f'a000000{number}-0000-4000-8000-000000000000' for number in (1, 2)]


@pytest.fixture(autouse=True)
def _cloud(app: Any, conf: cfg.ConfigOpts, point_commands_at: PointCommandsAt) -> None:
    """Two hosts, the first in two aggregates; two consumers of the project "ours", and one of another project."""
    point_commands_at(conf.placement_database.connection)
    for number, host in enumerate(HOSTS):
        demand(app, 'POST', '/resource_providers', {'name': f'host-{number + 1}', 'uuid': host})
        inventories = {'VCPU': {'total': 16}, 'MEMORY_MB': {'total': 65536}}
        body = {'resource_provider_generation': 0, 'inventories': inventories}
        demand(app, 'PUT', f'/resource_providers/{host}/inventories', body)
    members = {'resource_provider_generation': 1, 'aggregates': AGGREGATES}
    demand(app, 'PUT', f'/resource_providers/{HOSTS[0]}/aggregates', members)
    for consumer, project, amounts in (
        (CONSUMERS[0], 'ours', {HOSTS[0]: {'VCPU': 1, 'MEMORY_MB': 1024}}),
        (CONSUMERS[1], 'ours', {HOSTS[0]: {'VCPU': 3}, HOSTS[1]: {'VCPU': 4, 'MEMORY_MB': 1024}}),
        (CONSUMERS[2], 'theirs', {HOSTS[1]: {'VCPU': 8}}),
    ):
        demand(app, 'PUT', f'/allocations/{consumer}', {**claim_body(amounts), 'project_id': project})


def test_amounts_are_summed_up_by_consumer_provider_and_aggregate(printed: Printed) -> None:
    report = json.loads(printed('project', 'ours', '--format', 'json'))
    assert report['totals'] == {'VCPU': 8, 'MEMORY_MB': 2048}
    shares = {consumer['uuid']: (consumer['share'], consumer['amounts']) for consumer in report['consumers']}
    assert list(shares.items()) == [
        (CONSUMERS[1], (0.875, {'VCPU': 7, 'MEMORY_MB': 1024})),
        (CONSUMERS[0], (0.5, {'VCPU': 1, 'MEMORY_MB': 1024})),
    ]
    assert [(provider['name'], provider['consumers'], provider['amounts']) for provider in report['providers']] == [
        ('host-1', 2, {'VCPU': 4, 'MEMORY_MB': 1024}),
        ('host-2', 1, {'VCPU': 4, 'MEMORY_MB': 1024}),
    ]
    assert [(aggregate['uuid'], aggregate['amounts']['VCPU']) for aggregate in report['aggregates']] == [
        (uuid, 4) for uuid in AGGREGATES
    ]


def test_the_text_has_the_same_facts(printed: Printed) -> None:
    lines = [' '.join(line.split()) for line in printed('project', 'ours').splitlines()]
    assert lines[0] == 'Project ours: 2 consumers on 2 providers'
    assert 'VCPU 8' in lines
    assert 'host-1 2 VCPU 4, MEMORY_MB 1 GiB' in lines
    assert f'{AGGREGATES[0]} 2 VCPU 4, MEMORY_MB 1 GiB' in lines
    largest, oldest = (lines.index(f'{title} consumers Type Created Share Amounts') for title in ('Largest', 'Oldest'))
    assert lines[largest + 2].startswith(CONSUMERS[1])
    assert lines[oldest + 2].startswith(CONSUMERS[0])


def test_an_unknown_project_is_not_found(failed: Printed) -> None:
    assert failed('project', 'nobody') == "placement-manage: No consumer has the project 'nobody'.\n"


def test_a_project_may_have_its_name_in_the_names_file(
    app: Any, printed: Printed, failed: Printed, tmp_path: pathlib.Path
) -> None:
    without_hyphens, unused = uuid.uuid4().hex, str(uuid.uuid4())
    claim = {**claim_body({HOSTS[0]: {'VCPU': 2}}), 'project_id': without_hyphens}
    demand(app, 'PUT', f'/allocations/{CONSUMERS[2]}', {**claim, 'consumer_generation': 1})
    names = tmp_path / 'names.json'
    names.write_text(json.dumps({unused: 'web', without_hyphens: 'web', str(uuid.uuid4()): 'empty'}))
    report = json.loads(printed('project', 'web', '--names', str(names), '--format', 'json'))
    assert (report['project'], report['totals']) == (without_hyphens, {'VCPU': 2})
    assert 'No consumer has the project' in failed('project', 'empty', '--names', str(names))
