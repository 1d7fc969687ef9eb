"""A real memcached that keeps validated tokens, is stopped, and started again."""

from __future__ import annotations

import contextlib
import pathlib
import re
import socket
import subprocess
from collections.abc import Iterator

from tests.integration import services
from tests.integration.operations import placement_server
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
            wait_until(lambda: _listens(f'127.0.0.1:{port}'), 'memcached does not start')
            yield
        finally:
            process.terminate()


def _request(url: str) -> None:
    services.fetch('GET', f'{url}/resource_providers', headers=HEADERS).raise_for_status()


def _listens(address: str) -> bool:
    host, _, port = address.partition(':')
    with socket.socket() as probe:
        return probe.connect_ex((host, int(port))) == 0


def _not_cached(exporter: str) -> float:
    wait_until(lambda: _listens(exporter), 'the exporter does not answer')
    text = services.fetch('GET', f'http://{exporter}/metrics').raise_for_status().text
    (count,) = re.findall(r'^placement_tokens_not_cached_total (\S+)$', text, re.MULTILINE)
    return float(count)


def test_memcached_that_is_stopped_is_logged_and_counted(tmp_path: pathlib.Path) -> None:
    memcached, bind = servers.free_port(), f'127.0.0.1:{servers.free_port()}'
    with keystone() as identity:
        options = {
            'auth_type': 'password',
            'auth_url': f'{identity}/v3',
            'username': 'x',
            'password': 'x',
            'memcached_servers': f'127.0.0.1:{memcached}',
            'memcache_pool_dead_retry': 1,
        }
        placement_server.write_configuration(
            tmp_path, metrics={'bind': bind}, api={'auth_strategy': 'keystone'}, keystone_authtoken=options
        )
        log = tmp_path / placement_server.LOG
        with placement_server.served(tmp_path, '--workers', '1') as (url, _):
            with _memcached(memcached):
                for _ in range(REQUESTS):
                    _request(url)
                assert _not_cached(bind) == 0
            for _ in range(REQUESTS):
                _request(url)
            assert _not_cached(bind) == REQUESTS
            warning = f'WARNING placement.web.authentication [-] memcached (127.0.0.1:{memcached}) does not keep tokens'
            assert re.sub(r'\[None req-.*?\]', '[-]', log.read_text()).count(warning) == 1
            with _memcached(memcached):

                def is_used_again() -> bool:
                    _request(url)
                    return 'memcached keeps tokens again' in log.read_text()

                wait_until(is_used_again, 'memcached is not used again')
