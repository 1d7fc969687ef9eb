"""Placement with a real Keystone: which tokens are accepted, and how clients find the service."""

from __future__ import annotations

import contextlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from placement import handler
from tests.support import applications, servers
from tests.support.operations import identity, placement_server, services

UUID = '5f7d8c1e-8a52-4c0c-9d0f-3d3b1f8b6f10'
OPERATIONS = sorted(
    (method, path.replace('{uuid}', UUID).replace('{consumer_uuid}', UUID).replace('{resource_class}', 'VCPU'))
    for path, methods in handler.ROUTE_DECLARATIONS.items()
    for method in methods
    if path not in ('', '/')
)


def _middleware_options(auth_url: str) -> dict[str, Any]:
    return {
        'auth_type': 'password',
        'auth_url': auth_url,
        'www_authenticate_uri': auth_url,
        'username': 'placement',
        'password': identity.PASSWORD,
        'project_name': 'service',
        'user_domain_id': 'default',
        'project_domain_id': 'default',
        'interface': 'internal',
    }


@contextlib.contextmanager
def _served(directory: pathlib.Path, options: dict[str, Any], **sections: dict[str, Any]) -> Iterator[str]:
    """Serve every microversion."""
    sections = {'api': {'auth_strategy': 'keystone'}, 'placement': applications.EVERY_MICROVERSION, **sections}
    placement_server.write_configuration(directory, keystone_authtoken=options, **sections)
    with placement_server.served(directory) as (address, _):
        yield address


