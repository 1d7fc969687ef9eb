"""placement.wsgi:application under uWSGI, with the sample ini (etc/uwsgi/placement.ini)."""

from __future__ import annotations

import pathlib
import uuid
from collections.abc import Iterator

import httpx
import pytest

from tests.support.operations import load, placement_server, services

HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}


@pytest.fixture(scope='module')
def home(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory with the configuration, the ini file and the log of uWSGI."""
    return placement_server.write_configuration(tmp_path_factory.mktemp('uwsgi'))


@pytest.fixture(scope='module')
def url(home: pathlib.Path) -> Iterator[str]:
    """The URL of the mount point."""
    programs = services.environment('uwsgi', ('pyuwsgi',))
    port = services.free_port()
    # uWSGI has a virtual environment of its own; the application is in that of the tests.
    environ = placement_server.environ(home, PYTHONPATH=services.import_path())
    command = [str(programs / 'uwsgi'), '--ini', str(placement_server.uwsgi_ini(home, port))]
    with services.running(command, f'http://127.0.0.1:{port}/placement', home / 'uwsgi.log', environ):
        yield f'http://127.0.0.1:{port}/placement'


@pytest.mark.parametrize('path', ['', '/'])
def test_mount_point_answers_with_and_without_slash(url: str, path: str) -> None:
    assert httpx.get(f'{url}{path}').json()['versions'][0]['id'] == 'v1.0'


def test_requests_succeed_and_links_have_the_prefix(url: str) -> None:
    created = httpx.post(f'{url}/resource_providers', json={'name': str(uuid.uuid4())}, headers=HEADERS)
    assert created.status_code == 200, created.text
    place = f'{url}/resource_providers/{created.json()["uuid"]}'
    assert created.headers['location'] == place
    assert httpx.get(place, headers=HEADERS).json() == created.json()
    assert httpx.delete(place, headers=HEADERS).status_code == 204


def test_long_queries_are_answered(url: str) -> None:
    aggregates = ','.join(str(uuid.uuid4()) for _ in range(400))
    query = {'resources': 'VCPU:1', 'member_of': f'in:{aggregates}'}
    assert httpx.get(f'{url}/allocation_candidates', params=query, headers=HEADERS).status_code == 200


def test_replacing_workers_one_by_one_loses_no_request(url: str, home: pathlib.Path) -> None:
    log = home / 'uwsgi.log'
    with load.applied(url, keep_alive=False) as requests:
        requests.wait_for_more(40)
        (home / 'uwsgi.fifo').write_text('c')
        services.wait_until(lambda: 'chain reloading complete' in log.read_text(), 'the workers were not replaced')
        requests.wait_for_more(40)
        requests.stop()
        load.assert_nothing_lost(url, requests)


@pytest.mark.usefixtures('url')
def test_the_log_of_the_start_has_no_warnings(home: pathlib.Path) -> None:
    log = (home / 'uwsgi.log').read_text()
    assert 'no app loaded' not in log
    assert 'Warning' not in log
    assert 'Traceback' not in log
