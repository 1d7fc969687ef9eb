"""A worker process as gunicorn starts it, whose loop the test runs step by step."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import threading
import types
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from gunicorn.config import Config
from oslo_config import cfg

from placement.db.api import Database
from placement.serving.channel import ConnectionTable
from placement.serving.worker import WaitressWorker
from tests.support.waiting import wait_until

SECONDS = 60
REQUEST = b'GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'


class Application:
    """Answers when it is told to."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self.begun, self.released = threading.Event(), threading.Event()

    def __call__(self, _environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        self.begun.set()
        assert self.released.wait(SECONDS)
        start_response('204 No Content', [])
        return []


@pytest.fixture
def application(db: Database) -> Application:
    """An application that answers when it is told to."""
    return Application(db)


@pytest.fixture
def worker(application: Application, conf: cfg.ConfigOpts) -> Iterator[WaitressWorker]:
    """A worker with one thread that has started."""
    settings = Config()
    settings.set('threads', 1)
    connections = ConnectionTable(100, SECONDS, SECONDS)
    server = types.SimpleNamespace(conf=conf, stopping=bytearray(1))
    interval, level = sys.getswitchinterval(), logging.getLogger('waitress.queue').level
    with socket.create_server(('127.0.0.1', 0)) as listener:
        worker = WaitressWorker(
            1, os.getppid(), [types.SimpleNamespace(sock=listener)], server, SECONDS, settings, None
        )
        worker.wsgi, worker.PIPE, worker._connections = application, os.pipe(), connections
        worker._start()
        yield worker
        application.released.set()
        worker._dispatcher.shutdown()
        connections.sockets.close()
        os.close(worker.PIPE[1])
        worker.tmp.close()
    sys.setswitchinterval(interval)
    logging.getLogger('waitress.queue').setLevel(level)


def test_a_busy_worker_leaves_connections_to_others_first(worker: WaitressWorker, application: Application) -> None:
    address = worker.sockets[0].sock.getsockname()
    with contextlib.ExitStack() as stack:
        first = stack.enter_context(socket.create_connection(address, timeout=SECONDS))
        first.sendall(REQUEST)
        while not application.begun.is_set():
            worker._run_once()
        if worker._paused:
            worker._run_once()
        second = stack.enter_context(socket.create_connection(address, timeout=SECONDS))
        second.sendall(REQUEST)
        worker._run_once()
        assert len(worker._connections.channels) == 1
        # No other worker has accepted it meanwhile.
        worker._run_once()
        assert len(worker._connections.channels) == 2
        application.released.set()
        while worker._connections.channels:
            worker._run_once()
        assert all(connection.recv(100).startswith(b'HTTP/1.1 204') for connection in (first, second))


def test_a_worker_that_loads_for_a_long_time_notifies_the_master(
    worker: WaitressWorker, application: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('placement.serving.worker._LOOP_INTERVAL_SECONDS', 0.01)

    def load() -> Application:
        first = worker.tmp.last_update()
        wait_until(lambda: worker.tmp.last_update() != first)
        return application

    worker.app.wsgi, worker.wsgi = load, None
    worker.load_wsgi()
    assert worker.wsgi is application
    for thread in threading.enumerate():
        if thread.name == 'notify':
            thread.join(SECONDS)
            assert not thread.is_alive()
