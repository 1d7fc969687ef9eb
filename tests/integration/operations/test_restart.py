"""Reload and restart under load: no request is lost (issue 5; doc/deployment.md says how)."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import socket
import time

import pytest

from . import load, placement_server

ENOUGH = 40


def _boots(directory: pathlib.Path) -> int:
    """How many workers have come up so far."""
    return len(re.findall('Booting worker', (directory / 'placement-api.log').read_text()))


def _wait_for_boots(directory: pathlib.Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while _boots(directory) < count:
        assert time.monotonic() < deadline, 'no new workers came up'
        time.sleep(0.05)


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_reload_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    placement_server.write_configuration(tmp_path)
    with (
        placement_server.served(tmp_path, '--workers', '2') as (url, process),
        load.applied(url, keep_alive) as requests,
    ):
        for _ in range(3):
            requests.wait_for_more(ENOUGH)
            boots = _boots(tmp_path)
            process.send_signal(signal.SIGHUP)
            _wait_for_boots(tmp_path, boots + 2)
            requests.wait_for_more(ENOUGH)
        requests.stop()
        load.assert_nothing_lost(url, requests)


@pytest.mark.parametrize('keep_alive', [True, False], ids=['kept connections', 'new connections'])
def test_restart_behind_a_kept_socket_loses_no_request(tmp_path: pathlib.Path, keep_alive: bool) -> None:
    """What systemd does with placement-api.socket: the socket outlives the service, and requests wait in its queue."""
    placement_server.write_configuration(tmp_path)
    with socket.create_server(('127.0.0.1', 0), backlog=128) as listener, contextlib.ExitStack() as first_life:
        url = f'http://127.0.0.1:{listener.getsockname()[1]}'
        first_life.enter_context(placement_server.served_on(listener, tmp_path, '--workers', '2'))
        with load.applied(url, keep_alive) as requests:
            requests.wait_for_more(ENOUGH)
            first_life.close()
            with placement_server.served_on(listener, tmp_path, '--workers', '2'):
                requests.wait_for_more(ENOUGH)
                requests.stop()
                load.assert_nothing_lost(url, requests)
