"""The OpenAPI documents: a validator accepts them, and a generator makes a client of them.

The gabbits compare answers with them.
"""

from __future__ import annotations

import json
import os
import pathlib

from placement import openapi
from placement.web import microversion
from tests.integration import services
from tests.support import servers
from tests.support.http_client import claim_body

PROVIDER = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c01'
CONSUMER = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c02'

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


def test_a_generated_client_works(tmp_path: pathlib.Path) -> None:
    programs = services.environment('openapi', GENERATOR)
    document = tmp_path / 'openapi.json'
    document.write_text(json.dumps(openapi.document(microversion.parse_version_string('1.29'))))
    environ = servers.clean_environ(PATH=f'{programs}:{os.environ["PATH"]}')
    generated = ['--meta', 'none', '--output-path', str(tmp_path / 'generated'), '--fail-on-warning']
    command = [str(programs / 'openapi-python-client'), 'generate', '--path', str(document), *generated]
    services.run(command, environ)
    with servers.serving(f'sqlite:///{tmp_path}/placement.sqlite', tmp_path, metrics=False) as server:
        inventories = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 8}}}
        headers = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
        for method, path, body in (
            ('POST', '/resource_providers', {'name': 'host', 'uuid': PROVIDER}),
            ('PUT', f'/resource_providers/{PROVIDER}/inventories', inventories),
            ('PUT', f'/allocations/{CONSUMER}', claim_body({PROVIDER: {'VCPU': 1}})),
        ):
            services.fetch(method, f'{server.url}{path}', json=body, headers=headers).raise_for_status()
        said = services.run([str(programs / 'python'), '-c', USE, str(tmp_path), server.url])
    assert said == f"{PROVIDER} [('VCPU', 1)] project\n"
