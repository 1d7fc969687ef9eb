"""A database, or a Keystone, that accepts connections and does not answer: health checks, metrics and page do."""

from __future__ import annotations

import contextlib
import pathlib
import re
import select
import socket
from collections.abc import Iterator, Sequence
from concurrent import futures

import sqlalchemy as sa

from tests.integration import services, tcp_proxy
from tests.support import databases, servers
from tests.support.waiting import wait_until

#: Longer than ``services.fetch`` waits, so no answer waited for the backend.
BACKEND_TIMEOUT_SECONDS = 300
CLIENTS = 6
WORKERS, THREADS, REQUESTS = 2, 4, 30
ENVIRONMENT = {
    'OS_HEALTHCHECK__PATH': '/healthcheck',
    'OS_METRICS__PAGE': 'true',
    'OS_PLACEMENT_DATABASE__SOCKET_TIMEOUT': str(BACKEND_TIMEOUT_SECONDS),
}
WARNING = 'WARNING placement.serving.threads [-] No thread has become free for '
DATABASE_SILENT = 'The database has not answered for '


def _get(url: str) -> tuple[int, str]:
    """Return the status and the body of a response."""
    response = services.fetch('GET', url)
    return response.status_code, response.text


def _get_concurrently(url: str) -> list[tuple[int, str]]:
    """Send the request from several clients at the same time, and return their responses."""
    with futures.ThreadPoolExecutor(CLIENTS) as executor:
        return list(executor.map(_get, [url] * CLIENTS))


def _scrape(server: servers.Server, name: str) -> float:
    """The value of a metric without labels."""
    status, text = _get(server.metrics_url)
    assert status == 200, text
    (value,) = re.findall(f'^{name} (.*)$', text, re.MULTILINE)
    return float(value)


@contextlib.contextmanager
def _in_flight(server: servers.Server) -> Iterator[Sequence[socket.socket]]:
    """The connections of requests that occupy every thread of the server, and more that wait for one."""
    port = int(server.url.rpartition(':')[2])
    with contextlib.ExitStack() as stack:
        connections: list[socket.socket] = []

        def are_all_busy() -> bool:
            # Of the first ones, all may have come to one worker.
            for _ in range(1 if connections else REQUESTS):
                connection = stack.enter_context(socket.create_connection(('127.0.0.1', port)))
                connection.sendall(b'GET /resource_providers HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n\r\n')
                connections.append(connection)
            # A worker warns only if a request waits for its threads, not if it has just as many as threads.
            are_warned = server.log.read_text().count(WARNING) == WORKERS
            return are_warned and _scrape(server, 'placement_threads_busy') == WORKERS * THREADS

        wait_until(are_all_busy, 'the threads are not all busy')
        yield connections


def _launch(url: str, directory: pathlib.Path, **variables: str) -> contextlib.AbstractContextManager[servers.Server]:
    return servers.serving(url, directory, workers=WORKERS, threads=THREADS, environment=ENVIRONMENT | variables)


@databases.ON_EACH
def test_a_silent_database(database: sa.URL, tmp_path: pathlib.Path) -> None:
    with tcp_proxy.before(database) as (proxy, through):
        with contextlib.ExitStack() as stack:
            patient = through.update_query_dict({'connect_timeout': str(BACKEND_TIMEOUT_SECONDS)})
            server = stack.enter_context(_launch(patient.render_as_string(hide_password=False), tmp_path))
            stack.callback(proxy.end_silence)
            assert _get_concurrently(f'{server.url}/healthcheck/ready') == [(200, 'OK\n')] * CLIENTS
            proxy.is_silent = True
            connections = stack.enter_context(_in_flight(server))
            assert _get_concurrently(f'{server.url}/healthcheck') == [(200, 'OK\n')] * CLIENTS
            exporter = server.metrics_url.removesuffix('/metrics')
            assert _get_concurrently(f'{exporter}/healthcheck') == [(200, 'OK\n')] * CLIENTS
            for address in (server.url, exporter):
                for status, text in _get_concurrently(f'{address}/healthcheck/ready'):
                    assert status == 503
                    assert text.startswith((DATABASE_SILENT, 'No thread'))
            for status, text in _get_concurrently(f'{exporter}/page/trees'):
                assert status == 503
                assert 'This page waits for the database' in text
            assert _scrape(server, 'placement_database_up') == 0
            # All of this was answered while no request was.
            assert not select.select(connections, [], [], 0)[0]
        # One of each worker and of the exporter; one that is stuck does not ask the database.
        log = server.log.read_text()
        assert 1 <= log.count(DATABASE_SILENT) <= WORKERS + 1
        assert 'TimeoutError' not in log


def test_a_silent_keystone(tmp_path: pathlib.Path) -> None:
    with socket.create_server(('127.0.0.1', 0), backlog=100) as keystone, contextlib.ExitStack() as stack:
        address = f'http://127.0.0.1:{keystone.getsockname()[1]}/v3'
        (tmp_path / 'placement.conf').write_text(
            f'[keystone_authtoken]\nauth_type = password\nauth_url = {address}\nusername = x\npassword = x\n'
            f'http_connect_timeout = {BACKEND_TIMEOUT_SECONDS}\n'
        )
        server = stack.enter_context(_launch(f'sqlite:///{tmp_path}/db', tmp_path, OS_API__AUTH_STRATEGY='keystone'))
        stack.callback(keystone.close)
        connections = stack.enter_context(_in_flight(server))
        assert _get_concurrently(f'{server.url}/healthcheck') == [(200, 'OK\n')] * CLIENTS
        for status, text in _get_concurrently(f'{server.url}/healthcheck/ready'):
            assert status == 503
            assert text.startswith('No thread has become free for ')
            assert f'{THREADS} wait for Keystone' in text
        assert not select.select(connections, [], [], 0)[0]
        assert server.log.read_text().count(WARNING) == WORKERS
