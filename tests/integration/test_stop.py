"""SIGTERM: clients are rejected at once, what has connected is answered, and the service exits with 0."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import signal
import socket
import sqlite3
import uuid
from collections.abc import Callable, Iterator

import pytest

from tests.support import applications, servers
from tests.support.raw_http import ROOT, answer, request
from tests.support.servers import SECONDS, Server
from tests.support.waiting import wait_until


@contextlib.contextmanager
def _running(directory: pathlib.Path, *, workers: int, unix: bool = False) -> Iterator[Server]:
    # A reload would wait for the lock of the tests if the service synchronized the schema.
    with applications.application(directory / 'placement.sqlite'):
        pass
    settings = servers.settings(f'sqlite:///{directory}/placement.sqlite?timeout={SECONDS}', directory)
    environ = servers.clean_environ(**(settings | {'OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP': 'false'}))
    arguments = (f'--workers={workers}', '--threads=4')
    with servers.ready(servers.start_api(directory, *arguments, environ=environ, unix=unix)) as service:
        yield service


@contextlib.contextmanager
def _request_in_flight(service: Server) -> Iterator[tuple[socket.socket, Callable[[], object]]]:
    """A request that waits for a lock in the database, and a function that releases the lock."""
    database = service.log.parent / 'placement.sqlite'
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as holder:
        holder.execute('BEGIN IMMEDIATE')
        body = json.dumps({'name': str(uuid.uuid4())}).encode()
        with service.connect(request('POST', '/resource_providers', body)) as waiting:
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
    incomplete = request('POST', '/resource_providers', b'{"name": "incomplete"}')
    with (
        _running(tmp_path, workers=workers, unix=unix) as service,
        service.connect(ROOT) as idle,
        service.connect(incomplete[:-1]) as incoming,
        _request_in_flight(service) as (waiting, release),
    ):
        assert answer(idle).status == 200
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: not service.answers())
        assert _is_silent(waiting)
        release()
        incoming.sendall(incomplete[-1:])
        assert answer(incoming).status == 200
        response = answer(waiting)
        assert (response.status, response.getheader('Connection')) == (200, 'close')
        assert waiting.recv(1) == b''
        assert idle.recv(1) == b''
        assert service.process.wait(SECONDS) == 0
    assert 'Stopped without' not in service.log.read_text()


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
        assert [answer(connection).status for connection in connections] == [200] * 50
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
            assert answer(waiting).status == 200
        wait_until(lambda: len(service.workers()) == 2)
        with _request_in_flight(service) as (waiting, release):
            _reload(service)
            service.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not service.answers())
            assert _is_silent(waiting)
            release()
            assert answer(waiting).status == 200
            assert service.process.wait(SECONDS) == 0


def _reload(service: Server) -> None:
    """Reload, and wait until one old worker has ended; the other one has the request."""
    old = service.workers()
    service.process.send_signal(signal.SIGHUP)
    wait_until(lambda: service.answers() and len(set(service.workers()) & set(old)) == 1)
