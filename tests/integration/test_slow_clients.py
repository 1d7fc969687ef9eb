"""Clients that send slowly, read slowly or not at all do not delay others (placement/serving)."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Iterator

import pytest

from placement.db import tables
from tests.support import applications, servers
from tests.support.raw_http import ROOT, answer, request
from tests.support.servers import PROGRAM, SECONDS, Server
from tests.support.waiting import wait_until

#: No answer takes this number of seconds unless it waits for slow clients, whose time limit is 30 seconds.
DELAYED_SECONDS = 10
HALF_HEADER = b'GET /resource_providers HTTP/1.1\r\nHost: localhost\r\nX-Auth-'
HALF_BODY = (
    b'POST /resource_providers HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: admin\r\n'
    b'Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{"name": '
)
HALF_CHUNK = HALF_BODY.replace(b'Content-Length: 1000\r\n\r\n', b'Transfer-Encoding: chunked\r\n\r\n3E8\r\n')
TRAITS = request('GET', '/traits')


@pytest.fixture(scope='module')
def directory(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The directory of the servers' logs and database, which has enough traits for a long list."""
    directory = tmp_path_factory.mktemp('slow')
    long_names = [{'name': f'CUSTOM_{number:05}_{"X" * 240}'} for number in range(1000)]
    with applications.database(directory / 'placement.sqlite') as db:
        db.sync()
        with db.engine.begin() as connection:
            connection.execute(tables.traits.insert(), long_names)
    return directory


def _run(
    directory: pathlib.Path, *arguments: str, program: str = '', **variables: str
) -> contextlib.AbstractContextManager[Server]:
    """Run placement-api, or a program that ends as it."""
    environ = servers.clean_environ(
        **servers.settings(f'sqlite:///{directory}/placement.sqlite', directory), **variables
    )
    command = (sys.executable, '-c', program) if program else (PROGRAM,)
    return servers.ready(servers.start_api(directory, *arguments, environ=environ, command=command))


@pytest.fixture(scope='module')
def service(directory: pathlib.Path) -> Iterator[Server]:
    """A server of two workers with four threads each, and default options."""
    with _run(directory, '--workers=2', '--threads=4') as running:
        yield running


@contextlib.contextmanager
def _connected(service: Server, count: int, data: bytes = b'') -> Iterator[list[socket.socket]]:
    """Connections that have sent ``data``, and then neither send nor read."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(service.connect(data, receive_buffer=4096)) for _ in range(count)]
        # The workers have accepted all of them when a later one has been answered.
        assert service.answers('/resource_providers')
        yield connections


def _slowest(service: Server) -> float:
    """The seconds of the slowest of some requests, on new connections and on a kept one."""
    seconds = []
    with service.connect() as connection:
        for _ in range(20):
            started = time.monotonic()
            assert service.answers('/resource_providers')
            between = time.monotonic()
            connection.sendall(request('GET', '/resource_providers'))
            assert answer(connection).status == 200
            seconds += [between - started, time.monotonic() - between]
    return max(seconds)


@pytest.mark.parametrize(
    ('count', 'data'),
    # The last ones request some megabytes; several times, since the kernel buffers the first ones.
    [(60, HALF_HEADER), (60, HALF_BODY), (60, HALF_CHUNK), (1000, ROOT), (8, TRAITS * 20)],
    ids=['half headers', 'half bodies', 'half chunks', 'idle after an answer', 'not reading'],
)
def test_slow_clients_do_not_delay_others(service: Server, count: int, data: bytes) -> None:
    with _connected(service, count, data):
        assert _slowest(service) < 2 * DELAYED_SECONDS


def test_the_limits_of_the_configuration_apply(directory: pathlib.Path) -> None:
    """To incomplete requests, connections without a request, and the number of connections."""
    limits = {'REQUEST_READ_TIMEOUT': '1', 'KEEPALIVE_TIMEOUT': '1', 'MAX_CONNECTIONS': '100'}
    environment = {f'OS_SERVER__{name}': value for name, value in limits.items()}
    with _run(directory, '--workers=1', '--threads=2', **environment) as service:
        with _connected(service, 1, HALF_HEADER) as (incomplete,), _connected(service, 1) as (silent,):
            text = b''.join(iter(lambda: incomplete.recv(65536), b''))
            assert text.startswith(b'HTTP/1.1 408 ')
            assert json.loads(text.partition(b'\r\n\r\n')[2])['errors'][0]['title'] == 'Request Timeout'
            assert silent.recv(1) == b''
        service.wait_for_line('status: 408')
        with _connected(service, 200, ROOT):
            service.wait_for_line('because a limit was reached')


def test_expect_100_continue_gets_100_continue(service: Server) -> None:
    head = HALF_BODY.partition(b'\r\n\r\n')[0].replace(b'1000', b'17') + b'\r\nExpect: 100-continue\r\n\r\n'
    with service.connect(head) as connection:
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

handler.ROUTE_DECLARATIONS['/traits']['GET'] = forever
sys.exit(api.main())
"""


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT], ids=['SIGTERM', 'SIGINT'])
def test_a_stop_does_not_wait_for_endless_computations(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    options = {'OS_SERVER__GRACEFUL_TIMEOUT': '4'}
    with (
        _run(tmp_path, '--workers=2', '--threads=8', program=BUSY, **options) as service,
        contextlib.ExitStack() as stack,
    ):
        for _ in range(16):
            stack.enter_context(service.connect(TRAITS))
        # However the kernel divided the connections, one of the workers has eight of them for its eight threads.
        wait_until(lambda: service.log.read_bytes().count(b'begun') >= 8)
        service.process.send_signal(number)
        # By default it takes 30 seconds.
        assert service.process.wait(25) == 0
        with pytest.raises(ProcessLookupError):
            os.killpg(service.process.pid, 0)


FEW_FILES = """
import resource
import sys
from placement.cmd import api

resource.setrlimit(resource.RLIMIT_NOFILE, (300, 300))
sys.exit(api.main())
"""


def test_fewer_connections_are_kept_where_there_are_few_file_descriptors(tmp_path: pathlib.Path) -> None:
    # Incomplete requests would end later than anybody waits for an answer.
    options = {'OS_SERVER__REQUEST_READ_TIMEOUT': str(2 * SECONDS)}
    with _run(tmp_path, '--workers=1', program=FEW_FILES, **options) as service, contextlib.ExitStack() as stack:
        for _ in range(400):
            stack.enter_context(service.connect(HALF_HEADER))
        assert service.answers()
