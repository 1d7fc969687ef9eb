"""The service as devstack, kolla-ansible and openstack-helm configure and start it, in uWSGI and in Apache.

Their files are in ``deployments/``, as those tools write them for the most part.
"""

from __future__ import annotations

import functools
import pathlib
import shutil
import uuid
from typing import Any

import httpx
import pytest

from tests.integration import services
from tests.integration.operations import machine
from tests.support import keystone, servers
from tests.support.waiting import wait_until

DEPLOYMENTS = pathlib.Path(__file__).with_name('deployments')


def _file(name: str, **values: object) -> str:
    """A file of a deployment, with values in the places that it names."""
    text = (DEPLOYMENTS / name).read_text()
    return text.format(**values) if values else text


def test_uwsgi_as_openstack_helm_starts_it(tmp_path: pathlib.Path) -> None:
    """Its options, with a logging configuration in a file, and a copy of the installed script."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    port = servers.free_port()
    environ = servers.clean_environ(OS_PLACEMENT_CONFIG_DIR=str(tmp_path), PYTHONPATH=services.import_path())
    (tmp_path / 'logging.conf').write_text(_file('helm/logging.conf'))
    # Its start with Apache also serves a copy.
    (tmp_path / 'cgi-bin').mkdir()
    script = shutil.copy2(servers.BIN / 'placement-api', tmp_path / 'cgi-bin')
    ini = tmp_path / 'placement-api-uwsgi.ini'
    ini.write_text(_file('helm/placement-api-uwsgi.ini', script=script, port=port))
    with keystone.keystone() as auth_url:
        options = _file('helm/placement.conf', home=tmp_path, auth_url=auth_url)
        (tmp_path / 'placement.conf').write_text(options)
        services.run([str(servers.BIN / 'placement-manage'), 'db', 'sync'], environ)
        url = f'http://127.0.0.1:{port}'
        log = tmp_path / 'uwsgi.log'
        with servers.running([str(programs / 'uwsgi'), '--ini', str(ini)], url, log, environ):
            assert httpx.get(f'{url}/resource_providers', timeout=60).status_code == 401
            listed = httpx.get(f'{url}/resource_providers', headers={'X-Auth-Token': 'good-admin'}, timeout=60)
            assert listed.json() == {'resource_providers': []}
    said = log.read_text()
    assert f'configuration: {tmp_path}/placement.conf, ready' in said
    # Only in the default configuration of the log are libraries shown.
    assert 'keystonemiddleware' not in said


def test_uwsgi_responds_although_the_configuration_is_invalid(tmp_path: pathlib.Path) -> None:
    """Its processes do not end and start again. The log has the reason once for each process."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    (tmp_path / 'placement.conf').write_text('[api]\nauth_strategy = nonsense\n')
    environ = servers.clean_environ(OS_PLACEMENT_CONFIG_DIR=str(tmp_path), PYTHONPATH=services.import_path())
    url, log = f'http://127.0.0.1:{servers.free_port()}', tmp_path / 'uwsgi.log'
    options = ['--http', url.removeprefix('http://'), '--module', 'placement.wsgi.api:application', '--master']
    command = [str(programs / 'uwsgi'), *options, '--processes', '2', '--lazy-apps', '--need-app', '--die-on-term']
    service = servers.start(command, url, log, environ)
    try:
        wait_until(lambda: log.exists() and log.read_text().count('WSGI app 0') == 2, service.tail)
        for _ in range(20):
            response = httpx.get(f'{url}/resource_providers', timeout=60)
            (error,) = response.json()['errors']
            assert (response.status_code, error['request_id']) == (500, response.headers['x-openstack-request-id'])
    finally:
        service.stop(any_status=True)
    assert log.read_text().count('placement: [api] auth_strategy in ') == 2
    assert 'Traceback' not in log.read_text()


# On a machine ----------------------------------------------------------------------------------------------

TOKEN = {'X-Auth-Token': 'good-admin', 'OpenStack-API-Version': 'placement 1.20'}

on_the_machine = pytest.mark.xdist_group('machine')


