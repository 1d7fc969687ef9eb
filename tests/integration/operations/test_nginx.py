"""nginx in front, with the sample configuration: mount prefix, https, long queries (etc/nginx/placement.conf)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import ssl
import textwrap
import uuid
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.support import servers
from tests.support.operations import placement_server, services

ROOT = pathlib.Path(__file__).parents[3]
SAMPLE = ROOT / 'etc' / 'nginx' / 'placement.conf'

#: The parts of Debian's nginx.conf that conf.d/*.conf needs, with every path in a directory of the test.
MAIN = """
    daemon off;
    {user}
    pid {home}/nginx.pid;
    error_log {home}/nginx.error.log;
    events {{}}
    http {{
        access_log off;
        client_body_temp_path {home}/body;
        proxy_temp_path {home}/proxy;
        fastcgi_temp_path {home}/fastcgi;
        uwsgi_temp_path {home}/uwsgi;
        scgi_temp_path {home}/scgi;
        include {home}/site.conf;
    }}
"""


def _certificate(home: pathlib.Path) -> None:
    openssl = services.program('nginx', 'openssl')
    subject = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2']
    files = ['-keyout', str(home / 'site.key'), '-out', str(home / 'site.pem')]
    services.run([openssl, 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', *subject, *files])


def _replaced(text: str, *pairs: tuple[str, str]) -> str:
    for sample, ours in pairs:
        assert text.count(sample) == 1, sample
        text = text.replace(sample, ours)
    return text


def _site(home: pathlib.Path, port: int) -> str:
    """The sample with only port and paths changed."""
    return _replaced(
        SAMPLE.read_text(),
        ('unix:/run/placement/api.sock', f'unix:{home}/api.sock'),
        ('listen 8778 ssl', f'listen 127.0.0.1:{port} ssl'),
        ('/etc/ssl/certs/placement.pem', f'{home}/site.pem'),
        ('/etc/ssl/private/placement.key', f'{home}/site.key'),
    )


def _site_for_uwsgi(home: pathlib.Path, port: int) -> str:
    """The sample for uWSGI with only port and paths changed."""
    return _replaced(
        SAMPLE.with_name('placement-uwsgi.conf').read_text(),
        ('unix:/run/placement/uwsgi.sock', f'unix:{home}/uwsgi.sock'),
        ('include uwsgi_params', 'include /etc/nginx/uwsgi_params'),
        ('listen 8778 ssl', f'listen 127.0.0.1:{port} ssl'),
        ('/etc/ssl/certs/placement.pem', f'{home}/site.pem'),
        ('/etc/ssl/private/placement.key', f'{home}/site.key'),
    )


@contextlib.contextmanager
def _nginx(home: pathlib.Path, site: Callable[[pathlib.Path, int], str]) -> Iterator[str]:
    nginx = services.program('nginx', 'nginx')
    port = servers.free_port()
    _certificate(home)
    # Started by root, nginx would change to a user that cannot read the directory of the test.
    main = textwrap.dedent(MAIN).format(home=home, user='user root;' if os.getuid() == 0 else '')
    home.joinpath('nginx.conf').write_text(main)
    home.joinpath('site.conf').write_text(site(home, port))
    command = [nginx, '-p', str(home), '-c', str(home / 'nginx.conf')]
    with services.running(command, f'http://127.0.0.1:{port}', home / 'nginx.log', services.clean_environ()):
        yield f'https://127.0.0.1:{port}/placement'


@contextlib.contextmanager
def _placement_api(home: pathlib.Path) -> Iterator[None]:
    placement_server.write_configuration(home, oslo_middleware={'enable_proxy_headers_parsing': True})
    uds = home / 'api.sock'
    command = [str(placement_server.BIN / 'placement-api'), '--bind', f'unix:{uds}']
    environ = placement_server.environ(home)
    with services.running(command, 'http://placement/', home / 'api.log', environ, uds=uds):
        yield


@contextlib.contextmanager
def _uwsgi(home: pathlib.Path) -> Iterator[None]:
    programs = services.environment('uwsgi', ('pyuwsgi',))
    # As in the sample configuration of the service; uWSGI would not need it.
    placement_server.write_configuration(home, oslo_middleware={'enable_proxy_headers_parsing': True})
    environ = placement_server.environ(home, PYTHONPATH=services.import_path())
    port = servers.free_port()
    ini = placement_server.uwsgi_ini(home, port, programs)
    # The test checks over HTTP whether uWSGI is up; nginx uses the protocol of uWSGI.
    ini.write_text(_replaced(ini.read_text(), ('[uwsgi]\n', f'[uwsgi]\nsocket = {home}/uwsgi.sock\n')))
    command = [str(programs / 'uwsgi'), '--ini', str(ini)]
    with services.running(command, f'http://127.0.0.1:{port}/placement', home / 'uwsgi.log', environ):
        yield


@pytest.fixture(scope='module', params=['placement-api', 'uWSGI'])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of placement behind nginx. Its base URL is the mount point."""
    services.program('nginx', 'nginx')
    home = tmp_path_factory.mktemp('nginx')
    server, text = (_uwsgi, _site_for_uwsgi) if request.param == 'uWSGI' else (_placement_api, _site)
    with (
        server(home),
        _nginx(home, text) as url,
        httpx.Client(
            base_url=url,
            headers={'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'},
            verify=ssl.create_default_context(cafile=home / 'site.pem'),
        ) as client,
    ):
        yield client


