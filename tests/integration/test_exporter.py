"""The exporter beside a real ``placement-api``: its clients, its end, and the files that it reads."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import httpx
import pytest

from tests.integration import services
from tests.support import servers
from tests.support.servers import Server
from tests.support.waiting import wait_until

SECONDS = 60
#: The kind of a process that has some megabytes of memory.
_RESIDENT = r'^placement_process_resident_memory_bytes{.*process="(\w+)".*} (?:\d{7,}|\S+e\+\d+)'


@pytest.fixture(scope='module')
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with two workers on SQLite. The directory of its log has the database and the files of the metrics."""
    directory = tmp_path_factory.mktemp('exporter')
    environment = {'TMPDIR': str(directory)}
    with servers.serving(f'sqlite:///{directory}/placement.sqlite', directory, environment=environment) as started:
        yield started


def scrape(server: Server) -> str:
    """The text of the metrics."""
    return services.fetch('GET', server.metrics_url).raise_for_status().text


def value(server: Server, sample: str) -> float:
    """The sum of the samples whose name and labels match a regular expression."""
    return sum(map(float, re.findall(rf'^{sample} (\S+)$', scrape(server), re.MULTILINE)))


def search(server: Server, requests: int) -> None:
    """Send searches, which ``count`` counts."""
    headers = {'X-Auth-Token': 'admin', 'OpenStack-API-Version': 'placement 1.29'}
    for _ in range(requests):
        path = '/allocation_candidates?resources=VCPU:1'
        services.fetch('GET', f'{server.url}{path}', headers=headers).raise_for_status()


def count(server: Server) -> float:
    """The number of searches since the start of the service."""
    return value(server, 'placement_requests_total{.*route="/allocation_candidates".*}')


def test_an_exporter_that_was_killed_is_started_again(server: Server) -> None:
    before = count(server)
    search(server, 10)
    assert count(server) == before + 10
    killed = server.exporter()
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: server.exporter() not in (None, killed), server.tail)
    server.wait_until_ready()
    assert count(server) == before + 10
    assert f'The exporter of the metrics (pid: {killed}) has ended and is started again' in server.log.read_text()


def test_a_taken_port_is_reported_and_does_not_stop_the_service(server: Server, tmp_path: pathlib.Path) -> None:
    address = urlsplit(server.metrics_url).netloc
    url, environment = f'sqlite:///{tmp_path}/placement.sqlite', {'OS_METRICS__BIND': address}
    with servers.serving(url, tmp_path, metrics=False, environment=environment) as other:
        other.wait_for_line(f'Cannot listen on {address}: Address already in use')
        search(other, 1)


def test_without_the_option_there_is_no_page(server: Server) -> None:
    assert services.fetch('GET', server.metrics_url.replace('/metrics', '/page')).status_code == 404


def test_workers_refresh_their_caches_while_nobody_searches(server: Server) -> None:
    sample = 'placement_cache_checked_timestamp_seconds.*'
    checked = value(server, sample)
    wait_until(lambda: value(server, sample) > checked, server.tail)


def reload(server: Server) -> None:
    """Reload, and wait until two new workers have replaced the old ones."""
    old = set(server.workers())
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: len(workers := server.workers()) == 2 and old.isdisjoint(workers), server.tail)


def test_reloads_leave_no_files_and_lose_no_counts(server: Server) -> None:
    """Whether the last one found a valid configuration is shown. None of them reloads the cache."""
    directory, requests = server.log.parent, count(server)
    for configuration, success in (('', 1), ('[metrics]\nplan_interval = nonsense\n', 0), ('', 1)):
        (directory / 'placement.conf').write_text(configuration)
        search(server, 10)
        requests += 10
        reload(server)
        assert count(server) == requests
        assert value(server, 'placement_config_reload_success') == success
    assert value(server, 'placement_cache_refresh_duration_seconds_count') > 0
    assert value(server, 'placement_cache_reloads_total') == 0
    numbers = {file.stem.rpartition('_')[2] for file in directory.glob('placement-metrics-*/*.db')}
    # The master, the exporter, two workers, and during a reload two more.
    assert len(numbers) <= 6
    processes = ['exporter', 'server', 'worker', 'worker']
    wait_until(lambda: sorted(re.findall(_RESIDENT, scrape(server), re.MULTILINE)) == processes, server.tail)


def test_idle_connections_keep_neither_threads_nor_descriptors(server: Server) -> None:
    address = ('127.0.0.1', urlsplit(server.metrics_url).port)
    exporter = server.exporter()
    assert exporter is not None
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(address, timeout=SECONDS)) for _ in range(300)]
        assert 'placement_database_up 1.0' in scrape(server)
        assert servers.threads(exporter) < 30
        assert len(list(pathlib.Path(f'/proc/{exporter}/fd').iterdir())) < 200
        # The last one is within the limit of connections, and is closed because it sends nothing.
        assert idle[-1].recv(1) == b''


def test_it_does_not_outlive_a_killed_service(tmp_path: pathlib.Path) -> None:
    server = servers.launch(f'sqlite:///{tmp_path}/placement.sqlite', tmp_path)
    server.wait_until_ready()
    server.process.kill()

    def is_answered() -> bool:
        # It may end in the middle of an answer.
        with contextlib.suppress(httpx.HTTPError):
            return bool(scrape(server))
        return False

    wait_until(lambda: not is_answered(), server.tail)
    server.process.wait(SECONDS)
