"""Measures the costs of a worker beside time: memory, start, refresh after writes of others, and the change log."""

from __future__ import annotations

import importlib.util
import pathlib
import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from bench import client, databases, lines, service
from bench.client import Request
from bench.results import Result, from_samples
from bench.shapes import Cloud

NO_LOG = 'not available: no change log'
_NO_CACHE = 'not available: no cache'

#: The number of claims of another process, of their transactions and of repetitions, the title, and the most
#: milliseconds that a refresh should take.
_CHANGES = (
    (1, 1, 20, '1 claim', 3.0),
    (100, 100, 5, '100 claims', 4.0),
    (10_000, 100, 2, '10,000 claims in 100 transactions', 100.0),
)
#: The memory of a worker after everything was listed should be at most so much for every 10,000 providers, from that
#: size on.
_MEMORY_TARGET_MB = 40.0
#: In larger clouds nobody lists everything.
_MAX_LISTED_HOSTS = 100_000


class Setting(NamedTuple):
    """Where and how to measure."""

    url: str
    microversion: str
    directory: pathlib.Path
    #: Most requests behind a median.
    repeat: int


class Costs(NamedTuple):
    """The costs of a service with one worker."""

    seconds: float
    #: MB after searches with a limit, and after lists of everything, None if the cloud is too large for that.
    searched: float
    everything: float | None


def wanted(names: set[str]) -> bool:
    """Return whether any of these lines is measured by ``measure``."""
    return bool(names & {'memory', 'start', 'refresh'})


def of_service(setting: Setting, cloud: Cloud) -> Costs:
    """Start a service of one worker on a database, and measure it."""
    with service.placement(setting.url, 1, setting.directory) as served:
        return _of(served, setting, cloud)


def measure(setting: Setting, cloud: Cloud, empty: Costs, begin: Callable[[str], bool]) -> Iterator[Result]:
    """Measure those of the lines ``memory``, ``start`` and ``refresh`` that are wanted.

    :param empty: the costs of a service on an empty database.
    :param begin: called with the name of each line before it is measured; returns whether the line is wanted.
    """
    # What a search has to read is measured, so nothing else may read it before.
    with service.placement(setting.url, 1, setting.directory, OS_PLACEMENT__CACHE_REFRESH_INTERVAL='0') as served:
        own = _of(served, setting, cloud)
        if begin('memory'):
            yield _memory(cloud, 'after searches with a limit', own.searched - empty.searched)
            if own.everything is not None and empty.everything is not None:
                target = _MEMORY_TARGET_MB * cloud.size / 10_000 if cloud.size >= 10_000 else None
                more = own.everything - empty.everything
                yield _memory(cloud, 'after everything was listed', more, target)
        if begin('start'):
            yield result(cloud, 'start', 's', [own.seconds - empty.seconds], note=f'empty: {empty.seconds:.2f} s')
        if begin('refresh'):
            if importlib.util.find_spec('placement.cache') is None:
                yield result(cloud, 'refresh', 'ms', [], note=_NO_CACHE)
                return
            with service.placement(setting.url, 1, setting.directory) as other:
                yield from _refresh(served, other, setting, cloud)


def log(url: str, cloud: Cloud) -> Result:
    """Return the size of the change log."""
    sizes = databases.log_size(url)
    if sizes is None:
        return result(cloud, 'log-size', 'MB', [], note=NO_LOG)
    note = ', '.join(f'{name}: {rows:,} rows' for name, (rows, _) in sizes.items())
    if any(size is None for _, size in sizes.values()):
        return result(cloud, 'log-size', 'MB', [], note=note)
    return result(cloud, 'log-size', 'MB', [sum(size or 0 for _, size in sizes.values()) / 1e6], note=note)


def _of(served: service.Service, setting: Setting, cloud: Cloud) -> Costs:
    connection = client.Connection(served.port)
    reads = {read.name: read for read in lines.READS}

    def memory_after(*names: str) -> float:
        for name in names:
            request = Request('GET', reads[name].path(cloud)).encode(setting.microversion)
            for _ in range(3):
                connection.send(request)
        return served.memory()

    searched = memory_after('limit-10')
    everything = memory_after('no-limit', 'providers') if cloud.size <= _MAX_LISTED_HOSTS else None
    connection.close()
    return Costs(served.seconds, searched, everything)


def _memory(cloud: Cloud, when: str, megabytes: float, target: float | None = None) -> Result:
    note = f'{megabytes / cloud.size * 10_000:.1f} MB per 10,000'
    title = f'{lines.OTHERS["memory"]}, {when}'
    return result(cloud, 'memory', 'MB', [megabytes], title=title, note=note, target=target)


def _refresh(served: service.Service, other: service.Service, setting: Setting, cloud: Cloud) -> Iterator[Result]:
    search = next(Request('GET', read.path(cloud)) for read in lines.READS if read.name == 'limit-10')
    searching, claiming = client.Connection(served.port), client.Connection(other.port)

    def milliseconds() -> float:
        return searching.send(search.encode(setting.microversion)).seconds * 1000

    for changes, transactions, repeat, made, target in _CHANGES:
        if changes > cloud.size:
            continue
        milliseconds()
        unchanged = statistics.median(milliseconds() for _ in range(20))
        samples = []
        for number in range(repeat):
            claim_elsewhere(claiming, setting, cloud, f'{changes} {number}', changes, transactions)
            samples.append(milliseconds() - unchanged)
        title = f'refresh of a process after {made} elsewhere'
        yield result(cloud, 'refresh', 'ms', samples, title=title, target=target)
    searching.close()
    claiming.close()


def claim_elsewhere(
    claiming: client.Connection, setting: Setting, cloud: Cloud, name: str, count: int, transactions: int
) -> None:
    """Claim on so many hosts.

    :param name: makes the consumers distinct.
    :raises RuntimeError: a claim was not accepted.
    """
    for request in _claims(cloud, name, count, transactions):
        response = claiming.send(request.encode(setting.microversion))
        if response.status != 204:
            raise RuntimeError(f'a claim was answered with {response.status}: {bytes(response.body).decode()}')


def _claims(cloud: Cloud, name: str, count: int, transactions: int) -> Iterator[Request]:
    """Claims, each on a host of its own."""
    each = count // transactions
    for first in range(0, count, each):
        claims = {}
        for number in range(first, first + each):
            body = orjson.loads(lines.claim('', lines.host(cloud, number)).body)
            claims[lines.consumer('refresh', name, number)] = body
        yield Request('POST', '/allocations', orjson.dumps(claims).decode())


def result(
    cloud: Cloud, name: str, unit: str, samples: Sequence[float], title: str | None = None, **more: Any
) -> Result:
    """Make a row of the table; without samples it has only the note, which is in ``more``."""
    numbers = from_samples(samples) if samples else {'median': None}
    return Result(cloud.shape, cloud.size, name, title or lines.OTHERS[name], unit, **numbers, **more)
