"""A real memcached that keeps validated tokens, is stopped, and started again."""

from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import subprocess
from collections.abc import Iterator

from tests.integration import services
from tests.support import servers
from tests.support.keystone import keystone
from tests.support.waiting import wait_until

REQUESTS = 5
HEADERS = {'X-Auth-Token': 'good-admin'}


@contextlib.contextmanager
def _memcached(port: int) -> Iterator[None]:
    command = [services.program('memcached', 'memcached'), '-l', '127.0.0.1', '-p', str(port), '-u', 'nobody']
    with subprocess.Popen(command) as process:
        try:
            wait_until(lambda: _listens(port), 'memcached does not start')
            yield
        finally:
            process.terminate()


def _send_requests(server: servers.Server) -> None:
    for _ in range(REQUESTS):
        services.fetch('GET', f'{server.url}/resource_providers', headers=HEADERS).raise_for_status()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(('127.0.0.1', port)) == 0


def _not_cached(server: servers.Server) -> float:
    text = services.fetch('GET', server.metrics_url).raise_for_status().text
    (count,) = re.findall(r'^placement_tokens_not_cached_total (\S+)$', text, re.MULTILINE)
    return float(count)


def test_memcached_that_is_stopped_is_logged_and_counted(tmp_path: pathlib.Path) -> None:
    memcached = servers.free_port()
    with keystone() as identity:
        options = {
            'auth_type': 'password',
            'auth_url': f'{identity}/v3',
            'username': 'x',
            'password': 'x',
            'memcached_servers': f'127.0.0.1:{memcached}',
            'memcache_pool_dead_retry': 1,
        }
        environment = servers.variables(api={'auth_strategy': 'keystone'}, keystone_authtoken=options)
        database = f'sqlite:///{tmp_path}/placement.sqlite'
        with servers.serving(database, tmp_path, workers=1, environment=environment) as server:
            with _memcached(memcached):
                _send_requests(server)
                assert _not_cached(server) == 0
            _send_requests(server)
            assert _not_cached(server) == REQUESTS
            warning = f'WARNING placement.web.authentication [-] memcached (127.0.0.1:{memcached}) does not keep tokens'
            assert re.sub(r'\[None req-.*?\]', '[-]', server.log.read_text()).count(warning) == 1
            with _memcached(memcached):

                def is_used_again() -> bool:
                    _send_requests(server)
                    return 'memcached keeps tokens again' in server.log.read_text()

                wait_until(is_used_again, 'memcached is not used again')
