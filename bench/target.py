"""What is measured: a database with a cloud, and placement-api of a checkout on it."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import psutil

from bench import client, databases
from bench.client import Connection, Request
from bench.shapes import Cloud
from tests.support import servers

#: Threads of each worker that process requests.
_THREADS = 8
#: Most seconds until all processes are ready.
_START_SECONDS = 1800


class Settings(NamedTuple):
    """How to measure."""

    #: Processes of the service.
    workers: int
    #: Requests of a round behind a median.
    requests: int
    #: Claims, moves or new hosts of a round.
    writes: int
    microversion: str


class Service(NamedTuple):
    """placement-api, ready."""

    server: servers.Server
    #: From its start until every process has loaded its cache and one has answered a search.
    start_seconds: float

    @property
    def port(self) -> int:
        """The port on which it listens, on the loopback interface."""
        return int(self.server.url.rpartition(':')[2])

    def memory(self) -> float:
        """Return the memory of all its processes in MB, in which a page that several share counts once (PSS)."""
        processes = [self.server.process.pid, *self.server.workers()]
        return sum(psutil.Process(pid).memory_full_info().pss for pid in processes) / 1e6

    def processor_seconds(self) -> float:
        """Return the processor time that its workers have used."""
        times = [psutil.Process(pid).cpu_times() for pid in self.server.workers()]
        return sum(used.user + used.system for used in times)


class Target:
    """A cloud in a database of its own, and the services of one checkout on it, which end with the context ``stack``.

    :param checkout: the directory whose ``placement`` is measured.
    :param directory: for the logs of services.
    """

    def __init__(
        self,
        cloud: Cloud,
        kind: str,
        checkout: pathlib.Path,
        settings: Settings,
        directory: pathlib.Path,
        stack: contextlib.ExitStack,
    ) -> None:
        self.cloud = cloud
        self.settings = settings
        self._checkout = checkout
        self._directory = directory
        self._stack = stack
        self.url = stack.enter_context(databases.fresh(kind))
        databases.create_schema(self.url, checkout)
        databases.fill(self.url, cloud)

    @functools.cached_property
    def service(self) -> Service:
        """The service that most lines use, started when it is used first."""
        return self._stack.enter_context(self.start(self.settings.workers))

    @functools.cached_property
    def searching(self) -> Service:
        """A process that refreshes its cache only for searches."""
        return self._stack.enter_context(self.start(1, OS_PLACEMENT__CACHE_REFRESH_INTERVAL='0'))

    @functools.cached_property
    def other(self) -> Service:
        """Another process on the same database."""
        return self._stack.enter_context(self.start(1))

    @contextlib.contextmanager
    def start(self, processes: int, **environment: str) -> Iterator[Service]:
        """Run placement-api until the end of the context.

        :param environment: further variables.
        :raises ServerError: it did not start.
        """
        environment |= {
            'PYTHONPATH': str(self._checkout),
            'OS_PLACEMENT__MAX_MICROVERSION': client.MAX_MICROVERSION,
            # So that the threads of a worker are those that process requests.
            'OPENBLAS_NUM_THREADS': '1',
        }
        started = time.monotonic()
        server = servers.launch(
            self.url, self._directory, workers=processes, threads=_THREADS, metrics=False, environment=environment
        )
        try:
            _wait_for_threads(server, processes)
            service = Service(server, 0.0)
            with Connection(service.port) as connection:
                connection.send(self.encode(Request('GET', '/allocation_candidates?resources=VCPU:1&limit=1')))
            yield service._replace(start_seconds=time.monotonic() - started)
        finally:
            # Its database is dropped also. A server that has ended by itself is reported by those who wait for it.
            server.kill()

    def encode(self, request: Request) -> bytes:
        """Return the bytes of a request, at the microversion of the run unless it has one of its own."""
        return request.encode(self.settings.microversion)

    def send(self, *requests: Request) -> None:
        """Send requests to ``service``."""
        with Connection(self.service.port) as connection:
            for request in requests:
                connection.send(self.encode(request))


def _wait_for_threads(server: servers.Server, processes: int) -> None:
    """Return when each of the workers has the threads that process requests, which it starts when it is ready."""
    deadline = time.monotonic() + _START_SECONDS
    while True:
        threads = [servers.threads(pid) for pid in server.workers()]
        if len(threads) >= processes and min(threads) > _THREADS:
            return
        if server.process.poll() is not None:
            raise servers.ServerError(f'placement-api ended with status {server.process.returncode}:\n{server.tail()}')
        if time.monotonic() > deadline:
            ready = sum(count > _THREADS for count in threads)
            raise servers.ServerError(
                f'{ready} of {processes} processes are ready after {_START_SECONDS} s:\n{server.tail()}'
            )
        time.sleep(0.05)


class Figure(NamedTuple):
    """A number that a line measures."""

    title: str
    unit: str


class Line(NamedTuple):
    """Work that is measured, as often as there are rounds."""

    name: str
    #: The shape of the clouds on which it is measured.
    shape: str
    figures: list[Figure]
    #: Measures the figures on a target, in the round with this number.
    measure: Callable[[Target, int], list[float]]
    #: Returns requests whose statements are counted: as many of the last ones as ``counted``.
    requests: Callable[[Cloud], list[Request]] | None = None
    counted: int = 1
    #: Returns requests that are sent before the first round.
    setup: Callable[[Cloud], list[Request]] | None = None
    #: Where a round takes long, fewer are enough.
    max_rounds: int = 100
    min_hosts: int = 0
