"""Runs the commands of doc/deployment.md and the samples, unchanged, on a machine with the page's users and paths.

The steps are fixtures, each of which continues where the one before it ended, as an operator would.
"""

from __future__ import annotations

import functools
import re
import ssl
import uuid
from collections.abc import Mapping

import httpx
import pytest

from tests.integration.operations import machine
from tests.support.pages import ROOT, section
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group('machine')

#: What the page tells to write with "editor". The directory is the one that the unit makes for a database.
EDITS = {
    r'^connection = .*$': 'connection = sqlite:////var/lib/placement/placement.sqlite',
    r'^(auth_url|www_authenticate_uri) = .*$': r'\1 = {keystone}',
}
(CATALOG,) = set(re.findall(r'endpoint create .* (https://\S+)', section('keystone.md', 'Set up')))
METRICS = 'curl -s http://127.0.0.1:9178/metrics'
FORGED = {
    'X-Forwarded-Proto': 'gopher',
    'X-Forwarded-Host': 'evil.example',
    'X-Forwarded-Prefix': '/evil',
    'Forwarded': 'proto=gopher;host=evil.example',
    'Script-Name': '/evil',
}
TOKEN = {'X-Auth-Token': 'good-admin', 'OpenStack-API-Version': 'placement 1.29'}


def _commands(heading: str) -> list[str]:
    """The commands of a section of the page."""
    return [line[4:] for line in section('deployment.md', heading).splitlines() if re.match(r'    [a-z/]', line)]


def _replay(host: machine.Machine, lines: list[str], identity_url: str) -> str:
    """Run commands of the page, and return what the last one prints."""
    said = ''
    for line in lines:
        word = line.split()[0]
        if word == 'apt-get':
            # tools/install-operations.sh has installed them, but Debian would have started nginx.
            host.run('dpkg --status ' + line.partition(' install ')[2])
            host.run('systemctl start nginx')
        elif word == 'editor':
            file = host.path(line.split()[1])
            text = file.read_text()
            for pattern, value in EDITS.items():
                text, count = re.subn(pattern, value.format(keystone=identity_url), text, flags=re.MULTILINE)
                assert count, pattern
            file.write_text(text)
            # "a database that is there already"
            host.run('install -d -o placement -g placement -m 0750 /var/lib/placement')
        elif word == 'curl':
            # A server that was told to reload listens, or forwards to its new address, a moment later.
            wait_until(functools.partial(_succeeds, host, f'{line} --fail'), line)
            said = host.run(line)
        else:
            said = host.run(line, network=word.endswith('/pip'))
    return said


def _succeeds(host: machine.Machine, line: str) -> bool:
    return host.try_run(line).returncode == 0


def _send_request(
    host: machine.Machine, path: str, headers: Mapping[str, str] | None = None, body: object = None
) -> httpx.Response:
    """Request a path below the URL of the catalog: POST if there is a body, else GET."""

    def request() -> httpx.Response:
        trust = ssl.create_default_context(cadata=host.path(f'{ROOT}/placement.pem').read_text())
        transport = httpx.HTTPTransport(verify=trust, local_address='127.0.0.1')
        with httpx.Client(transport=transport, timeout=30) as client:
            port = CATALOG.partition('example.org:')[2].partition('/')[0]
            url = CATALOG.replace('cloud.example.org', '127.0.0.1')
            return client.request(
                'GET' if body is None else 'POST',
                f'{url}{path}',
                headers={**(headers or {}), 'Host': f'cloud.example.org:{port}'},
                json=body,
                extensions={'sni_hostname': 'cloud.example.org'},
            )

    return host.inside(request)


def _check(host: machine.Machine) -> None:
    """The service responds at the URL of the catalog only, requires a token, and rejects health checks.

    It knows the URL, whatever clients say in forwarding headers, and accepts long queries, but no longer bodies.
    """
    wait_until(functools.partial(_succeeds, host, f'curl -sf --cacert placement.pem {CATALOG}'), 'no answer')
    for path in ('', '/'):
        assert _send_request(host, path).json()['versions'][0]['max_version'] == '1.29'
    assert _send_request(host, '/resource_providers').status_code == 401
    for name, value in FORGED.items():
        created = _send_request(host, '/resource_providers', TOKEN | {name: value}, {'name': str(uuid.uuid4())})
        assert created.status_code == 200, created.text
        assert created.headers['location'] == f'{CATALOG}/resource_providers/{created.json()["uuid"]}', name
        assert created.json()['links'][0]['href'].startswith('/placement/resource_providers/')
    assert _send_request(host, '/resource_providers', TOKEN, {'name': 'x' * 2**20}).status_code == 413
    outside = f'{CATALOG.removesuffix("/placement")}/resource_providers'
    assert host.run(f'curl -s -o /dev/null -w "%{{http_code}}" --cacert placement.pem {outside}') == '404'
    assert _send_request(host, '/resource_providers/a%2Fb', TOKEN).status_code == 404
    aggregates = ','.join(str(uuid.uuid4()) for _ in range(400))
    assert _send_request(host, f'/resource_providers?member_of=in:{aggregates}', TOKEN).json() == {
        'resource_providers': []
    }
    for path in ('/healthcheck', '/healthcheck/ready'):
        assert _send_request(host, path).status_code == 403


