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


class Service(NamedTuple):
    """A server that is ready."""

    server: servers.Server
    #: From its start to the first answer of a search.
    seconds: float

    @property
    def port(self) -> int:
        """The port on which it listens, on the loopback interface."""
        return int(self.server.url.rpartition(':')[2])

    def memory(self) -> float:
        """The mean resident memory of its workers, in MB."""
        sizes = [_resident(pid) for pid in self.server.workers()]
        return sum(sizes) / len(sizes)


@contextlib.contextmanager
def placement(url: str, workers: int, directory: pathlib.Path) -> Iterator[Service]:
    """placement-api on a database."""
    started = time.monotonic()
    settings = {'OS_PLACEMENT__MAX_MICROVERSION': client.MAX_MICROVERSION}
    server = servers.launch(url, directory, workers=workers, metrics=False, environment=settings)
    with _up(server):
        connection = client.Connection(Service(server, 0.0).port)
        search = client.Request('GET', '/allocation_candidates?resources=VCPU:1&limit=1')
        connection.ask(search.encode(client.DEFAULT_MICROVERSION))
        connection.close()
        yield Service(server, time.monotonic() - started)


@contextlib.contextmanager
def floor(answers: pathlib.Path, workers: int, directory: pathlib.Path) -> Iterator[Service]:
    """The floor on the answers in a directory."""
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
            [sys.executable, '-m', 'bench.floor', str(answers), *arguments],
            env={**os.environ, **settings},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            cwd=ROOT,
        )
    server = servers.Server(f'http://127.0.0.1:{port}', None, log, process)
    with _up(server):
        yield Service(server, 0.0)


@contextlib.contextmanager
def _up(server: servers.Server) -> Iterator[None]:
    """Wait until it is ready, and kill it at the end: its database is dropped too."""
    try:
        server.wait_until_ready()
        yield
    finally:
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait()


def _resident(pid: int) -> float:
    status = pathlib.Path(f'/proc/{pid}/status').read_text()
    found = re.search(r'^VmRSS:\s+(\d+) kB$', status, re.MULTILINE)
    assert found is not None, status
    return int(found[1]) / 1000
