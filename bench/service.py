"""The servers that the benchmark drives: placement-api on a database, and the floor."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from bench import client
from bench.callers import ROOT
from tests.support import servers

_SETTINGS = {
    'OS_PLACEMENT__MAX_MICROVERSION': client.MAX_MICROVERSION,
    # So that the threads of a worker are those that process requests.
    'OPENBLAS_NUM_THREADS': '1',
}
#: Threads of each worker that process requests.
_THREADS = 8
#: Most seconds until all processes are ready.
_START_SECONDS = 1800


class Service(NamedTuple):
    """A server that is ready."""

    server: servers.Server
    #: From its start to the first response of a search.
    seconds: float

    @property
    def port(self) -> int:
        """The port on which it listens, on the loopback interface."""
        return int(self.server.url.rpartition(':')[2])

    def memory(self) -> float:
        """Return the mean resident memory of its workers, in MB."""
        sizes = [_kilobytes(pid, 'status', 'VmRSS') for pid in self.server.workers()]
        return sum(sizes) / len(sizes) / 1000

    def proportional_memory(self) -> float:
        """Return the memory of all its processes in MB, in which a page that several share counts once (PSS)."""
        processes = [self.server.process.pid, *self.server.workers()]
        return sum(_kilobytes(pid, 'smaps_rollup', 'Pss') for pid in processes) / 1000

    def processor_seconds(self) -> float:
        """Return the processor time that its workers have used."""
        ticks = 0
        for pid in self.server.workers():
            fields = pathlib.Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf('SC_CLK_TCK')


@contextlib.contextmanager
def placement(url: str, workers: int, directory: pathlib.Path, **settings: str) -> Iterator[Service]:
    """placement-api on a database, which has answered a search.

    :param settings: environment variables.
    """
    started = time.monotonic()
    with hosts(url, 1, workers, directory, **settings) as [started_host]:
        connection = client.Connection(started_host.port)
        search = client.Request('GET', '/allocation_candidates?resources=VCPU:1&limit=1')
        connection.send(search.encode(client.DEFAULT_MICROVERSION))
        connection.close()
        yield Service(started_host.server, time.monotonic() - started)


@contextlib.contextmanager
def hosts(url: str, count: int, processes: int, directory: pathlib.Path, **settings: str) -> Iterator[list[Service]]:
    """Several placement-api on a database, started at the same time; every process of each has loaded its cache.

    :param settings: environment variables.
    """
    started = time.monotonic()
    settings = _SETTINGS | settings
    with contextlib.ExitStack() as stack:
        launched = []
        for _ in range(count):
            launched.append(servers.launch(url, directory, workers=processes, metrics=False, environment=settings))
            stack.callback(_kill, launched[-1])
        for server in launched:
            _wait_for_threads(server, processes)
        yield [Service(server, time.monotonic() - started) for server in launched]


def _wait_for_threads(server: servers.Server, processes: int) -> None:
    """Return when so many workers have the threads that process requests, which each starts when it is ready."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        threads = [servers.threads(pid) for pid in server.workers()]
        if len(threads) >= processes and min(threads) > _THREADS:
            return
        if server.process.poll() is not None:
            raise servers.ServerError(f'placement-api ended with status {server.process.returncode}:\n{server.tail()}')
        if time.monotonic() > deadline:
            ready = sum(one > _THREADS for one in threads)
            raise servers.ServerError(
                f'{ready} of {processes} processes are ready after {_START_SECONDS} s:\n{server.tail()}'
            )
        time.sleep(0.05)


@contextlib.contextmanager
def floor(responses: pathlib.Path, workers: int, directory: pathlib.Path) -> Iterator[Service]:
    """The floor on the responses in a directory."""
    port = servers.free_port()
    log = directory / f'floor-{port}.log'
    settings = {
        'OS_PLACEMENT_CONFIG_DIR': str(directory),
        # No process connects to it.
        'OS_PLACEMENT_DATABASE__CONNECTION': 'sqlite://',
        'OS_API__AUTH_STRATEGY': 'noauth2',
    }
    arguments = ['--bind', f'127.0.0.1:{port}', '--workers', str(workers), '--threads', '8']
    with log.open('wb') as output:
        process = subprocess.Popen(
            [sys.executable, '-m', 'bench.floor', str(responses), *arguments],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=ROOT,
        )
    server = servers.Server(f'http://127.0.0.1:{port}', None, log, process)
    try:
        server.wait_until_ready()
        yield Service(server, 0.0)
    finally:
        _kill(server)


def _kill(server: servers.Server) -> None:
    # Its database is dropped too. A server that has ended by itself is reported by those who wait for it.
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.process.pid, signal.SIGKILL)
    server.process.wait()


def _kilobytes(pid: int, file: str, name: str) -> int:
    found = re.search(rf'^{name}:\s+(\d+) kB$', pathlib.Path(f'/proc/{pid}/{file}').read_text(), re.MULTILINE)
    assert found is not None, name
    return int(found[1])
