"""Clients that send slowly, read slowly or not at all do not delay others (placement/serving)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from placement.db import tables
from tests.support import applications, servers
from tests.support.operations import services
from tests.support.waiting import wait_until

SECONDS = 60
#: No answer takes this number of seconds unless it waits for slow clients, whose time limit is 30 seconds.
DELAYED_SECONDS = 10
HEADERS = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
HALF_HEADER = b'GET /resource_providers HTTP/1.1\r\nHost: localhost\r\nX-Auth-'
HALF_BODY = (
    b'POST /resource_providers HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: admin\r\n'
    b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"name": '
)
HALF_CHUNK = HALF_BODY.replace(b'Content-Length: 1000\r\n\r\n', b'Transfer-Encoding: chunked\r\n\r\n3E8\r\n')
TRAITS = b'GET /traits HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\nOpenStack-API-Version: placement 1.29\r\n\r\n'
WHOLE = b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the servers' logs and database, which has so many traits that their list is long."""
    directory = tmp_path_factory.mktemp('slow')
    long_names = [{'name': f'CUSTOM_{number:05}_{"X" * 240}'} for number in range(1000)]
    with applications.database(directory / 'placement.sqlite') as db:
        db.sync()
        with db.engine.begin() as connection:
            connection.execute(tables.traits.insert(), long_names)
    return directory


@pytest.fixture(scope='module')
def server(directory: pathlib.Path) -> Iterator[servers.Server]:
    """A server of two workers with four threads each, and default options."""
    url = f'sqlite:///{directory}/placement.sqlite'
    with servers.serving(url, directory, threads=4, metrics=False) as running:
        yield running


def _address(server: servers.Server) -> tuple[str, int]:
    host, _, port = server.url.removeprefix('http://').partition(':')
    return host, int(port)


@contextlib.contextmanager
def _connected(server: servers.Server, count: int, data: bytes = b'') -> Iterator[list[socket.socket]]:
    """Connections that have sent ``data`` and then send nothing more."""
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.create_connection(_address(server), timeout=SECONDS))
            connection.sendall(data)
            connections.append(connection)
        # The workers have accepted all of them when a later one has been answered.
        _send(server)
        yield connections


def _send(server: servers.Server, connection: http.client.HTTPConnection | None = None) -> float:
    """Request the list of providers; returns the seconds it took."""
    started = time.monotonic()
    client = connection or http.client.HTTPConnection(*_address(server), timeout=SECONDS)
    client.request('GET', '/resource_providers', headers=HEADERS)
    answer = client.getresponse()
    answer.read()
    assert answer.status == 200
    if connection is None:
        client.close()
    return time.monotonic() - started


def _slowest(server: servers.Server) -> float:
    """The seconds of the slowest of some requests, on new connections and on a kept one."""
    connection = http.client.HTTPConnection(*_address(server), timeout=SECONDS)
    with contextlib.closing(connection):
        return max([*(_send(server) for _ in range(20)), *(_send(server, connection) for _ in range(20))])


@pytest.mark.parametrize(
    ('count', 'data'),
    [(60, HALF_HEADER), (60, HALF_BODY), (60, HALF_CHUNK), (100, b''), (1000, WHOLE)],
    ids=['half headers', 'half bodies', 'half chunks', 'silence', 'idle after an answer'],
)
def test_slow_clients_do_not_delay_others(server: servers.Server, count: int, data: bytes) -> None:
    with _connected(server, count, data):
        assert _slowest(server) < DELAYED_SECONDS


def test_more_connections_than_the_bound_do_not_delay_others(tmp_path: pathlib.Path) -> None:
    few = {'OS_SERVER__MAX_CONNECTIONS': '100'}
    with (
        servers.serving(f'sqlite:///{tmp_path}/db.sqlite', tmp_path, metrics=False, environment=few) as server,
        _connected(server, 300, HALF_HEADER) as connections,
    ):
        assert _slowest(server) < DELAYED_SECONDS
        # Two workers keep at most 100 each, and do not close the newest one.
        wait_until(lambda: sum(map(_is_closed, connections)) >= 100)
        assert not _is_closed(connections[-1])
        _wait_for(server, 'because a limit was reached')


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b''
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _wait_for(server: servers.Server, words: str) -> None:
    wait_until(lambda: words in server.log.read_text(), server.tail)


@pytest.fixture(scope='module')
def hasty(directory: pathlib.Path) -> Iterator[servers.Server]:
    """A server with time limits of one second for clients, on the database of the other one."""
    short = {'OS_SERVER__REQUEST_READ_TIMEOUT': '1', 'OS_SERVER__KEEPALIVE_TIMEOUT': '1'}
    url = f'sqlite:///{directory}/placement.sqlite'
    with servers.serving(url, directory, workers=1, threads=2, metrics=False, environment=short) as running:
        yield running


@pytest.mark.parametrize('data', [HALF_HEADER, HALF_BODY, HALF_CHUNK], ids=['header', 'body', 'chunk'])
def test_incomplete_requests_get_408_in_time_even_if_they_send_bytes(hasty: servers.Server, data: bytes) -> None:
    with socket.create_connection(_address(hasty), timeout=SECONDS) as connection:
        started = time.monotonic()
        connection.sendall(data)
        connection.settimeout(0.2)
        answer = b''
        while not answer:
            with contextlib.suppress(TimeoutError):
                answer = connection.recv(65536)
                break
            connection.sendall(b'x')
        connection.settimeout(SECONDS)
        answer += b''.join(iter(lambda: connection.recv(65536), b''))
        assert 0.8 < time.monotonic() - started < 20
        assert answer.startswith(b'HTTP/1.1 408 ')
        (error,) = json.loads(answer.partition(b'\r\n\r\n')[2])['errors']
        assert error['title'] == 'Request Timeout'
    _wait_for(hasty, 'status: 408')


