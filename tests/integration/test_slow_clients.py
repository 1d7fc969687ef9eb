"""Clients that send slowly, read slowly or not at all do not delay others (placement/serving)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import pathlib
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
    """Connections that have sent ``data``, and then neither send nor read."""
    with contextlib.ExitStack() as stack:
        connections = []
        for _ in range(count):
            connection = stack.enter_context(socket.socket())
            connection.settimeout(SECONDS)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(_address(server))
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
    # The last ones request some megabytes; several times, since the kernel buffers the first ones.
    [(60, HALF_HEADER), (60, HALF_BODY), (60, HALF_CHUNK), (1000, WHOLE), (8, TRAITS * 20)],
    ids=['half headers', 'half bodies', 'half chunks', 'idle after an answer', 'not reading'],
)
def test_slow_clients_do_not_delay_others(server: servers.Server, count: int, data: bytes) -> None:
    with _connected(server, count, data):
        assert _slowest(server) < 2 * DELAYED_SECONDS


def _wait_for(server: servers.Server, words: str) -> None:
    wait_until(lambda: words in server.log.read_text(), server.tail)


def test_the_limits_of_the_configuration_apply(directory: pathlib.Path) -> None:
    """To incomplete requests, connections without a request, and the number of connections."""
    limits = {'REQUEST_READ_TIMEOUT': '1', 'KEEPALIVE_TIMEOUT': '1', 'MAX_CONNECTIONS': '100'}
    environment = {f'OS_SERVER__{name}': value for name, value in limits.items()}
    url = f'sqlite:///{directory}/placement.sqlite'
    with servers.serving(url, directory, workers=1, threads=2, metrics=False, environment=environment) as server:
        with _connected(server, 1, HALF_HEADER) as (incomplete,), _connected(server, 1) as (silent,):
            text = b''.join(iter(lambda: incomplete.recv(65536), b''))
            assert text.startswith(b'HTTP/1.1 408 ')
            assert json.loads(text.partition(b'\r\n\r\n')[2])['errors'][0]['title'] == 'Request Timeout'
            assert silent.recv(1) == b''
        _wait_for(server, 'status: 408')
        with _connected(server, 200, WHOLE):
            _wait_for(server, 'because a limit was reached')


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