@pytest.fixture(scope='module')
def url(keystone: identity.Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service that uses the Keystone, and is in its catalog."""
    # A negative time turns the cache of tokens off, so that a revoked one is rejected at once.
    options = _middleware_options(keystone.url) | {'token_cache_time': -1}
    with _served(tmp_path_factory.mktemp('placement'), options) as address:
        keystone.register(address)
        yield address


@pytest.fixture(scope='module')
def remembering_url(keystone: identity.Keystone, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a service that caches validated tokens, as by default."""
    with _served(tmp_path_factory.mktemp('placement'), _middleware_options(keystone.url)) as address:
        yield address


def _send_request(url: str, method: str, path: str, token: str | None, **headers: str) -> httpx.Response:
    headers |= {'OpenStack-API-Version': 'placement latest', 'Content-Type': 'application/json'}
    if token is not None:
        headers['X-Auth-Token'] = token
    content = b'{}' if method in ('POST', 'PUT') else b''
    return httpx.request(method, f'{url}{path}', headers=headers, content=content, timeout=60)


def _error(answer: httpx.Response) -> dict[str, Any]:
    """The one error of the answer, which must be an error document."""
    assert answer.headers['content-type'] == 'application/json'
    (error,) = answer.json()['errors']
    assert error['status'] == answer.status_code
    assert error['request_id'] == answer.headers['x-openstack-request-id']
    assert error['title'] == answer.reason_phrase
    return dict(error)


def _assert_unauthorized(answer: httpx.Response) -> None:
    assert answer.status_code == 401, answer.text
    assert 'code' not in _error(answer)
    assert answer.headers['www-authenticate'].startswith('Keystone uri=')
    assert 'openstack-api-version' not in answer.headers


def test_no_token_is_401_and_names_the_keystone(url: str, keystone: identity.Keystone) -> None:
    answer = _send_request(url, 'GET', '/resource_providers', None)
    _assert_unauthorized(answer)
    assert keystone.url in answer.headers['www-authenticate']


@pytest.mark.parametrize('token', ['', 'admin', 'gAAAAABnonsense', 'x' * 4000])
def test_bad_token_is_401(url: str, token: str) -> None:
    _assert_unauthorized(_send_request(url, 'GET', '/resource_providers', token))


@pytest.mark.parametrize('path', ['', '/'])
def test_root_is_open(url: str, path: str) -> None:
    answer = httpx.get(f'{url}{path}')
    assert answer.status_code == 200
    assert answer.json()['versions'][0]['max_version'] == applications.NEWEST_MICROVERSION


def test_root_is_open_to_a_bad_token(url: str) -> None:
    assert _send_request(url, 'GET', '/', 'gAAAAABnonsense').status_code == 200


def test_plain_user_is_403_on_every_route(remembering_url: str, keystone: identity.Keystone) -> None:
    token = keystone.token('plain')
    responses = {(method, path): _send_request(remembering_url, method, path, token) for method, path in OPERATIONS}
    assert {operation: response.status_code for operation, response in responses.items()} == dict.fromkeys(
        OPERATIONS, 403
    )
    for response in responses.values():
        assert 'Policy does not allow placement:' in _error(response)['detail']


@pytest.mark.parametrize('user', ['plain', 'watcher'])
def test_a_reader_sees_the_usages_of_its_project(remembering_url: str, keystone: identity.Keystone, user: str) -> None:
    """A member is also a reader."""
    token = keystone.token(user)
    project, other = keystone.project_id(user), keystone.project_id('admin')
    assert _send_request(remembering_url, 'GET', f'/usages?project_id={project}', token).status_code == 200
    for path in (f'/usages?project_id={other}', f'/usages?project_id={project}&project_id={other}', '/usages'):
        assert _send_request(remembering_url, 'GET', path, token).status_code == 403


def test_tokens_of_the_system_are_rejected_unless_scopes_are_not_enforced(
    remembering_url: str, keystone: identity.Keystone, tmp_path: pathlib.Path
) -> None:
    system, project = keystone.token('admin', system=True), keystone.token('admin')
    assert _send_request(remembering_url, 'GET', '/resource_providers', project).status_code == 200
    assert {_send_request(remembering_url, method, path, system).status_code for method, path in OPERATIONS} == {403}
    options = _middleware_options(keystone.url)
    with _served(tmp_path, options, oslo_policy={'enforce_scope': False}) as url:
        assert _send_request(url, 'GET', '/resource_providers', system).status_code == 200


@pytest.mark.parametrize('user', ['admin', 'nova'])
def test_admins_and_services_pass_the_policy_of_every_route(
    remembering_url: str, keystone: identity.Keystone, user: str
) -> None:
    token = keystone.token(user)
    statuses = {_send_request(remembering_url, method, path, token).status_code for method, path in OPERATIONS}
    assert statuses <= {200, 201, 204, 400, 404, 405}
    assert _send_request(remembering_url, 'GET', '/resource_providers', token).status_code == 200


def test_revoked_token_is_rejected(url: str, keystone: identity.Keystone) -> None:
    token = keystone.token('admin')
    assert _send_request(url, 'GET', '/resource_providers', token).status_code == 200
    keystone.revoke(token)
    _assert_unauthorized(_send_request(url, 'GET', '/resource_providers', token))


FORGED = {
    'X-Identity-Status': 'Confirmed',
    'X-User-Id': 'somebody',
    'X-Project-Id': 'something',
    'X-Roles': 'admin',
    'X-Role': 'admin',
    'X-Is-Admin-Project': 'True',
    'X-Service-Roles': 'admin',
    'OpenStack-System-Scope': 'all',
}


def test_identity_headers_of_a_client_are_ignored(url: str, keystone: identity.Keystone) -> None:
    _assert_unauthorized(_send_request(url, 'GET', '/resource_providers', None, **FORGED))
    answer = _send_request(url, 'GET', '/resource_providers', keystone.token('plain'), **FORGED)
    assert answer.status_code == 403


def _openstack(keystone: identity.Keystone, *arguments: str) -> Any:
    environ = services.clean_environ(
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
    return json.loads(services.run([str(placement_server.BIN / 'openstack'), *arguments, '-f', 'json'], environ))


@pytest.mark.usefixtures('url')
def test_openstack_command_finds_the_service_in_the_catalog(keystone: identity.Keystone) -> None:
    created = _openstack(keystone, 'resource', 'provider', 'create', 'host-1')
    assert created['generation'] == 0
    _openstack(keystone, 'resource', 'provider', 'inventory', 'set', created['uuid'], '--resource', 'VCPU=8')
    listed = _openstack(keystone, 'resource', 'provider', 'list', '--resource', 'VCPU=4')
    assert [provider['name'] for provider in listed] == ['host-1']
    candidates = _openstack(keystone, 'allocation', 'candidate', 'list', '--resource', 'VCPU=4')
    assert candidates[0]['resource provider'] == created['uuid']


def test_an_outage_of_the_keystone_is_503(tmp_path: pathlib.Path) -> None:
    nowhere = f'http://127.0.0.1:{servers.free_port()}/v3'
    with _served(tmp_path, _middleware_options(nowhere) | {'http_request_max_retries': 0}) as url:
        answer = _send_request(url, 'GET', '/resource_providers', 'gAAAAABnonsense')
        assert answer.status_code == 503, answer.text
        assert _error(answer)['title'] == 'Service Unavailable'
        assert _send_request(url, 'GET', '/', None).status_code == 200
