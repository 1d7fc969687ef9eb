"""Authentication: noauth2, and keystonemiddleware against a Keystone that speaks real HTTP."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import webob

from placement import conf as configuration
from placement import deploy, exception
from placement.web import authentication

# Headers with which a client claims to be somebody.
CLAIMS = {
    'X-Identity-Status': 'Confirmed',
    'X-User-Id': 'root',
    'X-Project-Id': 'root',
    'X-Roles': 'admin',
    'X-Role': 'admin',
    'X-Is-Admin-Project': 'True',
    'X-Service-Roles': 'admin',
    'X-System-Scope': 'all',
}


def _seen(token: str | None, path: str = '/traits', **headers: str) -> tuple[int, Any]:
    """Status, and the identity that reaches what lies behind noauth2."""
    seen: list[Any] = [None]

    def behind(environ: dict[str, Any], start_response: Any) -> list[bytes]:
        seen[0] = environ.get(authentication.IDENTITY)
        start_response('200 OK', [])
        return []

    req = webob.Request.blank(path, headers={} if token is None else {'X-Auth-Token': token})
    req.headers.update(headers)
    req.environ['openstack.request_id'] = 'req-1'
    return req.get_response(authentication.NoAuth(behind)).status_code, seen[0]


@pytest.mark.parametrize(
    ('token', 'identity'),
    [
        ('admin', {'user_id': 'admin', 'project_id': 'admin', 'roles': ['admin']}),
        ('admin:p', {'user_id': 'admin', 'project_id': 'p', 'roles': ['admin']}),
        ('Admin', {'user_id': 'Admin', 'project_id': 'Admin', 'roles': []}),
        ('u:p:q', {'user_id': 'u', 'project_id': 'p:q', 'roles': []}),
        ('', {'user_id': '', 'project_id': '', 'roles': []}),
    ],
)
def test_noauth2_reads_the_token(token: str, identity: dict[str, Any]) -> None:
    assert _seen(token) == (200, identity)
    assert _seen(token, **CLAIMS) == (200, identity)


def test_noauth2_wants_a_token_except_at_the_root() -> None:
    assert _seen(None) == (401, None)
    assert _seen(None, **CLAIMS) == (401, None)
    assert _seen(None, path='/') == (200, None)


def test_claims_do_not_make_an_administrator(app: Any) -> None:
    req = webob.Request.blank('/resource_providers', headers={**CLAIMS, 'X-Auth-Token': 'user'})
    assert req.get_response(app).status_code == 403


def test_noauth2_does_not_import_keystonemiddleware() -> None:
    program = (
        'import sys, placement.deploy, placement.conf\n'
        'overrides = {"api": {"auth_strategy": "noauth2"}, "placement_database": {"connection": "sqlite://"}}\n'
        'placement.deploy.loadapp(placement.conf.load(environ={}, config_files=[], overrides=overrides))\n'
        'sys.exit("keystonemiddleware" in sys.modules)\n'
    )
    assert subprocess.run([sys.executable, '-W', 'error', '-c', program], check=False, timeout=120).returncode == 0


class _Keystone(BaseHTTPRequestHandler):
    """As much of Keystone as keystonemiddleware asks: discovery, its own token, validation."""

    roles: Mapping[str, list[str]] = {'good-admin': ['admin', 'reader'], 'good-member': ['member']}

    def do_GET(self) -> None:
        subject = self.headers.get('X-Subject-Token')
        if subject is None:
            link = [{'rel': 'self', 'href': f'{self._url()}/v3/'}]
            version = {'id': 'v3.14', 'status': 'stable', 'links': link, 'media-types': []}
            single = self.path.startswith('/v3')
            self._send(200, {'version': version} if single else {'versions': {'values': [version]}})
        elif subject in self.roles:
            self._send(200, {'token': _token(subject, self.roles[subject])})
        else:
            self._send(404, {'error': {'code': 404, 'title': 'Not Found', 'message': 'no such token'}})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers['Content-Length']))
        endpoints = [
            {'id': face, 'interface': face, 'region_id': 'R', 'url': self._url()}
            for face in ('public', 'internal', 'admin')
        ]
        token = _token('service', ['service'])
        token['catalog'] = [{'id': 'k', 'type': 'identity', 'name': 'keystone', 'endpoints': endpoints}]
        self._send(201, {'token': token}, {'X-Subject-Token': 'service-token'})

    def _url(self) -> str:
        return f'http://{self.headers["Host"]}'

    def _send(self, status: int, content: dict[str, Any], headers: Mapping[str, str] | None = None) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        for name, value in {
            'Content-Length': str(len(body)),
            'Content-Type': 'application/json',
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None:
        """Keep the output of the tests clean."""


def _token(name: str, roles: list[str]) -> dict[str, Any]:
    now = dt.datetime.now(dt.timezone.utc)
    domain = {'id': 'default', 'name': 'Default'}
    return {
        'methods': ['password'],
        'user': {'id': f'{name}-id', 'name': name, 'domain': domain},
        'project': {'id': 'project-id', 'name': 'project', 'domain': domain},
        'roles': [{'id': role, 'name': role} for role in roles],
        'issued_at': now.strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
        'expires_at': (now + dt.timedelta(hours=1)).strftime('%Y-%m-%dT%H:%M:%S.%fZ'),
        'catalog': [],
    }


@contextlib.contextmanager
def _keystone() -> Iterator[str]:
    server = ThreadingHTTPServer(('127.0.0.1', 0), _Keystone)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f'http://127.0.0.1:{server.server_address[1]}'
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def keystone_url() -> Iterator[str]:
    """The URL of a Keystone that knows two tokens."""
    with _keystone() as url:
        yield url


def _application(tmp_path: pathlib.Path, url: str) -> deploy.Application:
    file = tmp_path / 'placement.conf'
    file.write_text(
        '[api]\nauth_strategy = keystone\n'
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\nsync_on_startup = true\n'
        f'[keystone_authtoken]\nauth_type = password\nauth_url = {url}\nwww_authenticate_uri = {url}\n'
        'username = placement\npassword = secret\nproject_name = service\n'
        'user_domain_id = default\nproject_domain_id = default\n'
        'http_request_max_retries = 0\n'
    )
    return deploy.loadapp(configuration.load(environ={}, config_files=[str(file)]))


@pytest.mark.parametrize(
    'section',
    [
        'auth_type = nonsense',
        'auth_type = password',
        'auth_type = password\nauth_url = http://127.0.0.1\npassword = pa$word',
        'memcache_security_strategy = ENCRYPT',
    ],
)
def test_a_section_that_makes_no_sense_stops_the_start(tmp_path: pathlib.Path, section: str) -> None:
    file = tmp_path / 'placement.conf'
    file.write_text(
        f'[placement_database]\nconnection = sqlite:///{tmp_path}/placement.sqlite\n[keystone_authtoken]\n{section}\n'
    )
    with pytest.raises(exception.ConfigurationInvalid) as caught:
        deploy.loadapp(configuration.load(environ={}, config_files=[str(file)]))
    assert str(caught.value).startswith('[keystone_authtoken] cannot be used: ')
    assert 'word' not in str(caught.value)


def _ask(app: deploy.Application, path: str, token: str | None = None, **headers: str) -> webob.Response:
    req = webob.Request.blank(path, headers=headers)
    if token is not None:
        req.headers['X-Auth-Token'] = token
    return req.get_response(app)


def test_keystone_decides(tmp_path: pathlib.Path, keystone_url: str) -> None:
    app = _application(tmp_path, keystone_url)
    for path_info in ('/', ''):
        assert _ask(app, '/', PATH_INFO=path_info).status_code == 200
    assert _ask(app, '/resource_providers', 'good-admin').status_code == 200
    assert _ask(app, '/resource_providers', 'good-member').status_code == 403
    assert _ask(app, '/resource_providers', 'good-member', **CLAIMS).status_code == 403
    for token in (None, 'bad', '', '\xff'):
        response = _ask(app, '/resource_providers', token, **CLAIMS)
        assert response.status_code == 401
        assert keystone_url in response.headers['WWW-Authenticate']
        (error,) = response.json['errors']
        assert (error['status'], error['title']) == (401, 'Unauthorized')
        assert error['request_id'] == response.headers['x-openstack-request-id']
        assert 'OpenStack-API-Version' not in response.headers
    app.db.dispose()


def test_keystone_being_away_is_503(tmp_path: pathlib.Path) -> None:
    with _keystone() as url:
        pass
    app = _application(tmp_path, url)
    assert _ask(app, '/').status_code == 200
    response = _ask(app, '/resource_providers', 'good-admin')
    assert response.status_code == 503
    assert response.json['errors'][0]['title'] == 'Service Unavailable'
    assert 'Retry-After' in response.headers
    app.db.dispose()
