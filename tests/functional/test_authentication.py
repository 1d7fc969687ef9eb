"""Authentication: noauth2, and keystonemiddleware of the whole application against a Keystone that speaks real HTTP."""

from __future__ import annotations

import logging
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import webob

from placement import conf as configuration
from placement import deploy, exception
from placement.observability.metrics import Metrics
from placement.web import authentication, context
from tests.support.http_client import CLAIMS
from tests.support.keystone import keystone


def test_noauth2_does_not_import_keystonemiddleware() -> None:
    program = (
        'import sys, placement.deploy, placement.conf\n'
        'overrides = {"api": {"auth_strategy": "noauth2"}, "placement_database": {"connection": "sqlite://"}}\n'
        'placement.deploy.loadapp(placement.conf.load(config_files=[], overrides=overrides))\n'
        'sys.exit("keystonemiddleware" in sys.modules)\n'
    )
    assert subprocess.run([sys.executable, '-W', 'error', '-c', program], check=False, timeout=120).returncode == 0


@pytest.fixture
def keystone_url() -> Iterator[str]:
    """The URL of a running Keystone."""
    with keystone() as url:
        yield url


def _application(tmp_path: pathlib.Path, url: str, **values: dict[str, str]) -> deploy.Application:
    file = tmp_path / 'placement.conf'
    file.write_text(
        '[api]\nauth_strategy = keystone\n'
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\nsync_on_startup = true\n'
        f'[keystone_authtoken]\nauth_type = password\nauth_url = {url}\nwww_authenticate_uri = {url}\n'
        'username = placement\npassword = secret\nproject_name = service\n'
        'user_domain_id = default\nproject_domain_id = default\n'
        'http_request_max_retries = 0\n'
    )
    return deploy.loadapp(configuration.load(config_files=[str(file)], overrides=values))


@pytest.mark.parametrize(
    'section',
    [
        'auth_type = nonsense',
        'auth_type = password',
        'auth_type = password\nauth_url = http://127.0.0.1\npassword = pa$word',
        'auth_type = none\nmemcache_security_strategy = ENCRYPT',
    ],
)
def test_an_invalid_section_stops_the_start(tmp_path: pathlib.Path, section: str) -> None:
    file = tmp_path / 'placement.conf'
    file.write_text(
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\n[keystone_authtoken]\n{section}\n'
    )
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        deploy.loadapp(configuration.load(config_files=[str(file)]))
    assert str(caught.value).startswith('[keystone_authtoken] cannot be used: ')
    assert 'word' not in str(caught.value)


