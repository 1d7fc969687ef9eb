"""A machine on which tools deploy the service: its files, its database, its processes, and requests to the service."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import os
import pathlib
import uuid
from typing import Any

import httpx
import pytest
import sqlalchemy as sa

from tests.integration import services
from tests.integration.operations.machine import Machine
from tests.support import corruption, legacy_database
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.pages import ROOT
from tests.support.waiting import wait_until

TOOLS = pathlib.Path(__file__).with_name('tools')
TOKEN = {'X-Auth-Token': 'good-admin', 'OpenStack-API-Version': 'placement 1.36'}

#: Where kolla's images have the service. For the other tools the machine has links to it.
VENV = '/var/lib/kolla/venv'
#: Servers: what tools install beside the service, and what the guide shows.
_PACKAGES = ('pyuwsgi', 'granian')
_MARIADB = (
    '/usr/sbin/mariadbd --no-defaults --user=mysql --datadir=/var/lib/kolla/mysql --socket=/run/db.sock'
    ' --bind-address=127.0.0.1 --innodb-flush-log-at-trx-commit=0 --skip-innodb-doublewrite'
)
_DATABASE = sa.URL.create('mysql+pymysql', 'placement', 'secret', '127.0.0.1', 3306, 'placement')


def equip(host: Machine, venv: pathlib.Path) -> None:
    """Install and start on the machine what tools find there before they deploy the service.

    :param venv: from ``virtual_environment``.
    """
    # The directories above the sources and above the virtual environment may be closed to other users.
    for directory in {*venv.parents, *ROOT.parents} - {pathlib.Path('/')}:
        host.run(f'chmod o+x {directory}')
    for unit in ('nginx', 'apache2', 'memcached', 'mariadb'):
        host.try_run(f'systemctl stop {unit}')
    host.run('id placement || useradd --system --user-group --shell /usr/sbin/nologin placement')
    host.run('usermod --home /var/lib/placement placement')
    host.run('useradd --create-home --shell /bin/bash stack; groupadd kolla')
    host.run(f'mkdir -p /var/lib/kolla /openstack/venvs && ln -s {venv} {VENV}')
    host.run(
        f'ln -s {venv} /opt/placement && ln -s {venv} /var/lib/openstack && ln -s {venv} /openstack/venvs/placement'
    )
    # openstack-ansible installs systemd-python, which has to be compiled: here it is Debian's package.
    host.run(f'cp -a /usr/lib/python3/dist-packages/systemd {venv}/lib/python3.*/site-packages/')
    # Packages of distributions install into the Python of the system, and their commands into /usr/bin.
    host.run(f'echo {venv}/lib/python3.*/site-packages > /usr/lib/python3/dist-packages/placement.pth')
    for name in ('placement-api', 'placement-manage', 'placement-status'):
        host.run(f"sed '1s|.*|#!/usr/bin/python3|' {venv}/bin/{name} > /usr/bin/{name} && chmod 755 /usr/bin/{name}")
    host.run('rm -f /etc/apache2/sites-enabled/* /etc/apache2/ports.conf && touch /etc/apache2/ports.conf')
    host.run('a2enmod wsgi proxy proxy_uwsgi && systemctl start memcached')
    host.run('mariadb-install-db --user=mysql --datadir=/var/lib/kolla/mysql --skip-test-db')
    host.run(f'systemd-run --unit=db {_MARIADB}')
    wait_until(lambda: host.try_run('mariadb -S /run/db.sock -e "SELECT 1"').returncode == 0, 'no MariaDB')
    grant = "GRANT ALL ON placement.* TO placement@'127.0.0.1' IDENTIFIED BY 'secret'"
    host.run(f'mariadb -S /run/db.sock -e "{grant}"')


def virtual_environment() -> pathlib.Path:
    """Return a virtual environment of the system's Python with this version of the service, for mod_wsgi and uWSGI.

    Its packages are those of OpenStack 2025.1, or of the list that PLACEMENT_TEST_CONSTRAINTS names. It is kept beside
    those of ``services.environment``. Later runs only install the service itself again.
    """
    constraints = pathlib.Path(os.environ.get('PLACEMENT_TEST_CONSTRAINTS', ROOT / 'tools' / 'constraints-2025.1.txt'))

    cache = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or pathlib.Path.home() / '.cache') / 'placement-tests'
    cache.mkdir(parents=True, exist_ok=True)
    venv = cache / f'deployers-{constraints.stem}'
    with open(cache / 'deployers.lock', 'w') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        run = os.environ.get('PYTEST_XDIST_TESTRUNUID', uuid.uuid4().hex)
        # Another process of this run may have installed it already.
        if not (venv / 'run').exists() or (venv / 'run').read_text() != run:
            if not (venv / 'bin' / 'pip').exists():
                services.run(['/usr/bin/python3', '-m', 'venv', str(venv)])
            pip = [str(venv / 'bin' / 'pip'), 'install', '--quiet', '--constraint', str(constraints)]
            services.run([*pip, f'{ROOT}[mysql,memcached]', *_PACKAGES])
            services.run([*pip, '--no-deps', '--force-reinstall', str(ROOT)])
            (venv / 'run').write_text(run)
    return venv


class Site:
    """The machine during one replay."""

    def __init__(self, host: Machine) -> None:
        self._host = host

    def clear(self) -> None:
        """End what a replay has started, and remove its files and its database."""
        self._host.try_run('systemctl stop apache2 placement-api.service; systemctl reset-failed placement-api')
        directories = '/etc/placement /var/lib/placement /var/log/placement /var/log/kolla'
        self._host.run(f'rm -rf {directories} /etc/apache2/conf-enabled/placement.conf /run/uwsgi')
        self._host.run(f'mkdir -p {directories} /var/log/kolla/placement /run/uwsgi')
        self._host.run('chown placement: /var/lib/placement /var/log/placement /var/log/kolla/placement')
        self._host.run('chmod 1777 /run/uwsgi')
        self.replace_database()

    def write_files(self, tool: str) -> None:
        """Write the files of a tool, which are below its directory as they are below / on a host."""
        tree = TOOLS / tool
        self._host.run(f'cp --recursive --no-preserve=ownership {tree}/. /')
        self._host.run('chown -R root:placement /etc/placement && chmod -R u=rwX,g=rX,o= /etc/placement')
        self._host.run('chmod 755 /etc/placement')

    def append(self, path: str, text: str) -> None:
        """Append lines to a file, or create it."""
        file = self._host.path(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open('a') as output:
            output.write(text)
        self._host.run(f'chgrp placement {path}')

    def run(self, command: str, code: int = 0, user: str = 'placement') -> str:
        """Run a command line as a user, which has to end with ``code``. Return its output and its errors."""
        ended = self._host.try_run(f'cd / && runuser -u {user} -- env {command}')
        assert ended.returncode == code, f'{command}\nended with {ended.returncode}:\n{ended.stdout}{ended.stderr}'
        return ended.stdout + ended.stderr

    def run_as_root(self, line: str) -> str:
        """Run a line of shell as root, which has to succeed, and return its output."""
        return self._host.run(line)

    def read(self, path: str) -> str:
        """Return the contents of a file."""
        return self._host.path(path).read_text()

    # The database -------------------------------------------------------------------------------------------

    def replace_database(self, *, legacy: bool = False) -> None:
        """Drop the database, and create an empty one or that of another Placement service."""
        statements = 'DROP DATABASE IF EXISTS placement; CREATE DATABASE placement CHARACTER SET utf8mb4'
        self._host.run(f'mariadb -S /run/db.sock -e "{statements}"')
        if legacy:
            self._host.inside(legacy_database.build, _DATABASE)

    def tables(self) -> dict[str, list[str]]:
        """Return the rows of each table, by its name."""
        return self._host.inside(corruption.contents, _DATABASE)

    @contextlib.contextmanager
    def connected(self) -> Any:
        """A connection to the database, like that of a service which was not stopped."""
        engine = sa.create_engine(_DATABASE, poolclass=sa.NullPool)
        connection = self._host.inside(engine.connect)
        yield
        self._host.inside(connection.close)

    # The service ----------------------------------------------------------------------------------------------

    def start(self, command: str, user: str = 'placement') -> None:
        """Start a server as the unit placement-api."""
        options = f'--property=TimeoutStopSec=5 --property=KillMode=mixed --uid={user} --setenv=VIRTUAL_ENV={VENV}'
        self._host.run(f'systemd-run --unit=placement-api {options} {command}')

    def stop(self) -> None:
        """Stop Apache and the unit placement-api."""
        self._host.try_run('systemctl stop apache2 placement-api.service; systemctl reset-failed placement-api')

    def request(self, method: str, url: str, **options: Any) -> httpx.Response:
        """Send a request from the machine, with a token unless ``headers`` are given."""
        options = {'headers': TOKEN, 'timeout': services.START_SECONDS, **options}
        return self._host.inside(functools.partial(httpx.request, method, url, **options))

    def wait_for(self, url: str) -> None:
        """Wait until the probe of the tools, ``GET /`` without a token, succeeds."""

        def answers() -> bool:
            if self._host.try_run('systemctl is-failed --quiet placement-api').returncode == 0:
                pytest.fail(self.logs())
            return self._host.try_run(f'curl --silent --fail {url}/').returncode == 0

        wait_until(answers, self.logs)

    def logs(self) -> str:
        """Return the ends of the logs of the server."""
        files = '/var/log/apache2/*.log /var/log/kolla/placement/* /var/log/placement/*'
        return self._host.try_run(f'journalctl --no-pager --lines=40; tail -n 40 {files}').stdout

    def check(self, url: str) -> str:
        """Check that the service requires a token, knows its address, and creates and claims. Return the consumer."""
        (version,) = self.request('GET', f'{url}/', headers={}).json()['versions']
        assert version['max_version'] == NEWEST_MICROVERSION
        assert self.request('GET', f'{url}/resource_providers', headers={}).status_code == 401
        assert self.request('GET', f'{url}/resource_providers').status_code == 200
        body: dict[str, Any] = {'name': str(uuid.uuid4())}
        created = self.request('POST', f'{url}/resource_providers', json=body)
        assert created.status_code == 200, created.text
        provider = created.json()['uuid']
        assert created.headers['location'] == f'{url}/resource_providers/{provider}'
        body = {'resource_provider_generation': 0, 'inventories': {'VCPU': {'total': 4}}}
        replaced = self.request('PUT', f'{url}/resource_providers/{provider}/inventories', json=body)
        assert replaced.status_code == 200, replaced.text
        consumer = str(uuid.uuid4())
        body = {
            'allocations': {provider: {'resources': {'VCPU': 3}}},
            'project_id': 'p',
            'user_id': 'u',
            'consumer_generation': None,
        }
        assert self.request('PUT', f'{url}/allocations/{consumer}', json=body).status_code == 204
        refused = self.request('PUT', f'{url}/allocations/{uuid.uuid4()}', json=body)
        assert refused.status_code == 409, refused.text
        return consumer


def results(output: str) -> dict[str, int]:
    """Return the result of each check in the output of ``placement-status upgrade check --json``.

    On standard error, warnings of deprecated options may follow.
    """
    content, _end = json.JSONDecoder().raw_decode(output)
    return {check['check']: check['result'] for check in content['checks']}
