"""Apache as a proxy for placement-api, and with the service in mod_wsgi (etc/apache)."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator

import httpx
import pytest

import placement
from tests.support import certificates
from tests.support.operations import placement_server, services

SAMPLES = pathlib.Path(__file__).parents[3] / 'etc' / 'apache'
MODULES = pathlib.Path('/usr/lib/apache2/modules')
LOADED = ('mpm_event', 'authz_core', 'headers', 'proxy', 'proxy_http', 'socache_shmcb', 'ssl', 'wsgi')
HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}

#: The parts of Debian's apache2.conf that a site needs, with every path in a directory of the test.
MAIN = """
ServerRoot {home}
ServerName localhost
PidFile {home}/apache.pid
DefaultRuntimeDir {home}
ErrorLog {home}/apache.error.log
User www-data
Group www-data
WSGISocketPrefix {home}/wsgi
{modules}
Include {home}/site.conf
"""


@pytest.fixture
def home() -> Iterator[pathlib.Path]:
    """A directory that the user of Apache can read, with a certificate. The directories of pytest are private."""
    made = pathlib.Path(tempfile.mkdtemp(prefix='placement-apache-'))
    made.chmod(0o755)
    certificates.make(made)
    yield made
    shutil.rmtree(made)


def _replaced(text: str, *pairs: tuple[str, str]) -> str:
    for sample, ours in pairs:
        assert sample in text, sample
        text = text.replace(sample, ours)
    return text


def _write(home: pathlib.Path, name: str, port: int) -> list[str]:
    """Write the sample with only port and paths changed. Returns the command of Apache."""
    text = _replaced(
        (SAMPLES / name).read_text(),
        ('8778', f'{port}'),
        ('/etc/ssl/certs/placement.pem', f'{home}/server.pem'),
        ('/etc/ssl/private/placement.key', f'{home}/server.key'),
    )
    if name == 'placement-proxy.conf':
        text = _replaced(text, ('/run/placement/api.sock', f'{home}/api.sock'))
    else:
        text = _replaced(
            text,
            ('/opt/placement/lib/python3.11/site-packages/placement', str(pathlib.Path(placement.__file__).parent)),
            # The virtual environment of the tests may be of another build of Python than that of mod_wsgi.
            ('python-home=/opt/placement', f'python-path={services.import_path()}'),
            ('user=placement group=placement', 'user=www-data group=www-data'),
        )
    (home / 'site.conf').write_text(text)
    modules = [f'LoadModule {one}_module {MODULES}/mod_{one}.so' for one in LOADED if one != 'mpm_event' or _is(one)]
    (home / 'apache.conf').write_text(MAIN.format(home=home, modules='\n'.join(modules)))
    return [services.program('apache', 'apache2'), '-f', str(home / 'apache.conf')]


def _is(module: str) -> bool:
    return (MODULES / f'mod_{module}.so').exists()


@pytest.mark.parametrize('name', ['placement-proxy.conf', 'placement-wsgi.conf'])
def test_samples_are_valid(home: pathlib.Path, name: str) -> None:
    assert name in os.listdir(SAMPLES)
    services.run([*_write(home, name, services.free_port()), '-t'])


@contextlib.contextmanager
def _proxied(home: pathlib.Path, command: list[str], port: int) -> Iterator[None]:
    options = {'enable_proxy_headers_parsing': True}
    placement_server.write_configuration(home, oslo_middleware=options, healthcheck={'path': '/healthcheck'})
    api = [str(placement_server.BIN / 'placement-api'), '--bind', f'unix:{home}/api.sock']
    environ = placement_server.environ(home)
    with (
        services.running(api, 'http://placement/', home / 'api.log', environ, uds=home / 'api.sock'),
        services.running(command, f'http://127.0.0.1:{port}', home / 'apache.log', services.clean_environ()),
    ):
        yield


@contextlib.contextmanager
def _inside(home: pathlib.Path, command: list[str], port: int) -> Iterator[None]:
    version = f'{sys.version_info.major}.{sys.version_info.minor}'
    if not (MODULES / f'mod_wsgi.so-{version}').exists():
        pytest.skip(f'not run, mod_wsgi of this machine is not for Python {version}')
    for path in services.import_path().split(os.pathsep):
        if subprocess.run(['runuser', '-u', 'www-data', '--', 'test', '-r', path], check=False).returncode:
            pytest.skip(f'not run: the user of Apache cannot read {path}')
    placement_server.write_configuration(home, healthcheck={'path': '/healthcheck'})
    shutil.chown(home, 'www-data')
    environ = placement_server.environ(home)
    with services.running(command, f'http://127.0.0.1:{port}', home / 'apache.log', environ):
        yield


@pytest.mark.parametrize(('name', 'serve'), [('placement-proxy.conf', _proxied), ('placement-wsgi.conf', _inside)])
def test_service_works_below_the_prefix(home: pathlib.Path, name: str, serve: object) -> None:
    if os.getuid() != 0:
        pytest.skip('not run: Apache changes to its user, which takes root')
    port = services.free_port()
    command = [*_write(home, name, port), '-DFOREGROUND']
    url = f'https://localhost:{port}/placement'
    assert callable(serve)
    with serve(home, command, port), httpx.Client(verify=certificates.trust(home), headers=HEADERS) as client:
        for path in ('', '/'):
            assert client.get(f'{url}{path}').json()['versions'][0]['id'] == 'v1.0'
        created = client.post(f'{url}/resource_providers', json={'name': 'a'}, headers={'X-Forwarded-Prefix': '/x'})
        assert created.headers['location'] == f'{url}/resource_providers/{created.json()["uuid"]}'
        aggregates = ','.join(str(uuid.uuid4()) for _ in range(400))
        listed = client.get(f'{url}/resource_providers', params={'member_of': f'in:{aggregates}'})
        assert listed.json() == {'resource_providers': []}
        assert client.get(f'{url}/resource_providers/a%2Fb').status_code == 404
        for path in ('/healthcheck', '/healthcheck/ready'):
            assert client.get(f'{url}{path}').status_code == 403
