"""Placement with a real Keystone: which tokens are accepted, and how clients find the service.

Requests without a valid token, or with forged headers, are in functional/test_authentication.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration import services
from tests.integration.operations import identity
from tests.support import servers


@pytest.fixture(scope='module')
def url(keystone: identity.Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service that uses the Keystone, and is in its catalog."""
    directory = tmp_path_factory.mktemp('placement')
    # A negative time turns the cache of tokens off, so that a revoked one is rejected at once.
    options = keystone.options('placement') | {'token_cache_time': -1}
    environment = servers.variables(api={'auth_strategy': 'keystone'}, keystone_authtoken=options)
    database = f'sqlite:///{directory}/placement.sqlite'
    with servers.serving(database, directory, metrics=False, environment=environment) as server:
        keystone.register(server.url)
        yield server.url


def _send_request(url: str, method: str, path: str, token: str) -> httpx.Response:
    headers = {'X-Auth-Token': token, 'OpenStack-API-Version': 'placement latest'}
    return services.fetch(method, f'{url}{path}', headers=headers, json={} if method == 'POST' else None)


@pytest.mark.parametrize(
    ('user', 'system', 'statuses'),
    [
        ('admin', False, [200, 400, 200, 200]),
        ('nova', False, [200, 400, 200, 200]),
        # A member is also a reader.
        ('plain', False, [403, 403, 200, 403]),
        ('admin', True, [403, 403, 403, 403]),
    ],
)
def test_roles_and_scopes_decide(
    url: str, keystone: identity.Keystone, user: str, system: bool, statuses: list[int]
) -> None:
    """A reader sees the usages of its project. test_policy_callers.py has all rules."""
    token, project = keystone.token(user, system=system), keystone.project_id(user)
    other = keystone.project_id('nova' if user == 'admin' else 'admin')
    requests = [
        ('GET', '/resource_providers'),
        ('POST', '/resource_providers'),
        ('GET', f'/usages?project_id={project}'),
        ('GET', f'/usages?project_id={other}'),
    ]
    assert [_send_request(url, *request, token).status_code for request in requests] == statuses


def test_revoked_token_is_rejected(url: str, keystone: identity.Keystone) -> None:
    token = keystone.token('admin')
    assert _send_request(url, 'GET', '/resource_providers', token).status_code == 200
    keystone.revoke(token)
    assert _send_request(url, 'GET', '/', token).status_code == 200
    rejected = _send_request(url, 'GET', '/resource_providers', token)
    assert rejected.status_code == 401, rejected.text
    assert keystone.url in rejected.headers['www-authenticate']


def _openstack(keystone: identity.Keystone, *arguments: str) -> Any:
    environ = servers.clean_environ(
        OS_AUTH_URL=keystone.url,
        OS_USERNAME='admin',
        OS_PASSWORD=identity.PASSWORD,
        OS_PROJECT_NAME='admin',
        OS_USER_DOMAIN_ID='default',
        OS_PROJECT_DOMAIN_ID='default',
        OS_IDENTITY_API_VERSION='3',
        OS_PLACEMENT_API_VERSION='1.29',
        PYTHONWARNINGS='ignore',
    )
    return json.loads(services.run([str(servers.BIN / 'openstack'), *arguments, '-f', 'json'], environ))


@pytest.mark.usefixtures('url')
def test_openstack_command_finds_the_service_in_the_catalog(keystone: identity.Keystone) -> None:
    created = _openstack(keystone, 'resource', 'provider', 'create', 'host-1')
    assert created['generation'] == 0
    (listed,) = _openstack(keystone, 'resource', 'provider', 'list')
    assert listed['uuid'] == created['uuid']
