"""SIGTERM: clients are rejected at once, what has connected is answered, and the service exits with 0."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import select
import signal
import socket
import sqlite3
import stat
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support import applications, servers
from tests.support.operations import services
from tests.support.waiting import wait_until

PROGRAM = str(pathlib.Path(sys.executable).with_name('placement-api'))
SECONDS = 60
ROOT = b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'


@dataclasses.dataclass
class Service:
    """A ``placement-api`` on SQLite. ``address`` is host and port, or the path of a Unix socket."""

    process: subprocess.Popen[bytes]
    address: tuple[str, int] | str
    log: pathlib.Path

    def connect(self, data: bytes = b'') -> socket.socket:
        """A new connection that has sent ``data``."""
        connection = socket.socket(socket.AF_UNIX if isinstance(self.address, str) else socket.AF_INET)
        connection.settimeout(SECONDS)
        try:
            connection.connect(self.address)
        except OSError:
            connection.close()
            raise
        connection.sendall(data)
        return connection

    def answers(self) -> bool:
        """Whether a new client gets an answer; False when it cannot connect. A connection that is reset is an error."""
        try:
            connection = self.connect(ROOT)
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        with connection:
            assert _status(_answer(connection)) == 200
        return True

    def workers(self) -> list[int]:
        """The process ids of the workers."""
        return servers.children(self.process.pid)


def _answer(connection: socket.socket) -> bytes:
    """The header and the whole body of the next answer on a connection."""
    received = b''
    while b'\r\n\r\n' not in received:
        part = connection.recv(65536)
        assert part, f'closed after {received!r}'
        received += part
    head, _, body = received.partition(b'\r\n\r\n')
    (length,) = (int(line.split(b':')[1]) for line in head.split(b'\r\n') if line.lower().startswith(b'content-length'))
    while len(body) < length:
        body += connection.recv(65536)
    return head + b'\r\n\r\n' + body


def _status(answer: bytes) -> int:
    return int(answer.split(b' ', 2)[1])


@contextlib.contextmanager
def _running(directory: pathlib.Path, *, workers: int, unix: bool = False, threads: int = 4) -> Iterator[Service]:
    # A reload would wait for the lock of the tests if the service synchronized the schema.
    with applications.application(directory / 'placement.sqlite'):
        pass
    port = servers.free_port()
    address: tuple[str, int] | str = str(directory / 'api.sock') if unix else ('127.0.0.1', port)
    bind = f'unix:{address}' if unix else f'127.0.0.1:{port}'
    environ = services.clean_environ(
        OS_PLACEMENT_CONFIG_DIR=str(directory),
        OS_PLACEMENT_DATABASE__CONNECTION=f'sqlite:///{directory}/placement.sqlite?timeout={SECONDS}',
        OS_API__AUTH_STRATEGY='noauth2',
    )
    command = [PROGRAM, '--bind', bind, '--workers', str(workers), '--threads', str(threads)]
    log, uds = directory / 'log', directory / 'api.sock' if unix else None
    with services.running(command, f'http://127.0.0.1:{port}', log, environ, uds=uds) as process:
        yield Service(process, address, log)


@contextlib.contextmanager
def _request_in_flight(service: Service) -> Iterator[tuple[socket.socket, Callable[[], object]]]:
    """A request that waits for a lock in the database, and a function that releases the lock."""
    database = service.log.parent / 'placement.sqlite'
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute('BEGIN IMMEDIATE')
        body = json.dumps({'name': str(uuid.uuid4())}).encode()
        head = (
            'POST /resource_providers HTTP/1.1\r\nHost: localhost\r\nX-Auth-Token: admin\r\n'
            'OpenStack-API-Version: placement 1.29\r\nContent-Type: application/json\r\n'
            f'Content-Length: {len(body)}\r\n\r\n'
        )
        with service.connect(head.encode() + body) as waiting:
            # A worker has it once its connection has been accepted, before the one that comes later.
            assert service.answers()
            assert _is_silent(waiting)
            yield waiting, lambda: holder.execute('ROLLBACK')


def _is_silent(connection: socket.socket) -> bool:
    """Whether nothing has been received on it, not even its end."""
    return not select.select([connection], [], [], 0.2)[0]


@pytest.mark.parametrize('unix', [False, True], ids=['TCP', 'Unix socket'])
@pytest.mark.parametrize('workers', [1, 2])
def test_clients_are_rejected_while_a_request_in_flight_is_finished(
    tmp_path: pathlib.Path, workers: int, unix: bool
) -> None:
    with (
        _running(tmp_path, workers=workers, unix=unix) as service,
        service.connect(ROOT) as idle,
        _request_in_flight(service) as (waiting, release),
    ):
        assert _status(_answer(idle)) == 200
        if isinstance(service.address, str):
            assert stat.S_IMODE(pathlib.Path(service.address).stat().st_mode) == 0o660
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not service.answers())
        assert _is_silent(waiting)
        release()
        answer = _answer(waiting)
        assert _status(answer) == 200
        assert b'Connection: close' in answer
        assert waiting.recv(1) == b''
        assert idle.recv(1) == b''
        assert service.process.wait(SECONDS) == 0
    assert 'Stopped before' not in service.log.read_text()


@pytest.mark.parametrize('unix', [False, True], ids=['TCP', 'Unix socket'])
def test_who_has_connected_before_the_stop_is_answered(tmp_path: pathlib.Path, unix: bool) -> None:
    with _running(tmp_path, workers=1, unix=unix) as service, contextlib.ExitStack() as stack:
        (worker,) = service.workers()
        os.kill(worker, signal.SIGSTOP)
        wait_until(lambda: _of_process(worker, 'State').startswith('T'))
        # The kernel accepts them in its queue.
        connections = [stack.enter_context(service.connect(ROOT)) for _ in range(50)]
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: bool(int(_of_process(worker, 'ShdPnd'), 16) >> (signal.SIGTERM - 1) & 1))
        os.kill(worker, signal.SIGCONT)
        assert [_status(_answer(connection)) for connection in connections] == [200] * 50
        assert service.process.wait(SECONDS) == 0


def _of_process(pid: int, name: str) -> str:
    """A field of the status of a process: its state, or the signals that it has not handled yet."""
    lines = pathlib.Path(f'/proc/{pid}/status').read_text().splitlines()
    return dict(line.split(':\t', 1) for line in lines)[name]


def test_a_reload_rejects_nobody_and_does_not_delay_a_stop_while_a_request_in_flight_is_finished(
    tmp_path: pathlib.Path,
) -> None:
    with _running(tmp_path, workers=2) as service:
        with _request_in_flight(service) as (waiting, release):
            _reload(service)
            assert _is_silent(waiting)
            for _ in range(20):
                assert service.answers()
            release()
            assert _status(_answer(waiting)) == 200
        wait_until(lambda: len(service.workers()) == 2)
        with _request_in_flight(service) as (waiting, release):
            _reload(service)
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not service.answers())
            assert _is_silent(waiting)
            release()
            assert _status(_answer(waiting)) == 200
            assert service.process.wait(SECONDS) == 0


def _reload(service: Service) -> None:
    """Reload, and wait until one old worker has ended; the other one has the request."""
    old = service.workers()
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.answers() and len(set(service.workers()) & set(old)) == 1)
