"""The line about what a cloud sends: its compute services, and a scheduler that searches and claims meanwhile."""

from __future__ import annotations

import asyncio
import functools
import random
import statistics
import time
from collections.abc import Callable

import orjson

from bench import callers
from bench.client import DEFAULT_MICROVERSION, Connection, Request, check
from bench.reads import search
from bench.target import Figure, Line, Service, Target
from bench.writes import consumer

#: The time in which each compute service sends its requests once.
_PERIOD_SECONDS = 60.0
#: Searches of the scheduler, each followed by a claim.
_SEARCHES_PER_SECOND = 10.0
#: One in this number of compute services also writes its inventories.
_WRITING_DIVISOR = 20
#: Compute services that connect at the same time.
_CONNECTING = 32
#: The reads of a compute service of a current release, with their microversions.
_READS = (
    ('/resource_providers?in_tree={}', '1.14'),
    ('/resource_providers/{}/inventories', '1.26'),
    ('/resource_providers/{}/aggregates', '1.19'),
    ('/resource_providers/{}/traits', '1.6'),
    ('/resource_providers/{}/allocations', '1.28'),
)
#: Who owns what the scheduler claims, for new consumers.
_OWNER = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}
#: A machine limits the open connections.
_MAX_HOSTS = 10_000

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _measure(target: Target, _round: int) -> list[float]:
    """Measure the service with the scheduler alone, and then with all compute services."""
    hosts = [target.cloud.host(number) for number in range(min(target.cloud.size, _MAX_HOSTS))]
    limits = {'OS_SERVER__MAX_CONNECTIONS': str(max(100, len(hosts))), 'OS_SERVER__KEEPALIVE_TIMEOUT': '600'}
    with target.start(target.settings.workers, **limits) as service:
        scheduler = functools.partial(_run_scheduler, service.port, search(target.cloud, 'scheduler'))
        with callers.running(functools.partial(scheduler, 'alone')):
            scheduler_load, _ = _load(service, functools.partial(time.sleep, _PERIOD_SECONDS / 6))
        compute_services = functools.partial(_run_compute_services, service.port, hosts, _PERIOD_SECONDS)
        with callers.running(compute_services, functools.partial(scheduler, 'together')) as (computing, scheduling):
            load, elapsed = _load(service, computing.result)
        milliseconds = scheduling.result()
    # The kernel counts in hundredths of a second.
    host_seconds = max(0.01, (load - scheduler_load) * elapsed) / len(hosts)
    return [
        host_seconds * 1000,
        (1 - scheduler_load) * _PERIOD_SECONDS / host_seconds,
        statistics.median(milliseconds),
        statistics.quantiles(milliseconds, n=20)[-1],
        elapsed,
    ]


def _load(service: Service, wait: Callable[[], object]) -> tuple[float, float]:
    """Return how many processors the service keeps busy until ``wait`` returns, and the seconds until then."""
    processor_seconds, started = service.processor_seconds(), time.monotonic()
    wait()
    elapsed = time.monotonic() - started
    return (service.processor_seconds() - processor_seconds) / elapsed, elapsed


def _run_scheduler(port: int, search: Request, servers: str) -> list[float]:
    """Search and claim at a steady pace until the caller is stopped, and return the milliseconds of each search.

    :param search: with a microversion, at which the claims are made also.
    :param servers: makes the consumers distinct.
    """
    encoded = search.encode(DEFAULT_MICROVERSION)
    choice = random.Random(0)
    milliseconds: list[float] = []
    with Connection(port) as connection:
        connection.send(encoded)
        callers.wait_for_start()
        started = time.monotonic()
        # At least twice, for the quantiles.
        while not callers.is_stopped() or len(milliseconds) < 2:
            response = connection.send(encoded)
            allocations = choice.choice(orjson.loads(response.body)['allocation_requests']) | _OWNER
            path = f'/allocations/{consumer(servers, port, len(milliseconds))}'
            claim = Request('PUT', path, orjson.dumps(allocations).decode(), search.version)
            connection.send(claim.encode(DEFAULT_MICROVERSION))
            milliseconds.append(response.seconds * 1000)
            time.sleep(max(0.0, started + len(milliseconds) / _SEARCHES_PER_SECOND - time.monotonic()))
    return milliseconds


def _run_compute_services(port: int, hosts: list[str], period: float) -> None:
    """Connect each host, and when all have connected, let each send its requests once, spread over a period."""
    asyncio.run(_compute_services(port, hosts, period))


async def _compute_services(port: int, hosts: list[str], period: float) -> None:
    connecting = asyncio.Semaphore(_CONNECTING)

    async def connect() -> Streams:
        async with connecting:
            streams = await asyncio.open_connection('127.0.0.1', port)
            # A client that connects and sends nothing is disconnected.
            await _send(streams, Request('GET', '/'))
            return streams

    connections = await asyncio.gather(*(connect() for _ in hosts))
    callers.wait_for_start()
    started = time.monotonic()

    async def send_in_turn(number: int) -> None:
        await asyncio.sleep(started + number * period / len(hosts) - time.monotonic())
        is_writing = number % _WRITING_DIVISOR == 0
        await _send_periodic_requests(connections[number], hosts[number], is_writing=is_writing)

    await asyncio.gather(*map(send_in_turn, range(len(hosts))))


async def _send_periodic_requests(streams: Streams, host: str, *, is_writing: bool) -> None:
    bodies = [await _send(streams, Request('GET', path.format(host), version=version)) for path, version in _READS]
    if is_writing:
        path, version = _READS[1]
        inventories = orjson.loads(bodies[1])
        inventories['inventories']['DISK_GB']['reserved'] += 1
        await _send(streams, Request('PUT', path.format(host), orjson.dumps(inventories).decode(), version))


async def _send(streams: Streams, request: Request) -> bytes:
    """Send a request and return the body of the response.

    :raises RuntimeError: the status is neither 2xx nor that of a provider that a claim has changed since it was read.
    """
    reader, writer = streams
    encoded = request.encode(DEFAULT_MICROVERSION)
    writer.write(encoded)
    head = await reader.readuntil(b'\r\n\r\n')
    length = int(head.lower().partition(b'content-length:')[2].partition(b'\r\n')[0])
    body = await reader.readexactly(length)
    if head[9:12] != b'409':
        check(encoded, head[9:12], body)
    return body


LINES = [
    Line(
        'compute',
        'flat',
        [
            Figure('processor time of the service for one compute service in a minute', 'ms'),
            Figure('hosts whose compute services, with a scheduler, keep one process busy on one core', 'hosts'),
            Figure('searches of the scheduler meanwhile, median', 'ms'),
            Figure('searches of the scheduler meanwhile, 95th percentile', 'ms'),
            Figure('from the first request to the last response of all compute services', 's'),
        ],
        _measure,
        max_rounds=1,
    ),
]