@pytest.fixture(scope='module')
def equipped(host: machine.Machine) -> machine.Machine:
    """The machine with the programs in /var/lib/kolla/venv, Apache, memcached and MariaDB. Nothing else listens."""
    venv = '/var/lib/kolla/venv'
    for unit in ('nginx', 'apache2', 'placement-api.socket', 'placement-uwsgi', 'script'):
        host.try_run(f'systemctl stop {unit}')
    host.run('id placement || useradd --system --shell /usr/sbin/nologin placement')
    host.run('usermod --home /var/lib/placement placement')
    host.run(f'mkdir -p {venv} /etc/placement /var/lib/placement /var/log/kolla/placement /var/run/uwsgi')
    host.run(f'python3 -m venv {venv} && {venv}/bin/pip install ".[mysql,memcached]" pyuwsgi', network=True)
    host.run('chown -R placement: /var/lib/placement /var/log/kolla/placement /var/run/uwsgi')
    host.run('rm -f /etc/apache2/sites-enabled/* /etc/apache2/ports.conf && touch /etc/apache2/ports.conf')
    host.run('a2enmod wsgi proxy proxy_uwsgi && systemctl start memcached')
    # The data of this machine's own server are in use.
    host.run('mariadb-install-db --user=mysql --datadir=/var/lib/kolla/mysql --skip-test-db')
    server = 'mariadbd --no-defaults --user=mysql --datadir=/var/lib/kolla/mysql --socket=/run/db.sock --bind=127.0.0.1'
    host.run(f'systemd-run --unit=db /usr/sbin/{server}')
    wait_until(lambda: host.try_run('mariadb -S /run/db.sock -e "SELECT 1"').returncode == 0, 'no MariaDB')
    grant = "GRANT ALL ON placement.* TO placement@'127.0.0.1' IDENTIFIED BY 'secret'"
    host.run(f'mariadb -S /run/db.sock -e "CREATE DATABASE placement; {grant}"')
    return host


def _check(host: machine.Machine, url: str) -> None:
    """The service responds, requires a token, and knows its address."""

    def request(method: str, path: str, **options: Any) -> httpx.Response:
        return host.inside(functools.partial(httpx.request, method, f'{url}{path}', timeout=60, **options))

    wait_until(lambda: host.try_run(f'curl -sf {url}/').returncode == 0, f'nothing responds at {url}')
    (version,) = request('GET', '/').json()['versions']
    assert version['max_version'] == '1.39'
    refused = request('GET', '/resource_providers')
    assert refused.status_code == 401, refused.text
    body = {'name': str(uuid.uuid4())}
    created = request('POST', '/resource_providers', headers=TOKEN, json=body)
    assert created.status_code == 200, created.text
    path = url.partition('127.0.0.1')[2].lstrip(':0123456789')
    assert created.headers['location'] == f'{url}/resource_providers/{created.json()["uuid"]}'
    assert created.json()['links'][0]['href'].startswith(f'{path}/resource_providers/')
    named = request('GET', f'/resource_providers?name={body["name"]}', headers=TOKEN)
    assert len(named.json()['resource_providers']) == 1


@on_the_machine
def test_kolla_ansible(equipped: machine.Machine, identity_url: str) -> None:
    """Its options and its virtual host, with MariaDB and memcached."""
    equipped.path('/etc/placement/placement.conf').write_text(_file('kolla/placement.conf', auth_url=identity_url))
    run = 'runuser -u placement -- /var/lib/kolla/venv/bin'
    # What the containers run before the service starts.
    for command in ('placement-manage db sync', 'placement-manage db online_data_migrations'):
        equipped.run(f'{run}/{command}')
    check = equipped.run(f'{run}/placement-status upgrade check')
    assert 'Failure' not in check
    equipped.path('/etc/apache2/conf-enabled/placement.conf').write_text(_file('kolla/apache.conf'))
    equipped.run('systemctl restart apache2')
    _check(equipped, 'http://127.0.0.1:8780')
    processes = equipped.run('ps -o user:12=,args= -e | grep "[w]sgi:placement"').splitlines()
    assert [line.split()[0] for line in processes] == ['placement'] * 2
    logs = equipped.path('/var/log/kolla/placement')
    log = (logs / 'placement-api.log').read_text()
    assert 'does not have the option [cache] backend in ' in log
    assert 'ERROR' not in log
    # Of Apache and mod_wsgi, and no warning of a library.
    for line in (logs / 'placement-api-error.log').read_text().splitlines():
        assert line.startswith('mod_wsgi (pid='), line


@on_the_machine
def test_devstack_behind_apache(equipped: machine.Machine, identity_url: str) -> None:
    """uWSGI on a socket, as in the test above, and Apache in front of it, below a path."""
    equipped.run('systemctl stop apache2')
    equipped.path('/etc/placement/placement.conf').write_text(_file('devstack/placement.conf', auth_url=identity_url))
    equipped.path('/etc/placement/placement-uwsgi.ini').write_text(_file('devstack/placement-uwsgi.ini'))
    programs = '/var/lib/kolla/venv/bin'
    equipped.run(f'runuser -u placement -- {programs}/placement-manage db sync')
    start = f'{programs}/uwsgi --procname-prefix placement --ini /etc/placement/placement-uwsgi.ini'
    equipped.run(f'systemd-run --unit=devstack@placement-api --uid=placement {start}')
    equipped.path('/etc/apache2/conf-enabled/placement.conf').write_text(_file('devstack/apache.conf'))
    equipped.run('systemctl start apache2')
    _check(equipped, 'http://127.0.0.1/placement')
