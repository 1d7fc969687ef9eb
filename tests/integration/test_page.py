"""The page on each kind of database, as a command of its own, and on the listener of the metrics."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import signal
import subprocess
import sys
from typing import Any

import pytest
import sqlalchemy as sa
import webob

from placement.cache.refresh import ProviderCache
from placement.cmd import manage
from placement.db.health import TimedCheck
from placement.ops.page.application import Page
from placement.ops.page.view import Sources
from tests.integration import services
from tests.support import applications, clouds, databases, servers
from tests.support.clouds import uuid_of
from tests.support.fixtures import PointCommandsAt
from tests.support.history.client import Client

MANAGE = str(pathlib.Path(sys.executable).with_name('placement-manage'))


@databases.ON_EACH
def test_every_view_on_every_database(setting: databases.Setting, database: sa.URL) -> None:
    conf = applications.options(setting.session_url(database))
    with applications.database(conf.placement_database.connection) as db:
        db.sync()
        clouds.create_cloud(db, clouds.nested())
        page = Page(Sources(conf, db, ProviderCache(db), TimedCheck(db)))
        _open_all_views(page)
        other = sa.create_engine(database)
        before = _connections(page)
        with other.connect():
            assert _connections(page) == before + 1
        other.dispose()


def _connections(page: Page) -> int:
    """The number of connections of the account of the service, as shown by the page."""
    connections = webob.Request.blank('/health?format=json').get_response(page).json['connections']
    text = webob.Request.blank('/health').get_response(page).text
    assert 'The other connections that the account of this page sees' in text or not connections
    return sum(account['connections'] for account in connections if account['is_own'])


def _open_all_views(page: Page) -> None:

    def fetch(address: str) -> Any:
        answer = webob.Request.blank(address).get_response(page)
        assert answer.status_int == 200
        as_json = webob.Request.blank(address + ('&' if '?' in address else '?') + 'format=json').get_response(page)
        assert as_json.status_int == 200
        return as_json.json

    assert fetch('/?size=VCPU:4,DISK_GB:10')['fit_estimate']['estimate']['fit'] == 87
    assert fetch('/trees')['trees'][0]['name'] == 'compute-0'
    tree = fetch(f'/trees/{uuid_of("compute-0")}')
    assert [provider['name'] for provider in tree['providers']][:2] == ['compute-0', 'compute-0-numa0']
    assert (len(tree['consumers']), tree['sharing_providers'][0]['name']) == (7, 'store')
    consumer = fetch(f'/consumers/{uuid_of("machine-3")}')
    assert consumer['totals'] == {'SRIOV_NET_VF': 2, 'VCPU': 16, 'MEMORY_MB': 16256, 'DISK_GB': 80}
    assert fetch('/consumers?q=project-blue')['total'] == 17
    assert [row['uuid'] for row in fetch(f'/consumers?q={uuid_of("machine-3")}')['consumers']] == [uuid_of('machine-3')]
    assert fetch('/consumers?q=project')['total'] == 0
    assert fetch('/why?query=resources%3DVCPU:99')['explanation']['candidates'] == 0
    health = fetch('/health?audit=all')
    assert {check['found'] for check in health['audit']} == {0}


@pytest.fixture
def environ(tmp_path: pathlib.Path) -> dict[str, str]:
    """The environment of commands that use a small cloud in an SQLite file."""
    connection = f'sqlite:///{tmp_path}/placement.sqlite'
    with applications.database(connection) as db:
        db.sync()
        clouds.create_cloud(db, clouds.nested())
    return servers.clean_environ(OS_PLACEMENT_CONFIG_DIR=str(tmp_path), OS_PLACEMENT_DATABASE__CONNECTION=connection)


def test_the_command_follows_what_the_service_writes_until_it_is_interrupted(
    environ: dict[str, str], tmp_path: pathlib.Path
) -> None:
    address = f'127.0.0.1:{servers.free_port()}'
    log = tmp_path / 'page.log'
    with (
        servers.running([MANAGE, 'page', '--bind', address], f'http://{address}/', log, environ) as page,
        servers.serving(environ['OS_PLACEMENT_DATABASE__CONNECTION'], tmp_path, metrics=False) as service,
    ):
        assert services.fetch('GET', f'http://{address}/?format=json').json()['providers'] == 21
        with contextlib.closing(Client([service.url], token='admin')) as client:
            client.demand('POST', '/resource_providers', {'name': 'newcomer'})
        assert services.fetch('GET', f'http://{address}/trees?q=newcomer&format=json').json()['total'] == 1
        assert services.fetch('GET', f'http://{address}/', headers={'Host': 'rebound.example'}).status_code == 421
        other = subprocess.run(page.process.args, env=environ, capture_output=True, text=True, check=False)
        assert (other.returncode, other.stdout, other.stderr.count('\n')) == (manage.FAILED, '', 1)
        assert f'Cannot listen on {address}: Address already in use' in other.stderr
        page.process.send_signal(signal.SIGINT)
        assert page.process.wait(60) == 0
    assert log.read_text() == f'The page is at http://{address}/ until Ctrl-C.\n'


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        (
            ['--bind', '0.0.0.0:80'],
            'Other machines can reach 0.0.0.0, and the page has no authentication. Pass --allow-remote',
        ),
        (['--bind', 'db.example.org:80'], 'Other machines can reach db.example.org'),
        (['--bind', '8779'], "--bind takes HOST:PORT or [IPV6]:PORT, not '8779'."),
        (['--bind', '127.0.0.1:99999'], '--bind takes HOST:PORT'),
    ],
)
def test_addresses_that_are_public_or_malformed_are_rejected(
    environ: dict[str, str],
    point_commands_at: PointCommandsAt,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    message: str,
) -> None:
    point_commands_at(environ['OS_PLACEMENT_DATABASE__CONNECTION'])
    assert manage.main(['page', *options]) == manage.FAILED
    printed = capsys.readouterr()
    assert message in printed.err
    assert (printed.out, printed.err.count('\n')) == ('', 1)


def test_the_listener_of_the_metrics_can_serve_the_page(tmp_path: pathlib.Path) -> None:
    connection = f'sqlite:///{tmp_path}/placement.sqlite'
    with servers.serving(connection, tmp_path, environment={'OS_METRICS__PAGE': 'true'}) as server:
        fetch = functools.partial(services.fetch, 'GET')
        page = server.metrics_url.replace('/metrics', '/page')
        assert 'href="/page/trees"' in fetch(page).raise_for_status().text
        for _ in range(3):
            fetch(f'{server.url}/resource_providers', headers={'X-Auth-Token': 'admin'}).raise_for_status()
        health = fetch(f'{page}/health?format=json').raise_for_status().json()
        routes = {(route['method'], route['route']): route['requests'] for route in health['activity']['routes']}
        assert routes['GET', '/resource_providers'] == 3
        assert health['cache']['service_checked_seconds_ago'] < 60
        assert 'since the start of the service' in fetch(f'{page}/health').text.lower()
        assert fetch(f'{page}s').status_code == 404
        assert fetch(server.metrics_url).status_code == 200
