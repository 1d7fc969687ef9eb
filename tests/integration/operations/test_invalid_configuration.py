"""What another server than ``placement-api`` responds when the configuration is invalid."""

from __future__ import annotations

import pathlib

import httpx

from tests.integration import services
from tests.support import servers
from tests.support.waiting import wait_until


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
