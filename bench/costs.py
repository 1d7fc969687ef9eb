"""What a worker costs beside time: memory, its start, following the writes of other processes, and the log."""

from __future__ import annotations

import importlib.util
import pathlib
import statistics
from collections.abc import Callable, Iterator
from typing import NamedTuple

import orjson

from bench import client, databases, lines, service
from bench.client import Request
from bench.results import Result, from_samples
from bench.shapes import Cloud

_NO_LOG = 'not available: no change log'
_NO_MIRROR = 'not available: no mirror'

#: The number of claims of another process, of their transactions and of repetitions, and the name of the line.
_CHANGES = (
    (1, 1, 20, '1 claim'),
    (100, 100, 5, '100 claims'),
    (10_000, 100, 2, '10,000 claims in 100 transactions'),
)


#: Numbers of slots of the change log.
_SLOTS = (5, 500, 2000)


class Setting(NamedTuple):
    """Where and how to measure."""

    url: str
    microversion: str
    directory: pathlib.Path


class Costs(NamedTuple):
    """The costs of a service with one worker."""

    seconds: float
    #: MB after a search with a limit, and after one for all candidates.
    searched: float
    everything: float


def wanted(names: set[str]) -> bool:
    """Whether any of these lines is measured by ``measure``."""
    return bool(names & {'memory', 'start', 'bring-forward'})


def of_service(setting: Setting, cloud: Cloud) -> Costs:
    """Start a service of one worker on a database, and measure it."""
    with service.placement(setting.url, 1, setting.directory) as served:
        return _of(served, setting, cloud)


def measure(setting: Setting, cloud: Cloud, empty: Costs, begin: Callable[[str], bool]) -> Iterator[Result]:
    """Measure those of the lines ``memory``, ``start`` and ``bring-forward`` that are wanted.

    :param empty: the costs of a service on an empty database.
    :param begin: called with the name of each line before it is measured; returns whether the line is wanted.
    """
    with service.placement(setting.url, 1, setting.directory) as served:
        own = _of(served, setting, cloud)
        if begin('memory'):
            yield _memory(cloud, 'after searches with a limit', own.searched - empty.searched)
            yield _memory(cloud, 'after everything was asked for', own.everything - empty.everything)
        if begin('start'):
            yield _result(cloud, 'start', 's', [own.seconds - empty.seconds], note=f'empty: {empty.seconds:.2f} s')
        if begin('bring-forward'):
            if importlib.util.find_spec('placement.cache') is None:
                yield _result(cloud, 'bring-forward', 'ms', [], note=_NO_MIRROR)
                return
            with service.placement(setting.url, 1, setting.directory) as other:
                yield from _bring_forward(served, other, setting, cloud)


def log(url: str, cloud: Cloud) -> Result:
    """The size of the change log."""
    sizes = databases.log_size(url)
    if sizes is None:
        return _result(cloud, 'log-size', 'MB', [], note=_NO_LOG)
    note = ', '.join(f'{name}: {rows:,} rows' for name, (rows, _) in sizes.items())
    if any(size is None for _, size in sizes.values()):
        return _result(cloud, 'log-size', 'MB', [], note=note)
    return _result(cloud, 'log-size', 'MB', [sum(size or 0 for _, size in sizes.values()) / 1e6], note=note)


def slots(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure a search while the change log has few and many slots, which every search has to check."""
    search = next(Request('GET', read.path(cloud)) for read in lines.READS if read.name == 'limit-10')
    encoded = search.encode(setting.microversion)
    with service.placement(setting.url, 1, setting.directory) as served:
        connection = client.Connection(served.port)
        for count in _SLOTS:
            if not databases.add_slots(setting.url, count):
                yield _result(cloud, 'slots', 'ms', [], note=_NO_LOG)
                break
            for _ in range(20):
                connection.ask(encoded)
            samples = [connection.ask(encoded).seconds * 1000 for _ in range(200)]
            yield _result(cloud, 'slots', 'ms', samples, title=f'candidates, limit=10, with {count:,} slots')
        connection.close()


def _of(served: service.Service, setting: Setting, cloud: Cloud) -> Costs:
    connection = client.Connection(served.port)
    reads = {read.name: read for read in lines.READS}

    def memory_after(*names: str) -> float:
        for name in names:
            request = Request('GET', reads[name].path(cloud)).encode(setting.microversion)
            for _ in range(3):
                connection.ask(request)
        return served.memory()

    searched = memory_after('limit-10')
    everything = memory_after('no-limit', 'providers')
    connection.close()
    return Costs(served.seconds, searched, everything)


def _memory(cloud: Cloud, when: str, megabytes: float) -> Result:
    note = f'{megabytes / cloud.size * 10_000:.1f} MB per 10,000'
    title = f'{lines.OTHERS["memory"]}, {when}'
    return _result(cloud, 'memory', 'MB', [megabytes], title=title, note=note)


def _bring_forward(served: service.Service, other: service.Service, setting: Setting, cloud: Cloud) -> Iterator[Result]:
    search = next(Request('GET', read.path(cloud)) for read in lines.READS if read.name == 'limit-10')
    asking, claiming = client.Connection(served.port), client.Connection(other.port)

    def milliseconds() -> float:
        return asking.ask(search.encode(setting.microversion)).seconds * 1000

    for changes, transactions, repeat, called in _CHANGES:
        if changes > cloud.size:
            continue
        milliseconds()
        unchanged = statistics.median(milliseconds() for _ in range(20))
        samples = []
        for number in range(repeat):
            for request in _claims(cloud, f'{changes} {number}', changes, transactions):
                answer = claiming.ask(request.encode(setting.microversion))
                if answer.status != 204:
                    raise RuntimeError(f'a claim was answered with {answer.status}: {bytes(answer.body).decode()}')
            samples.append(milliseconds() - unchanged)
        title = f'bringing a process forward after {called} elsewhere'
        yield _result(cloud, 'bring-forward', 'ms', samples, title=title)
    asking.close()
    claiming.close()


def _claims(cloud: Cloud, name: str, count: int, transactions: int) -> Iterator[Request]:
    """Claims, each on a host of its own."""
    each = count // transactions
    for first in range(0, count, each):
        held = {}
        for number in range(first, first + each):
            body = orjson.loads(lines.claim('', lines.host(cloud, number)).body)
            held[lines.consumer('bring forward', name, number)] = body
        yield Request('POST', '/allocations', orjson.dumps(held).decode())


def _result(
    cloud: Cloud, name: str, unit: str, samples: list[float], title: str | None = None, note: str = ''
) -> Result:
    numbers = from_samples(samples) if samples else {'median': None}
    return Result(cloud.shape, cloud.size, name, title or lines.OTHERS[name], unit, note=note, **numbers)
