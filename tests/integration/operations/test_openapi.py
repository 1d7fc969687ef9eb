"""The OpenAPI documents: a validator accepts them, a generator makes a client of them, and the service obeys them.

schemathesis tests the last: no 5xx, and only responses that the documents allow.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest

from placement import openapi
from placement.web import microversion
from tests.integration import services
from tests.support import servers
from tests.support.history.client import Client
from tests.support.http_client import claim_body

#: In a virtual environment of its own, since it has many dependencies that the service does not have.
PACKAGES = ('schemathesis>=4.32',)
CHECKS = 'not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance'
VERSIONS = ('1.0', '1.12', '1.29')
HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}

PROVIDER = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c01'
CONSUMER = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c02'
AGGREGATE = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c03'
NOBODY = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c04'
#: The data that requests ask for.
VALUES = {
    'uuid': [PROVIDER, NOBODY],
    'consumer_uuid': [CONSUMER, NOBODY],
    'name': ['CUSTOM_A', 'CUSTOM_NEW', 'VCPU', 'HW_CPU_X86_AVX'],
    'resource_class': ['VCPU', 'CUSTOM_A'],
    'resources': ['VCPU:1', 'VCPU:1,CUSTOM_A:2', 'VCPU:99', 'VCPU'],
    'required': ['CUSTOM_A', 'CUSTOM_A,HW_CPU_X86_AVX', 'NONE'],
    'member_of': [AGGREGATE, f'in:{AGGREGATE},{NOBODY}', 'none'],
    'in_tree': [PROVIDER, NOBODY],
    'project_id': ['project'],
    'user_id': ['user', 'another'],
    'associated': ['true', 'false', 'both'],
}


def _fill(url: str) -> None:
    """Create a provider with every kind of data, and allocations so that it cannot be deleted."""
    provider, generation = f'/resource_providers/{PROVIDER}', 'resource_provider_generation'
    inventories = {'VCPU': {'total': 8}, 'CUSTOM_A': {'total': 8}}
    with contextlib.closing(Client([url], token='admin')) as client:
        for method, path, body in (
            ('POST', '/resource_providers', {'name': 'host', 'uuid': PROVIDER}),
            ('PUT', '/resource_classes/CUSTOM_A', None),
            ('PUT', '/traits/CUSTOM_A', None),
            ('PUT', f'{provider}/inventories', {generation: 0, 'inventories': inventories}),
            ('PUT', f'{provider}/traits', {generation: 1, 'traits': ['CUSTOM_A']}),
            ('PUT', f'{provider}/aggregates', {generation: 2, 'aggregates': [AGGREGATE]}),
            ('PUT', f'/allocations/{CONSUMER}', claim_body({PROVIDER: {'VCPU': 1, 'CUSTOM_A': 1}})),
        ):
            client.demand(method, path, body)


@pytest.fixture
def url(tmp_path: pathlib.Path) -> Iterator[str]:
    """The URL of a running service with data."""
    with servers.serving(f'sqlite:///{tmp_path}/placement.sqlite', tmp_path, metrics=False) as server:
        _fill(server.url)
        yield server.url


def _aimed(version: str) -> dict[str, Any]:
    """The document, with values that exist in this service in place of arbitrary text."""
    document = openapi.document(microversion.parse_version_string(version))
    # It would delete what the other requests ask for.
    del document['paths']['/allocations/{consumer_uuid}']['delete']
    for operations in document['paths'].values():
        for operation in operations.values():
            for parameter in operation['parameters']:
                name = parameter.get('name')
                if name in VALUES:
                    parameter['schema'] = {'type': 'string', 'enum': VALUES[name]}
                elif name == 'query':
                    groups = {key: {'enum': VALUES[key]} for key in ('resources', 'required', 'member_of')}
                    parameter['schema'] = {
                        'type': 'object',
                        'properties': groups | {'resources1': {'enum': ['CUSTOM_A:1']}, 'limit': {'enum': ['1']}},
                        'required': ['resources'],
                        'additionalProperties': False,
                    }
    return document


@pytest.mark.parametrize('version', VERSIONS)
def test_the_service_answers_as_the_document_says(url: str, tmp_path: pathlib.Path, version: str) -> None:
    programs = services.environment('schemathesis', PACKAGES)
    document = tmp_path / 'openapi.json'
    document.write_text(json.dumps(_aimed(version)))
    said = services.run(
        [
            *['env', '-C', str(tmp_path), str(programs / 'schemathesis'), 'run', str(document), '--url', url],
            *['-H', 'X-Auth-Token: admin', '--checks', CHECKS, '--mode', 'positive', '--phases', 'coverage,fuzzing'],
            *['--max-examples', '15', '--seed', '1', '--no-color', '--generation-database', 'none'],
        ],
        servers.clean_environ(HOME=str(tmp_path)),
    )
    operations = sum(len(methods) for methods in _aimed(version)['paths'].values())
    assert f'Tested: {operations}' in said
    # Most operations are answered with a success at least once.
    for path in ('allocation_candidates', f'resource_providers/{PROVIDER}/inventories', f'allocations/{CONSUMER}'):
        answer = services.fetch('GET', f'{url}/{path}?resources=VCPU:1', headers=HEADERS)
        assert answer.status_code == 200
        assert PROVIDER in answer.text or 'VCPU' in answer.text


#: In an environment of its own, as they bring what nothing here needs.
GENERATOR = ('openapi-python-client>=0.29', 'openapi-spec-validator>=0.9')
#: What a user of the generated client writes; the arguments are its directory and the URL of the service.
USE = """
import sys, uuid
sys.path.insert(0, sys.argv[1])
from generated import AuthenticatedClient, models
from generated.api.allocations import list_consumer_allocations, list_resource_provider_allocations
from generated.api.resource_providers import list_resource_providers
client = AuthenticatedClient(sys.argv[2], 'admin', prefix='', auth_header_name='X-Auth-Token')
version = next(iter(models.Microversion))
listed = list_resource_providers.sync(client=client, open_stack_api_version=version)
(provider,) = listed.resource_providers
assert isinstance(provider, models.ResourceProvider)
held = list_resource_provider_allocations.sync(provider.uuid, client=client, open_stack_api_version=version)
for consumer in held.allocations.additional_properties:
    of_consumer = list_consumer_allocations.sync(uuid.UUID(consumer), client=client, open_stack_api_version=version)
    ((where, what),) = of_consumer.allocations.additional_properties.items()
    print(where, sorted(what.resources.additional_properties.items()), of_consumer.project_id)
