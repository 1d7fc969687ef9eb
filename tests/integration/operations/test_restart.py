"""Reload and restart under load: no request is lost (issue 5; doc/deployment.md says how)."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import sys

import pytest

from tests.integration.operations import load
from tests.support import servers
from tests.support.waiting import wait_until

ENOUGH = 40
WORKERS = 2
#: Replaces itself by the program in its arguments, with a socket as file descriptor 3, as systemd passes it.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.close(int(sys.argv[1]))
os.environ |= {'LISTEN_FDS': '1', 'LISTEN_PID': str(os.getpid())}
os.execv(sys.argv[2], sys.argv[2:])
"""


def _serving(directory: pathlib.Path) -> contextlib.AbstractContextManager[servers.Server]:
    return servers.serving(f'sqlite:///{directory}/placement.sqlite', directory, workers=WORKERS, metrics=False)


def _serving_on(listener: socket.socket, directory: pathlib.Path) -> contextlib.AbstractContextManager[servers.Server]:
    """Run the service on a listening socket."""
    host, port = listener.getsockname()
    program = [servers.PROGRAM, f'--workers={WORKERS}']
    command = [sys.executable, '-c', HAND_OVER, str(listener.fileno()), *program]
    environ = servers.clean_environ(**servers.settings(f'sqlite:///{directory}/placement.sqlite', directory))
    log = directory / 'placement-api.log'
    return servers.ready(servers.start(command, f'http://{host}:{port}', log, environ, (listener.fileno(),)))


def _reload(server: servers.Server) -> None:
    """Replace the workers, and wait until the old ones have ended."""
    ended = server.log.read_text().count('Worker exiting')
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: server.log.read_text().count('Worker exiting') == ended + WORKERS, server.tail)


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_reload_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    with _serving(tmp_path) as server, load.Load(server.url, keep_alive) as requests:
        for _ in range(3):
            requests.wait_for_more(ENOUGH)
            _reload(server)
            requests.wait_for_more(ENOUGH)
        requests.stop()
        load.assert_nothing_lost(server.url, requests)


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_restart_with_a_socket_that_stays_open_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    """As with placement-api.socket: the socket stays open during the restart, and requests wait in its queue."""
    with socket.create_server(('127.0.0.1', 0), backlog=128) as listener, contextlib.ExitStack() as first_life:
        url = f'http://127.0.0.1:{listener.getsockname()[1]}'
        first_life.enter_context(_serving_on(listener, tmp_path))
        with load.Load(url, keep_alive) as requests:
            requests.wait_for_more(ENOUGH)
            first_life.close()
            with _serving_on(listener, tmp_path):
                requests.wait_for_more(ENOUGH)
                requests.stop()
                load.assert_nothing_lost(url, requests)