@pytest.mark.parametrize('section', ['', '[keystone_authtoken]\nauth_url = http://127.0.0.1\n'])
def test_a_missing_section_stops_the_start(tmp_path: pathlib.Path, section: str) -> None:
    file = tmp_path / 'placement.conf'
    file.write_text(f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\n{section}')
    with pytest.raises(exception.ConfigurationInvalid, match=r'^\[keystone_authtoken\] is missing .* no auth_type'):
        deploy.loadapp(configuration.load(config_files=[str(file)]))


def test_credentials_can_be_in_a_section_of_their_own(tmp_path: pathlib.Path, keystone_url: str) -> None:
    file = tmp_path / 'placement.conf'
    file.write_text(
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\nsync_on_startup = true\n'
        f'[keystone_authtoken]\nauth_section = credentials\nwww_authenticate_uri = {keystone_url}\n'
        f'[credentials]\nauth_type = password\nauth_url = {keystone_url}\nusername = placement\npassword = secret\n'
        'project_name = service\nuser_domain_id = default\nproject_domain_id = default\n'
    )
    app = deploy.loadapp(configuration.load(config_files=[str(file)]))
    assert _send(app, '/resource_providers', 'good-admin').status_code == 200
    app.db.dispose()


def _send(app: deploy.Application, path: str, token: str | None = None, **headers: str) -> webob.Response:
    req = webob.Request.blank(path, headers=headers)
    if token is not None:
        req.headers['X-Auth-Token'] = token
    return req.get_response(app)


@pytest.mark.parametrize(('token', 'status'), [('good-admin', 200), ('bad', 401)])
def test_the_logged_time_includes_keystone(
    token: str, status: int, tmp_path: pathlib.Path, keystone_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, 'placement.web.request_log')
    app = _application(tmp_path, keystone_url)
    assert _send(app, '/resource_providers', token).status_code == status
    (line,) = [record.getMessage() for record in caplog.records if record.name == 'placement.web.request_log']
    times = re.search(rf' status: {status} .* time: ([0-9.]+) keystone: ([0-9.]+)$', line)
    assert times, line
    # Both need requests to Keystone, which take longer than everything else.
    assert float(times[1]) >= float(times[2]) > 0
    app.db.dispose()


def test_keystone_decides_who_is_admitted(tmp_path: pathlib.Path, keystone_url: str) -> None:
    app = _application(tmp_path, keystone_url)
    for path_info in ('/', ''):
        assert _send(app, '/', PATH_INFO=path_info).status_code == 200
    assert _send(app, '/resource_providers', 'good-admin').status_code == 200
    assert _send(app, '/resource_providers', 'good-member').status_code == 403
    assert _send(app, '/resource_providers', 'good-member', **CLAIMS).status_code == 403
    assert _send(app, '/resource_providers', 'without-user').status_code == 401
    for token in (None, 'bad', '', '\xff'):
        response = _send(app, '/resource_providers', token, **CLAIMS)
        assert response.status_code == 401
        assert keystone_url in response.headers['WWW-Authenticate']
        (error,) = response.json['errors']
        assert (error['status'], error['title']) == (401, 'Unauthorized')
        assert error['request_id'] == response.headers['x-openstack-request-id']
        assert 'OpenStack-API-Version' not in response.headers
    app.db.dispose()


def test_policy_can_ask_for_roles_of_the_service_token(tmp_path: pathlib.Path, keystone_url: str) -> None:
    policy = tmp_path / 'policy.yaml'
    policy.write_text('"placement:resource_providers:list": "service_roles:auditor"\n')
    app = _application(tmp_path, keystone_url, oslo_policy={'policy_file': str(policy)})
    assert _send(app, '/resource_providers', 'good-member').status_code == 403
    for token, status in (('good-service', 200), ('other-service', 403)):
        headers = {'X-Service-Token': token}
        assert _send(app, '/resource_providers', 'good-member', **headers).status_code == status
    app.db.dispose()


def test_the_time_for_validating_a_token_is_counted(tmp_path: pathlib.Path, keystone_url: str) -> None:
    app = _application(tmp_path, keystone_url, metrics={'bind': '127.0.0.1:1'})
    assert _send(app, '/resource_providers', 'good-admin').status_code == 200
    assert isinstance(app.db.metrics, Metrics)
    labels = {'route': '/resource_providers', 'method': 'GET'}
    spent = [
        app.db.metrics.registry.get_sample_value(name, labels | part)
        for name, part in (
            ('placement_request_phase_seconds_total', {'phase': 'keystone'}),
            ('placement_request_duration_seconds_sum', {}),
        )
    ]
    assert 0 < (spent[0] or 0) < (spent[1] or 0)
    app.db.dispose()


def test_an_outage_of_keystone_is_503(tmp_path: pathlib.Path) -> None:
    with keystone() as url:
        pass
    app = _application(tmp_path, url)
    assert _send(app, '/').status_code == 200
    response = _send(app, '/resource_providers', 'good-admin')
    assert response.status_code == 503
    assert response.json['errors'][0]['title'] == 'Service Unavailable'
    assert 'Retry-After' in response.headers
    app.db.dispose()


# The identity that each token of noauth2 gives --------------------------------------------------------------------


def _seen(token: str | None, path: str = '/traits', **headers: str) -> tuple[int, Any]:
    """Status of the answer, and the identity that noauth2 passes on."""
    seen: list[Any] = [None]

    def behind(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen[0] = environ[context.ENVIRON_KEY]
        start_response('200 OK', [])
        return []

    def make_context(**arguments: Any) -> Any:
        return {name: value for name, value in arguments.items() if not name.endswith('request_id')}

    req = webob.Request.blank(path, headers={} if token is None else {'X-Auth-Token': token})
    req.headers.update(headers)
    req.environ['openstack.request_id'] = 'req-1'
    return req.get_response(authentication.NoAuth(behind, make_context)).status_code, seen[0]


def _identity(user: str, project: str | None, *roles: str, **scope: str) -> dict[str, Any]:
    return {'user_id': user, 'project_id': project, 'roles': list(roles), **scope}


@pytest.mark.parametrize(
    ('token', 'headers', 'identity'),
    [
        ('admin', {}, _identity('admin', 'admin', 'admin')),
        ('admin:p', {}, _identity('admin', 'p', 'admin')),
        ('Admin', {}, _identity('Admin', 'Admin')),
        ('u:p:q', {}, _identity('u', 'p:q')),
        ('', {}, _identity('', '')),
        ('admin:p', {'X-Roles': 'reader'}, _identity('admin', 'p', 'reader')),
        ('u:p', {'X-Roles': ' a , b,,'}, _identity('u', 'p', 'a', 'b')),
        ('admin:p', {'X-Roles': ''}, _identity('admin', 'p')),
        ('u:p', {'X-Roles': 'Admin'}, _identity('u', 'p', 'Admin')),
        ('u:p', {'X-Project-Id': 'q'}, _identity('u', 'q')),
        ('u:p', {'X-Project-Id': ''}, _identity('u', 'p')),
        (
            'admin:p',
            {'OpenStack-System-Scope': 'all', 'X-Project-Id': 'q'},
            _identity('admin', None, 'admin', system_scope='all'),
        ),
        ('admin:p', {'OpenStack-System-Scope': ''}, _identity('admin', 'p', 'admin')),
    ],
)
def test_noauth2_reads_token_roles_project_and_scope(
    token: str, headers: dict[str, str], identity: dict[str, Any]
) -> None:
    claims = {name: value for name, value in CLAIMS.items() if name not in ('X-Roles', 'X-Project-Id')}
    assert _seen(token, **headers) == (200, identity)
    assert _seen(token, **{**claims, **headers}) == (200, identity)


def test_noauth2_requires_a_token_except_at_the_root() -> None:
    assert _seen(None) == (401, None)
    assert _seen(None, **CLAIMS) == (401, None)
    assert _seen(None, path='/') == (200, {})