@pytest.mark.parametrize('data', [b'', WHOLE], ids=['silent', 'idle'])
def test_connections_without_a_request_are_closed_in_time(hasty: servers.Server, data: bytes) -> None:
    with socket.create_connection(_address(hasty), timeout=SECONDS) as connection:
        connection.sendall(data)
        started = time.monotonic()
        while connection.recv(65536):
            pass
        assert 0.8 < time.monotonic() - started < 20


@contextlib.contextmanager
def _lazy(server: servers.Server) -> Iterator[list[socket.socket]]:
    """More clients than threads, which request some megabytes and do not read them."""
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(8):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(_address(server))
            # Several requests each, since the kernel buffers the first megabytes.
            connection.sendall(TRAITS * 20)
            connections.append(connection)
        yield connections


def test_clients_that_do_not_read_hold_no_thread(server: servers.Server) -> None:
    connection = http.client.HTTPConnection(*_address(server), timeout=SECONDS)
    with contextlib.closing(connection):
        connection.request('GET', '/traits', headers=HEADERS)
        assert len(connection.getresponse().read()) > 250_000
    with _lazy(server):
        assert _slowest(server) < 2 * DELAYED_SECONDS


def test_clients_that_do_not_read_are_disconnected(hasty: servers.Server) -> None:
    with _lazy(hasty) as connections:
        for connection in connections:
            wait_until(lambda connection=connection: _is_rejected(connection))  # type: ignore[misc]


def _is_rejected(connection: socket.socket) -> bool:
    try:
        connection.sendall(b'x')
    except ConnectionError:
        return True
    return False


def test_pipelined_requests_are_answered_in_order(server: servers.Server) -> None:
    request = 'GET /{} HTTP/1.1\r\nHost: x\r\nX-Auth-Token: admin\r\n{}\r\n'
    with socket.create_connection(_address(server), timeout=SECONDS) as connection:
        names = ['', 'a', 'resource_providers', 'b', '']
        closes = ['', '', '', '', 'Connection: close\r\n']
        connection.sendall(''.join(map(request.format, names, closes)).encode())
        text = b''.join(iter(lambda: connection.recv(65536), b''))
    assert re.findall(rb'HTTP/1.1 (\d+) ', text) == [b'200', b'404', b'200', b'404', b'200']


def test_expect_100_continue_gets_100_continue(server: servers.Server) -> None:
    head = HALF_BODY.partition(b'\r\n\r\n')[0].replace(b'1000', b'17') + b'\r\nExpect: 100-continue\r\n\r\n'
    with socket.create_connection(_address(server), timeout=SECONDS) as connection:
        connection.sendall(head)
        assert connection.recv(65536) == b'HTTP/1.1 100 Continue\r\n\r\n'
        connection.sendall(b'{"name": "asked"}')
        assert connection.recv(65536).startswith(b'HTTP/1.1 201 ')


# Stopping while requests are computed -----------------------------------------------------------------------------

BUSY = """
import sys
from placement import handler
from placement.cmd import api
from placement.web.operation import operation

@operation(responses={})
def forever(req, context):
    print('begun', flush=True)
    while True:
        pass

handler.ROUTE_DECLARATIONS['/']['GET'] = forever
sys.exit(api.main())
"""


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT], ids=['SIGTERM', 'SIGINT'])
def test_a_stop_does_not_wait_for_endless_computations(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    with _running(tmp_path, BUSY, '--workers=2', '--threads=8') as (process, connect), contextlib.ExitStack() as stack:
        for _ in range(16):
            stack.enter_context(connect(WHOLE))
        # However the kernel divided the connections, one of the workers has eight of them for its eight threads.
        wait_until(lambda: (tmp_path / 'log').read_bytes().count(b'begun') >= 8)
        started = time.monotonic()
        process.send_signal(number)
        assert process.wait(SECONDS) == 0
        assert time.monotonic() - started < 20
        with pytest.raises(ProcessLookupError):
            os.killpg(process.pid, 0)


@contextlib.contextmanager
def _running(
    directory: pathlib.Path, program: str, *options: str
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[bytes], socket.socket]]]:
    """Run a program that ends as placement-api: its process, and a function that sends data on a new connection."""
    port = servers.free_port()
    command = [sys.executable, '-c', program, '--dev', '--bind', f'127.0.0.1:{port}', *options]
    environ = services.clean_environ(OS_SERVER__GRACEFUL_TIMEOUT='4')

    def connect(data: bytes) -> socket.socket:
        connection = socket.create_connection(('127.0.0.1', port), timeout=SECONDS / 2)
        connection.sendall(data)
        return connection

    with services.running(command, f'http://127.0.0.1:{port}/traits', directory / 'log', environ) as process:
        yield process, connect


FEW_FILES = """
import resource
import sys
from placement.cmd import api

resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
sys.exit(api.main())
"""


def test_fewer_connections_are_kept_where_there_are_few_file_descriptors(tmp_path: pathlib.Path) -> None:
    with _running(tmp_path, FEW_FILES, '--workers=1') as (_, connect), contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(connect(HALF_HEADER))
        # Its time limit is less than the time after which incomplete requests would end.
        last = stack.enter_context(connect(WHOLE))
        assert last.recv(100).startswith(b'HTTP/1.1 200 ')
