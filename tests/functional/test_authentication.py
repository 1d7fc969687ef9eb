"""Authentication: noauth2, and keystonemiddleware of the whole application against a Keystone that speaks real HTTP."""

from __future__ import annotations

import contextlib
import logging
import pathlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import webob

from placement import conf as configuration
from placement import deploy, exception
from placement.observability.metrics import Metrics
from placement.web import authentication
from tests.support.http_client import CLAIMS
from tests.support.keystone import keystone

Load = Callable[..., deploy.Application]

#: A section for a Keystone at ``{url}``.
KEYSTONE_AUTHTOKEN = """
[keystone_authtoken]
auth_type = password
auth_url = {url}
www_authenticate_uri = {url}
username = placement
password = secret
project_name = service
user_domain_id = default
project_domain_id = default
http_request_max_retries = 0
"""


@pytest.fixture
def load(tmp_path: pathlib.Path) -> Iterator[Load]:
    """Build applications from the text of a configuration file and from overrides."""
    with contextlib.ExitStack() as stack:

        def build(sections: str, **overrides: dict[str, str]) -> deploy.Application:
            database = f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\n'
            file = tmp_path / 'placement.conf'
            file.write_text(f'{database}sync_on_startup = true\n{sections}')
            app = deploy.loadapp(configuration.load(config_files=[str(file)], overrides=overrides))
            stack.callback(app.db.dispose)
            return app

        yield build


@pytest.fixture
def keystone_url() -> Iterator[str]:
    """The URL of a running Keystone."""
    with keystone() as url:
        yield url


@pytest.fixture
def sections(keystone_url: str) -> str:
    """The sections for the running Keystone."""
    return KEYSTONE_AUTHTOKEN.format(url=keystone_url)


@pytest.mark.parametrize(
    ('section', 'message'),
    [
        ('', 'is missing .* no auth_type'),
        ('auth_url = http://127.0.0.1', 'is missing .* no auth_type'),
        ('auth_type = nonsense', 'cannot be used: '),
        ('auth_type = password', 'cannot be used: '),
        ('auth_type = password\nauth_url = http://127.0.0.1\npassword = pa$word', 'cannot be used: '),
        ('auth_type = none\nmemcache_security_strategy = ENCRYPT', 'cannot be used: '),
    ],
)
def test_an_invalid_or_missing_section_stops_the_start(load: Load, section: str, message: str) -> None:
    with pytest.raises(exception.ConfigurationInvalid, match=rf'^\[keystone_authtoken\] {message}') as caught:
        load(f'[keystone_authtoken]\n{section}\n' if section else '')
    assert 'word' not in str(caught.value)


def test_credentials_can_be_in_a_section_of_their_own(load: Load, keystone_url: str, sections: str) -> None:
    credentials = sections.replace('keystone_authtoken', 'credentials')
    section = f'[keystone_authtoken]\nauth_section = credentials\nwww_authenticate_uri = {keystone_url}\n'
    assert _send(load(section + credentials), '/resource_providers', 'good-admin').status_code == 200


def _send(app: deploy.Application, path: str, token: str | None = None, **headers: str) -> webob.Response:
    req = webob.Request.blank(path, headers=headers)
    if token is not None:
        req.headers['X-Auth-Token'] = token
    return req.get_response(app)


def test_keystone_decides_who_is_admitted(load: Load, keystone_url: str, sections: str) -> None:
    app = load(sections)
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


def test_policy_can_ask_for_roles_of_the_service_token(tmp_path: pathlib.Path, load: Load, sections: str) -> None:
    policy = tmp_path / 'policy.yaml'
    policy.write_text('"placement:resource_providers:list": "service_roles:auditor"\n')
    app = load(sections, oslo_policy={'policy_file': str(policy)})
    assert _send(app, '/resource_providers', 'good-member').status_code == 403
    for token, status in (('good-service', 200), ('other-service', 403)):
        headers = {'X-Service-Token': token}
        assert _send(app, '/resource_providers', 'good-member', **headers).status_code == status


def test_the_time_for_validating_a_token_is_logged_and_counted(
    load: Load, sections: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, 'placement.requestlog')
    app = load(sections, metrics={'bind': '127.0.0.1:1'})
    assert _send(app, '/resource_providers', 'good-admin').status_code == 200
    (line,) = [record.getMessage() for record in caplog.records if record.name == 'placement.requestlog']
    times = re.search(r' time: ([0-9.]+) keystone: ([0-9.]+)$', line)
    assert times, line
    assert float(times[1]) >= float(times[2]) > 0
    assert isinstance(app.db.metrics, Metrics)
    labels = {'route': '/resource_providers', 'method': 'GET', 'phase': 'keystone'}
    assert app.db.metrics.registry.get_sample_value('placement_request_phase_seconds_total', labels)


def test_an_outage_of_keystone_is_503(load: Load) -> None:
    with keystone() as url:
        pass
    app = load(KEYSTONE_AUTHTOKEN.format(url=url))
    assert _send(app, '/').status_code == 200
    response = _send(app, '/resource_providers', 'good-admin')
    assert response.status_code == 503
    assert response.json['errors'][0]['title'] == 'Service Unavailable'
    assert 'Retry-After' in response.headers


# The identity that each token of noauth2 gives --------------------------------------------------------------------


def _seen(token: str | None, path: str = '/traits', **headers: str) -> tuple[int, Any]:
    """Status of the answer, and the identity that noauth2 passes on."""
    seen: list[Any] = [None]

    def behind(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen[0] = environ[authentication.ENVIRON_KEY]
        start_response('200 OK', [])
        return []

    def make_context(**arguments: Any) -> Any:
        return {name: value for name, value in arguments.items() if not name.endswith('request_id')}

    req = webob.Request.blank(path, headers={} if token is None else {'X-Auth-Token': token})
    req.headers.update(headers)
    req.environ['openstack.request_id'] = 'req-1'
    return req.get_response(
        authentication.Authentication(behind, make_context, authentication.trust_token)
    ).status_code, seen[0]


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
