"""Reload and restart under load: no request is lost (issue 5; doc/deployment.md says how)."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import socket
import subprocess

import pytest

from tests.integration.operations import load, placement_server
from tests.support.waiting import wait_until

ENOUGH = 40
WORKERS = 2


def _reload(directory: pathlib.Path, process: subprocess.Popen[bytes]) -> None:
    """Replace the workers, and wait until the old ones have ended."""
    log = directory / placement_server.LOG
    ended = log.read_text().count('Worker exiting')
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: log.read_text().count('Worker exiting') == ended + WORKERS, 'the old workers did not end')


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_reload_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    placement_server.write_configuration(tmp_path)
    with (
        placement_server.served(tmp_path, f'--workers={WORKERS}') as (url, process),
        load.Load(url, keep_alive) as requests,
    ):
        for _ in range(3):
            requests.wait_for_more(ENOUGH)
            _reload(tmp_path, process)
            requests.wait_for_more(ENOUGH)
        requests.stop()
        load.assert_nothing_lost(url, requests)


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_restart_with_a_socket_that_stays_open_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    """As with placement-api.socket: the socket stays open during the restart, and requests wait in its queue."""
    placement_server.write_configuration(tmp_path)
    with socket.create_server(('127.0.0.1', 0), backlog=128) as listener, contextlib.ExitStack() as first_life:
        url = f'http://127.0.0.1:{listener.getsockname()[1]}'
        first_life.enter_context(placement_server.served_on(listener, tmp_path, f'--workers={WORKERS}'))
        with load.Load(url, keep_alive) as requests:
            requests.wait_for_more(ENOUGH)
            first_life.close()
            with placement_server.served_on(listener, tmp_path, f'--workers={WORKERS}'):
                requests.wait_for_more(ENOUGH)
                requests.stop()
                load.assert_nothing_lost(url, requests)