@pytest.fixture(scope='module')
def installed(host: machine.Machine, identity_url: str) -> str:
    """The machine has placement-api behind nginx. What the last command of the page printed."""
    return _replay(host, _commands('From a bare machine to TLS'), identity_url)


def test_from_a_bare_machine_to_tls(host: machine.Machine, installed: str) -> None:
    assert '"max_version":"1.29"' in installed
    _check(host)
    log = host.run('journalctl -u placement-api --no-pager')
    assert 'configuration: /etc/placement/placement.conf, listening on sockets from systemd' in log
    modes = host.run('stat -c "%U:%G %a %n" /etc/placement /etc/placement/* /run/placement/api.sock /var/lib/placement')
    assert modes.splitlines() == [
        'root:placement 750 /etc/placement',
        'root:placement 640 /etc/placement/placement.conf',
        'root:placement 640 /etc/placement/policy.yaml',
        'www-data:www-data 600 /run/placement/api.sock',
        'placement:placement 750 /var/lib/placement',
    ]


@pytest.mark.usefixtures('installed')
def test_a_reload_and_a_restart_by_systemd(host: machine.Machine) -> None:
    for verb in ('reload', 'restart'):
        host.run(f'systemctl {verb} placement-api')
        _check(host)
    assert host.run('systemctl is-active placement-api.service placement-api.socket') == 'active\nactive\n'


@pytest.mark.usefixtures('installed')
def test_with_memcached_the_service_starts_once_its_package_is_installed(host: machine.Machine) -> None:
    host.run("sed -i 's/^#memcached_servers = .*/memcached_servers = 127.0.0.1:11211/' /etc/placement/placement.conf")
    assert host.try_run('systemctl restart placement-api').returncode != 0
    advice = 'memcached_servers is set, but needs a package that is missing: pip install python-memcached'
    assert f'placement-api: [keystone_authtoken] {advice}' in host.run('journalctl -u placement-api --no-pager')
    host.run('/opt/placement/bin/pip install python-memcached', network=True)
    host.run('systemctl start memcached && systemctl reset-failed && systemctl restart placement-api')
    _check(host)


def _site(host: machine.Machine, name: str) -> None:
    """Install a sample for Apache with the commands at its top."""
    sample = ROOT / 'etc' / 'apache' / name
    text = sample.read_text()
    (path,) = re.findall(r'(/etc/apache2/\S+\.conf), then$', text, flags=re.MULTILINE)
    (commands,) = re.findall(r'^#   (a2enmod .*)$', text, flags=re.MULTILINE)
    host.run(f'install -m 0644 {sample} {path}')
    # nginx has these ports.
    host.run('systemctl stop nginx; systemctl start apache2')
    host.run(commands)


@pytest.mark.usefixtures('installed')
def test_apache_as_a_proxy(host: machine.Machine) -> None:
    _site(host, 'placement-proxy.conf')
    _check(host)


@pytest.mark.usefixtures('installed')
def test_apache_with_mod_wsgi(host: machine.Machine, identity_url: str) -> None:
    host.run('systemctl disable --now placement-api.service placement-api.socket')
    host.run("sed -i 's/^#bind = /bind = /' /etc/placement/placement.conf")
    _site(host, 'placement-wsgi.conf')
    _check(host)
    processes = host.run('ps -o user= -C apache2 && ps -o user=,args= -e | grep "[w]sgi:placement"').splitlines()
    assert sum(line.startswith('placeme') for line in processes) >= 4, processes
    log = host.path('/var/log/apache2/error.log').read_text()
    assert 'configuration: /etc/placement/placement.conf, ready' in log, log[-3000:]
    assert 'Nothing serves [metrics] bind' in log
    said = _replay(host, _commands('Apache'), identity_url)
    assert '# TYPE placement_process_cpu_seconds_total counter' in said
    _check(host)
    assert re.search(r'^placement_requests_total\{.*status="401".*\} 1', host.run(METRICS), flags=re.MULTILINE)
    host.run("systemctl disable --now placement-exporter; sed -i 's/^bind = /#bind = /' /etc/placement/placement.conf")


@pytest.mark.usefixtures('installed')
def test_uwsgi(host: machine.Machine, identity_url: str) -> None:
    host.run('systemctl stop apache2; systemctl start nginx')
    start, metrics = _commands('uWSGI')[:10], _commands('uWSGI')[10:]
    assert '"max_version":"1.29"' in _replay(host, start, identity_url)
    _check(host)
    assert host.run('stat -c "%U:%G %a" /run/placement/uwsgi.sock') == 'placement:www-data 660\n'
    host.run('systemctl reload placement-uwsgi')
    _check(host)
    assert '# TYPE placement_process_cpu_seconds_total counter' in _replay(host, metrics, identity_url)
    _check(host)
    counts = re.findall(r'^placement_requests_total\{.*status="(\d+)".*\} (\d)', host.run(METRICS), flags=re.MULTILINE)
    assert ('401', '1') in counts
    # It starts again with uWSGI, and with counts from 0.
    host.run('systemctl restart placement-uwsgi')
    wait_until(lambda: _succeeds(host, f'{METRICS} --fail | grep "^placement_process_start"'), 'no metrics')
    assert 'status="401"' not in host.run(METRICS)