"""


def test_a_validator_accepts_the_document_of_each_microversion(tmp_path: pathlib.Path) -> None:
    files = {version: str(tmp_path / f'{version}.json') for version in microversion.VERSIONS}
    for version, file in files.items():
        pathlib.Path(file).write_text(json.dumps(openapi.document(microversion.parse_version_string(version))))
    validator = services.environment('openapi', GENERATOR) / 'openapi-spec-validator'
    said = services.run([str(validator), *files.values()])
    assert said.splitlines() == [f'{file}: OK' for file in files.values()]


def test_a_generated_client_works(url: str, tmp_path: pathlib.Path) -> None:
    programs = services.environment('openapi', GENERATOR)
    document = tmp_path / 'openapi.json'
    document.write_text(json.dumps(openapi.document(microversion.parse_version_string('1.29'))))
    environ = servers.clean_environ(PATH=f'{programs}:{os.environ["PATH"]}')
    generated = ['--meta', 'none', '--output-path', str(tmp_path / 'generated'), '--fail-on-warning']
    command = [str(programs / 'openapi-python-client'), 'generate', '--path', str(document), *generated]
    services.run(command, environ)
    said = services.run([str(programs / 'python'), '-c', USE, str(tmp_path), url])
    assert said == f"{PROVIDER} [('CUSTOM_A', 1), ('VCPU', 1)] project\n"
