"""The OpenAPI documents: a validator accepts them, and a generator makes a client of them.

The gabbits compare answers with them.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from typing import Any

from placement import openapi
from placement.web import microversion
from tests.integration import services
from tests.support import servers

HOST, OTHER = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c01', '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c03'
CONSUMER = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c02'

#: In an environment of its own, as they bring what nothing here needs.
GENERATOR = ('openapi-python-client>=0.29,<1', 'openapi-spec-validator>=0.9,<1')
#: What a user of the generated client writes; the arguments are its directory and the URL of the service. After each
#: write it waits for a line, while the test looks at what is stored.
USE = f"""
import sys, uuid
sys.path.insert(0, sys.argv[1])
from generated import AuthenticatedClient, models
from generated.api.allocation_candidates import list_allocation_candidates
from generated.api.allocations import (
    delete_consumer_allocations, list_consumer_allocations, replace_consumer_allocations, set_allocations)
from generated.api.inventories import replace_resource_provider_inventories
from generated.api.resource_providers import create_resource_provider, list_resource_providers

client = AuthenticatedClient(sys.argv[2], 'admin', prefix='', auth_header_name='X-Auth-Token')
options = {{'client': client, 'open_stack_api_version': next(iter(models.Microversion))}}
host, other, consumer = map(uuid.UUID, ('{HOST}', '{OTHER}', '{CONSUMER}'))

def done(step):
    print(step, flush=True)
    sys.stdin.readline()

for name, provider in (('host', host), ('other', other)):
    create_resource_provider.sync_detailed(
        body=models.CreateResourceProviderRequest(name=name, uuid=provider), **options)
done('create')
for provider in (host, other):
    body = models.ReplaceResourceProviderInventoriesRequest.from_dict(
        {{'resource_provider_generation': 0, 'inventories': {{'VCPU': {{'total': 8}}}}}})
    replace_resource_provider_inventories.sync_detailed(provider, body=body, **options)
done('inventory')
owner = {{'project_id': 'project', 'user_id': 'user'}}
candidates = list_allocation_candidates.sync(resources='VCPU:3', limit='5', **options)
(first,) = [request for request in candidates.allocation_requests if '{HOST}' in request.allocations]
body = models.ReplaceConsumerAllocationsRequest.from_dict(
    {{**first.to_dict(), **owner, 'consumer_generation': None}})
assert replace_consumer_allocations.sync_detailed(consumer, body=body, **options).status_code == 204
done('claim')
groups = models.ListAllocationCandidatesSuffixedGroups.from_dict({{'resources1': 'VCPU:2'}})
candidates = list_allocation_candidates.sync(resources='VCPU:4', suffixed_groups=groups, **options)
amounts = [request.to_dict()['allocations'].get('{OTHER}') for request in candidates.allocation_requests]
assert {{'resources': {{'VCPU': 6}}}} in amounts, amounts
held = list_consumer_allocations.sync(consumer, **options)
moved = {{'allocations': {{'{OTHER}': {{'resources': {{'VCPU': 4}}}}}}, **owner,
    'consumer_generation': held.consumer_generation}}
body = models.SetAllocationsRequest.from_dict({{'{CONSUMER}': moved}})
assert set_allocations.sync_detailed(body=body, **options).status_code == 204
done('move')
listed = list_resource_providers.sync(**options)
assert all(isinstance(provider, models.ResourceProvider) for provider in listed.resource_providers)
assert delete_consumer_allocations.sync_detailed(consumer, **options).status_code == 204
done('release')
"""
#: The allocations after each step.
STORED = {
    'create': {},
    'inventory': {},
    'claim': {HOST: {'VCPU': 3}},
    'move': {OTHER: {'VCPU': 4}},
    'release': {},
}


def test_a_validator_accepts_the_document_of_each_microversion(tmp_path: pathlib.Path) -> None:
    files = {version: str(tmp_path / f'{version}.json') for version in microversion.VERSIONS}
    for version, file in files.items():
        pathlib.Path(file).write_text(json.dumps(openapi.document(microversion.parse_version_string(version))))
    validator = services.environment('openapi', GENERATOR) / 'openapi-spec-validator'
    said = services.run([str(validator), *files.values()])
    assert said.splitlines() == [f'{file}: OK' for file in files.values()]


def test_a_generated_client_works(tmp_path: pathlib.Path) -> None:
    programs = services.environment('openapi', GENERATOR)
    document = tmp_path / 'openapi.json'
    document.write_text(json.dumps(openapi.document(microversion.parse_version_string('1.29'))))
    environ = servers.clean_environ(PATH=f'{programs}:{os.environ["PATH"]}')
    generated = ['--meta', 'none', '--output-path', str(tmp_path / 'generated'), '--fail-on-warning']
    command = [str(programs / 'openapi-python-client'), 'generate', '--path', str(document), *generated]
    services.run(command, environ)
    with servers.serving(f'sqlite:///{tmp_path}/placement.sqlite', tmp_path, metrics=False) as server:
        arguments = [str(programs / 'python'), '-c', USE, str(tmp_path), server.url]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as user:
            assert user.stdin is not None
            assert user.stdout is not None
            for step, expected in STORED.items():
                assert user.stdout.readline() == f'{step}\n'
                assert _stored(server.url) == expected, step
                user.stdin.write('\n')
                user.stdin.flush()
    assert user.returncode == 0


def _stored(url: str) -> dict[str, Any]:
    """Return the allocations of the consumer by provider."""
    headers = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
    response = services.fetch('GET', f'{url}/allocations/{CONSUMER}', headers=headers)
    response.raise_for_status()
    return {uuid: allocation['resources'] for uuid, allocation in response.json()['allocations'].items()}