def _create(site: httpx.Client, **headers: str) -> httpx.Response:
    answer = site.post('/resource_providers', json={'name': str(uuid.uuid4())}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize('path', ['', '/'])
def test_mount_point_answers_with_and_without_slash(site: httpx.Client, path: str) -> None:
    answer = site.get(f'{str(site.base_url).rstrip("/")}{path}')
    assert answer.status_code == 200
    assert answer.json()['versions'][0]['id'] == 'v1.0'


def test_location_and_links_have_scheme_host_and_prefix(site: httpx.Client) -> None:
    created = _create(site)
    place = f'/placement/resource_providers/{created.json()["uuid"]}'
    assert created.headers['location'] == str(site.base_url.copy_with(path=place))
    links = created.json()['links']
    assert {link['href'] for link in links if link['rel'] == 'self'} == {place}
    assert all(link['href'].startswith(place) for link in links)
    assert site.get(created.headers['location']).status_code == 200


@pytest.mark.parametrize(
    'forged',
    [
        {'X-Forwarded-Proto': 'gopher'},
        {'X-Forwarded-Host': 'evil.example'},
        {'X-Forwarded-Prefix': '/evil'},
        {'Forwarded': 'proto=gopher;host=evil.example'},
        {'Script-Name': '/evil'},
    ],
    ids=lambda headers: next(iter(headers)),
)
def test_forwarding_headers_of_clients_are_replaced(site: httpx.Client, forged: dict[str, str]) -> None:
    created = _create(site, **forged)
    assert created.headers['location'].startswith(f'{str(site.base_url).rstrip("/")}/resource_providers/')


def test_paths_outside_the_mount_point_do_not_reach_the_service(site: httpx.Client) -> None:
    assert site.get(site.base_url.copy_with(path='/resource_providers')).status_code == 404


def test_long_queries_are_answered(site: httpx.Client) -> None:
    # uWSGI accepts 64 KiB, which hold the query twice.
    aggregates = ','.join(str(uuid.uuid4()) for _ in range(700))
    query = f'resources=VCPU:1&member_of=in:{aggregates}'
    answer = site.get(f'/allocation_candidates?{query}')
    assert answer.status_code == 200, answer.text
    assert answer.json()['allocation_requests'] == []


def test_bodies_that_are_too_long_are_rejected(site: httpx.Client) -> None:
    assert site.post('/resource_providers', json={'name': 'x' * 2**20}).status_code == 413
