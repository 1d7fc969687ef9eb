"""Placement with a real Keystone: which tokens are accepted, and how clients find the service.

Requests without a valid token are in functional/test_authentication.py.
"""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.integration import services
from tests.integration.operations import identity
from tests.support import servers
from tests.support.http_client import CLAIMS


@contextlib.contextmanager
def _served(directory: pathlib.Path, options: dict[str, Any], **sections: dict[str, Any]) -> Iterator[str]:
    environment = servers.variables(api={'auth_strategy': 'keystone'}, keystone_authtoken=options, **sections)
    url = f'sqlite:///{directory}/placement.sqlite'
    with servers.serving(url, directory, metrics=False, environment=environment) as server:
        yield server.url


@pytest.fixture(scope='module')
def url(keystone: identity.Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service that uses the Keystone, and is in its catalog."""
    # A negative time turns the cache of tokens off, so that a revoked one is rejected at once.
    options = keystone.options('placement') | {'token_cache_time': -1}
    with _served(tmp_path_factory.mktemp('placement'), options) as address:
        keystone.register(address)
        yield address


@pytest.fixture(scope='module')
def remembering_url(keystone: identity.Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service that caches validated tokens, as by default."""
    with _served(tmp_path_factory.mktemp('placement'), keystone.options('placement')) as address:
        yield address


def _send_request(url: str, method: str, path: str, token: str | None, **headers: str) -> httpx.Response:
    headers |= {'OpenStack-API-Version': 'placement latest', 'Content-Type': 'application/json'}
    if token is not None:
        headers['X-Auth-Token'] = token
    content = b'{}' if method in ('POST', 'PUT') else b''
    return httpx.request(method, f'{url}{path}', headers=headers, content=content, timeout=60)


@pytest.mark.parametrize(
    ('user', 'system', 'statuses'),
    [
        ('admin', False, [200, 400, 200, 200]),
        ('nova', False, [200, 400, 200, 200]),
        # A member is also a reader.
        ('plain', False, [403, 403, 200, 403]),
        ('watcher', False, [403, 403, 200, 403]),
        ('admin', True, [403, 403, 403, 403]),
    ],
)
def test_roles_and_scopes_decide(
    remembering_url: str, keystone: identity.Keystone, user: str, system: bool, statuses: list[int]
) -> None:
    """A reader sees the usages of its project. test_policy_callers.py has all rules."""
    token, own = keystone.token(user, system=system), keystone.project_id(user)
    other = keystone.project_id('nova' if user == 'admin' else 'admin')
    requests = [
        ('GET', '/resource_providers'),
        ('POST', '/resource_providers'),
        ('GET', f'/usages?project_id={own}'),
        ('GET', f'/usages?project_id={other}'),
    ]
    responses = [_send_request(remembering_url, *request, token) for request in requests]
    assert [response.status_code for response in responses] == statuses
    for response in responses:
        if response.status_code == 403:
            assert 'Policy does not allow placement:' in response.json()['errors'][0]['detail']


def test_a_token_of_the_system_is_accepted_if_scopes_are_not_enforced(
    keystone: identity.Keystone, tmp_path: pathlib.Path
) -> None:
    with _served(tmp_path, keystone.options('placement'), oslo_policy={'enforce_scope': False}) as url:
        token = keystone.token('admin', system=True)
        assert _send_request(url, 'GET', '/resource_providers', token).status_code == 200


def test_revoked_token_is_rejected(url: str, keystone: identity.Keystone) -> None:
    token = keystone.token('admin')
    assert _send_request(url, 'GET', '/resource_providers', token).status_code == 200
    keystone.revoke(token)
    assert _send_request(url, 'GET', '/', token).status_code == 200
    rejected = _send_request(url, 'GET', '/resource_providers', token)
    assert rejected.status_code == 401, rejected.text
    assert keystone.url in rejected.headers['www-authenticate']


def test_identity_headers_of_a_client_are_ignored(url: str, keystone: identity.Keystone) -> None:
    forged = {**CLAIMS, 'OpenStack-System-Scope': 'all'}
    assert _send_request(url, 'GET', '/resource_providers', None, **forged).status_code == 401
    assert _send_request(url, 'GET', '/resource_providers', keystone.token('plain'), **forged).status_code == 403


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
    _openstack(keystone, 'resource', 'provider', 'inventory', 'set', created['uuid'], '--resource', 'VCPU=8')
    listed = _openstack(keystone, 'resource', 'provider', 'list', '--resource', 'VCPU=4')
    assert [provider['name'] for provider in listed] == ['host-1']
    candidates = _openstack(keystone, 'allocation', 'candidate', 'list', '--resource', 'VCPU=4')
    assert candidates[0]['resource provider'] == created['uuid']
