"""The provider cache that placement-api loads once, before it forks its workers."""

from __future__ import annotations

import contextlib
import itertools
import os
import pathlib
import signal
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from bench import databases, shapes
from tests.integration import tcp_proxy
from tests.support import corruption, servers
from tests.support.applications import NEWEST_MICROVERSION
from tests.support.history.client import Client
from tests.support.http_client import claim_body
from tests.support.waiting import wait_until

#: So that the log has a line for each load, and numpy starts no threads.
_SETTINGS = {'OS_DEFAULT__DEBUG': 'true', 'OPENBLAS_NUM_THREADS': '1'}
_LOADED = 'Cache loaded: '


def _serving(url: str, directory: pathlib.Path, workers: int) -> contextlib.AbstractContextManager[servers.Server]:
    return servers.serving(url, directory, workers=workers, metrics=False, environment=_SETTINGS)


def _loads(server: servers.Server) -> int:
    return server.log.read_text().count(_LOADED)


def _wait_for_workers(server: servers.Server, count: int) -> None:
    """Wait until the workers have built their applications, and started their threads."""
    wait_until(lambda: [servers.threads(pid) > 8 for pid in server.workers()] == [True] * count)


@pytest.fixture(scope='module')
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """placement-api with one worker, which answers all requests, on SQLite."""
    directory = tmp_path_factory.mktemp('shared')
    with _serving(f'sqlite:///{directory}/placement.sqlite', directory, 1) as started:
        yield started


def _send(server: servers.Server, method: str, path: str, body: object = None) -> Any:
    with contextlib.closing(Client([server.url], token='admin')) as client:
        return client.demand(method, path, body, version=NEWEST_MICROVERSION)


def _create_host(server: servers.Server) -> str:
    with contextlib.closing(Client([server.url], token='admin')) as client:
        return client.create_provider({'VCPU': {'total': 8}})


def _used(server: servers.Server, host: str) -> int | None:
    """The usage of the host as searches show it; None if they do not find it."""
    summaries = _send(server, 'GET', '/allocation_candidates?resources=VCPU:1')['provider_summaries']
    used: int | None = summaries[host]['resources']['VCPU']['used'] if host in summaries else None
    return used


def _execute(server: servers.Server, statement: str) -> None:
    """Run a statement without an entry in the change log."""
    corruption.plant(f'sqlite:///{server.log.parent}/placement.sqlite', statement)


def _replace_worker(server: servers.Server) -> None:
    """Kill the worker, and wait for the next one."""
    [old] = server.workers()
    os.kill(old, signal.SIGKILL)
    wait_until(lambda: old not in server.workers())
    _wait_for_workers(server, 1)


def test_a_replaced_worker_refreshes_the_cache_of_the_master(server: servers.Server) -> None:
    """It loads the cache again if the change log was truncated."""
    host, loads = _create_host(server), _loads(server)
    claim = claim_body({host: {'VCPU': 3}}, consumer_type='INSTANCE')
    _send(server, 'PUT', f'/allocations/{uuid.uuid4()}', claim)
    _replace_worker(server)
    assert _used(server, host) == 3
    assert _loads(server) == loads
    _execute(server, 'DELETE FROM placement_change_log')
    _replace_worker(server)
    assert _used(server, host) == 3
    assert _loads(server) == loads + 1


def test_a_reload_loads_once_for_all_later_workers(server: servers.Server) -> None:
    host = _create_host(server)
    [old] = server.workers()
    assert _used(server, host) == 0
    loads = _loads(server)
    # Not in the change log, so that only a load shows it.
    _execute(server, 'UPDATE placement_inventories SET used = 5')
    assert _used(server, host) == 0
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: old not in server.workers())
    _wait_for_workers(server, 1)
    assert _used(server, host) == 5
    assert _loads(server) == loads + 1
    _execute(server, 'DELETE FROM placement_change_log')
    _replace_worker(server)
    assert _used(server, host) == 5
    assert _loads(server) == loads + 1


def test_all_threads_of_a_worker_share_one_arena_of_malloc(server: servers.Server) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: _send(server, 'GET', '/traits'), range(100)))
    [worker] = server.workers()
    # glibc reserves such a part of the address space for each arena but the main one, and makes it usable piecemeal.
    size = 64 * 2**20
    lines = pathlib.Path(f'/proc/{worker}/maps').read_text().splitlines()
    areas = [[int(address, 16) for address in line.split()[0].split('-')] for line in lines]
    arenas = [
        first for (first, end), (_, last) in itertools.pairwise(areas) if first % size == 0 and last == first + size
    ]
    assert arenas == []


@pytest.mark.parametrize(
    'kind', [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ('mariadb', 'postgresql')]
)
def test_workers_load_nothing_and_the_master_keeps_no_connection(kind: str, tmp_path: pathlib.Path) -> None:
    trips = {}
    with databases.fresh(kind) as url:
        databases.create_schema(url)
        databases.fill(url, shapes.flat(500))
        for workers in (1, 4):
            with (
                tcp_proxy.before(sa.make_url(url)) as (proxy, through),
                _serving(through.render_as_string(hide_password=False), tmp_path, workers) as server,
            ):
                _wait_for_workers(server, workers)
                trips[workers] = proxy.trips
                assert _loads(server) == 1
                assert servers.threads(server.process.pid) == 1
                # One of each worker.
                assert proxy.connections == workers
    # The handshake, with TLS on MySQL, what the first connection of a process executes, and the comparison of versions.
    assert (trips[4] - trips[1]) / 3 <= 25
