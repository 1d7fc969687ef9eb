"""The functional tests of openstacksdk about placement, as they are."""

from __future__ import annotations

import http.server
import json
import pathlib
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration import services
from tests.support import servers
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.keystone import Keystone, new_token

#: With what the tests import.
SDK = ('openstacksdk>=4.22', 'fixtures', 'oslotest', 'pytest', 'requests-mock', 'statsd', 'testscenarios', 'testtools')
REGION = 'RegionOne'
TESTS = 'openstack.tests.functional.placement'


class _KeystoneWithCatalog(Keystone):
    """A Keystone that gives everybody the token of an administrator, with the service in its catalog."""

    roles = {'token': ['admin', 'member', 'reader']}
    placement = ''

    def do_POST(self) -> None:  # noqa: N802
        self.rfile.read(int(self.headers['Content-Length']))
        token = new_token('token', self.roles['token'])
        token['catalog'] = [
            _service('identity', f'{self._url()}/v3'),
            _service('placement', self.placement),
        ]
        self._send(201, {'token': token}, {'X-Subject-Token': 'token'})


def _service(kind: str, url: str) -> dict[str, Any]:
    endpoint = {'url': url, 'region': REGION, 'region_id': REGION}
    faces = ('public', 'internal', 'admin')
    return {
        'id': kind,
        'type': kind,
        'name': kind,
        'endpoints': [{'id': face, 'interface': face, **endpoint} for face in faces],
    }


@pytest.fixture
def identity_url() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), _KeystoneWithCatalog)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f'http://127.0.0.1:{server.server_address[1]}/v3'
    server.shutdown()
    server.server_close()


def _claim(url: str) -> None:
    """Claim something for the project. Without an allocation, the test of usages expects a member of an empty list."""
    provider, consumer = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c01', '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c02'
    inventories = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 8}}}
    owner = {'project_id': 'project-id', 'user_id': 'token-id', 'consumer_type': 'INSTANCE'}
    claim = {'allocations': {provider: {'resources': {'VCPU': 1}}}, 'consumer_generation': None, **owner}
    headers = {'X-Auth-Token': 'token', 'OpenStack-API-Version': f'placement {NEWEST_MICROVERSION}'}
    for method, path, body in (
        ('POST', '/resource_providers', {'name': 'host', 'uuid': provider}),
        ('PUT', f'/resource_providers/{provider}/inventories', inventories),
        ('PUT', f'/allocations/{consumer}', claim),
    ):
        services.fetch(method, f'{url}{path}', headers=headers, json=body).raise_for_status()


def test_all_functional_tests_of_placement_pass(identity_url: str, tmp_path: pathlib.Path) -> None:
    credentials = {'auth_url': identity_url, 'username': 'admin', 'password': 'any', 'project_name': 'admin'}
    credentials |= {'user_domain_id': 'default', 'project_domain_id': 'default'}
    environment = servers.variables(
        api={'auth_strategy': 'keystone'},
        keystone_authtoken={'auth_type': 'password', **credentials},
        placement={'max_microversion': NEWEST_MICROVERSION},
    )
    database = f'sqlite:///{tmp_path}/placement.sqlite'
    with servers.serving(database, tmp_path, metrics=False, environment=environment) as server:
        _KeystoneWithCatalog.placement = server.url
        _claim(server.url)
        cloud: dict[str, Any] = {'auth_type': 'password', 'auth': credentials, 'region_name': REGION}
        # Otherwise each test would look for a flavor and an image.
        cloud |= {'has_compute': False, 'has_image': False}
        names = ('devstack', 'devstack-alt', 'devstack-admin', 'devstack-system-admin')
        # JSON is YAML.
        file = tmp_path / 'clouds.yaml'
        file.write_text(json.dumps({'clouds': dict.fromkeys(names, cloud)}))
        python = services.environment('openstacksdk', SDK) / 'python'
        command = [str(python), '-m', 'pytest', '-p', 'no:cacheprovider', '--tb=short', '--pyargs', TESTS]
        printed = services.run(command, servers.clean_environ(OS_CLIENT_CONFIG_FILE=str(file)))
    # "N passed", and nothing else but warnings.
    closing = re.search(r'^=+ (\d+) passed(?:, \d+ warnings?)? in ', printed, flags=re.MULTILINE)
    assert closing is not None, printed
    assert int(closing[1]) >= 8
