"""Metrics of several workers on a listener of their own, when the service is reloaded or killed."""

from __future__ import annotations

import pathlib
import re
import signal
import subprocess

import httpx

from tests.support import servers
from tests.support.operations import placement_server, services
from tests.support.operations.load import HEADERS
from tests.support.waiting import wait_until


def _value(listener: str, name: str) -> float:
    """A sample without labels; 0 when it is missing."""
    text = httpx.get(f'{listener}/metrics').raise_for_status().text
    match = re.search(rf'^{name} (\S+)$', text, re.MULTILINE)
    return float(match[1]) if match else 0


def _is_open(listener: str) -> bool:
    try:
        return httpx.get(f'{listener}/healthcheck').text == 'OK\n'
    except httpx.TransportError:
        return False


def _wait_for(listener: str) -> None:
    wait_until(lambda: _is_open(listener), 'the listener does not answer')


def _reload(process: subprocess.Popen[bytes]) -> None:
    """Send SIGHUP, and return when there are two new workers."""
    before = set(servers.children(process.pid))
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(set(servers.children(process.pid)) - before) == 2, 'there are no new workers')


def test_reloads_of_the_configuration_are_shown_and_are_no_reloads_of_the_cache(tmp_path: pathlib.Path) -> None:
    bind = f'127.0.0.1:{servers.free_port()}'
    listener = f'http://{bind}'
    placement_server.write_configuration(tmp_path, metrics={'bind': bind})
    valid = (tmp_path / 'placement.conf').read_text()
    with placement_server.served(tmp_path, '--workers', '2') as (url, process):
        _wait_for(listener)
        for addition, success in (('', 1), ('[server]\nthreads = none\n', 0), ('', 1)):
            (tmp_path / 'placement.conf').write_text(valid + addition)
            _reload(process)
            assert _value(listener, 'placement_config_reload_success') == success
            assert httpx.get(f'{url}/allocation_candidates?resources=VCPU:1', headers=HEADERS).status_code == 200
        assert _value(listener, 'placement_cache_refresh_duration_seconds_count') > 0
        assert _value(listener, 'placement_cache_reloads_total') == 0
    assert not _is_open(listener)


def test_listener_does_not_outlive_a_killed_service(tmp_path: pathlib.Path) -> None:
    bind = f'127.0.0.1:{servers.free_port()}'
    placement_server.write_configuration(tmp_path, metrics={'bind': bind})
    with placement_server.served(tmp_path) as (_, process):
        _wait_for(f'http://{bind}')
        process.kill()
        wait_until(lambda: not _is_open(f'http://{bind}'), 'the listener is still there')


def test_a_taken_port_is_reported_and_does_not_stop_the_service(tmp_path: pathlib.Path) -> None:
    with services.taken_port() as port:
        placement_server.write_configuration(tmp_path, metrics={'bind': f'127.0.0.1:{port}'})
        with placement_server.served(tmp_path) as (url, _):
            log, words = tmp_path / placement_server.LOG, f'Cannot listen on 127.0.0.1:{port}'
            wait_until(lambda: words in log.read_text(), 'nothing was said')
            assert httpx.get(f'{url}/traits', headers=HEADERS).status_code == 200
