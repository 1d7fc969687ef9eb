"""A simulated site: several hosts of several processes on one database, whose traffic with it is counted.

Two processors carry such a site slowly. So what counts are statements, rows and bytes of each request and process, and
their ratios to a small site; times say little.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import orjson

from bench import callers, databases, lines, service, shapes, traffic
from bench.client import Request

#: Requests to each process before a measurement. They go to random processes, so nearly every process gets one.
_WARM_UP_REQUESTS = 5


class Size(NamedTuple):
    """The size of a site."""

    hosts: int
    processes: int

    def __str__(self) -> str:
        return f'{self.hosts}x{self.processes}'


#: The site to compare with.
SMALL = Size(1, 2)


class Options(NamedTuple):
    """The options of the command that are about a site."""

    size: Size
    database: str
    server_url: str | None
    providers: int
    #: Searches in each second, and as many claims.
    rate: float
    seconds: float
    microversion: str


class Measure(NamedTuple):
    """One row of the table: a quantity in the small site and in the large one."""

    work: str
    name: str
    unit: str
    small: float
    large: float

    @property
    def ratio(self) -> float | None:
        """The large site's amount as a multiple of the small one's."""
        return self.large / self.small if self.small else None


def size(text: str) -> Size:
    """Parse ``3x16``, for an option."""
    try:
        hosts, processes = map(int, text.split('x'))
    except ValueError:
        raise argparse.ArgumentTypeError(f'{text!r} is not HOSTSxPROCESSES, such as 3x16') from None
    if min(hosts, processes) < 1:
        raise argparse.ArgumentTypeError('a site has at least one host and one process')
    return Size(hosts, processes)


#: The number of calls of ``report``.
STEPS = 2 * 6


def run(options: Options, directory: pathlib.Path, report: Callable[[str], None]) -> tuple[list[Measure], str]:
    """Measure the small site and the one that is wanted.

    :param directory: for logs.
    :param report: called with the name of what is measured next.
    :returns: the measures, and the database's name and version.
    :raises RuntimeError: a request failed.
    """
    found = []
    for wanted in (SMALL, options.size):
        with databases.fresh(options.database, options.server_url) as url:
            version = databases.version(url)
            found.append(_Site(options, wanted, url, directory, report).measure())
    small, large = found
    return [Measure(*key, amount, large[key]) for key, amount in small.items()], version


class _Site:
    """One site on a database of its own.

    Its results are amounts by work, name and unit.
    """

    def __init__(
        self, options: Options, wanted: Size, url: str, directory: pathlib.Path, report: Callable[[str], None]
    ) -> None:
        self._options = options
        self._size = wanted
        self._url = url
        self._directory = directory
        self._report_step = report
        self._cloud = shapes.flat(options.providers)
        self._found: dict[tuple[str, str, str], float] = {}
        self._claims = 0

    def _report(self, work: str) -> None:
        self._report_step(f'{self._size}: {work}')

    def measure(self) -> dict[tuple[str, str, str], float]:
        """Start the site and measure it."""
        self._report('filling the database')
        databases.prepare(self._url)
        databases.fill(self._url, self._cloud)
        processes = self._size.hosts * self._size.processes
        self._report('starting')
        with (
            traffic.counting(self._url) as (self._proxy, url),
            service.hosts(url, self._size.hosts, self._size.processes, self._directory) as self._hosts,
        ):
            self._add_traffic('start, per process', self._proxy.traffic(), processes)
            self._found['start', 'all processes are ready', 's'] = self._hosts[-1].seconds
            self._found['start', 'memory of all processes (PSS)', 'MB'] = self._memory()
            # Names, projects and slots of the change log first; then each process refreshes its cache.
            self._send(_WARM_UP_REQUESTS * processes, claims=True)
            self._send(_WARM_UP_REQUESTS * processes, searches=True)
            self._report('idle')
            with self._counting('idle, per process and second', processes * self._options.seconds):
                time.sleep(self._options.seconds)
            count = max(self._size.hosts, round(self._options.rate * self._options.seconds))
            self._report('searches')
            with self._counting('a search while nothing changes', count):
                self._send(count, self._options.rate, searches=True)
            self._report('claims')
            with self._counting('a claim while nobody searches', count):
                self._send(count, self._options.rate, claims=True)
            self._send(_WARM_UP_REQUESTS * processes, searches=True)
            self._report('searches and claims')
            with self._counting('a search and a claim', count, processes):
                done = self._send(count, self._options.rate, searches=True, claims=True)
            for kind, times in zip(('search', 'claim'), done, strict=True):
                self._found['a search and a claim', f'median time of the {kind}', 'ms'] = statistics.median(times)
            self._found['at the end', 'memory of all processes (PSS)', 'MB'] = self._memory()
            self._found['at the end', 'connections to the database', ''] = self._proxy.connections
        sizes = databases.log_size(self._url) or {}
        for table, (rows, _) in sizes.items():
            self._found['at the end', f'rows of {table}', ''] = rows
        return self._found

    def _send(
        self, count: int, rate: float | None = None, *, searches: bool = False, claims: bool = False
    ) -> list[list[float]]:
        """Send ``count`` searches, claims, or of both as many, shared out over the hosts.

        :param rate: of each kind, the requests in each second; None for no pauses.
        :returns: the milliseconds of each kind, searches first.
        """
        jobs: list[dict[str, Any]] = []
        kinds = searches + claims
        for number, host in enumerate(self._hosts):
            share = range(number, count, self._size.hosts)
            interval = self._size.hosts / rate if rate else 0.0
            job = {'port': host.port, 'interval': interval, 'reconnect': True}
            if searches:
                jobs.append({**job, 'requests': [_search(self._cloud) for _ in share]})
            if claims:
                jobs.append({**job, 'requests': [self._claim() for _ in share]})
        times = callers.run_jobs(self._options.microversion, jobs).milliseconds
        return [list(itertools.chain(*times[kind::kinds])) for kind in range(kinds)]

    def _claim(self) -> Request:
        self._claims += 1
        # Neighbours are claimed by different hosts; 7919 is prime, so that all providers have their turn.
        host = lines.host(self._cloud, self._claims * 7919)
        return lines.claim(lines.consumer('site', self._claims), host)

    @contextlib.contextmanager
    def _counting(self, work: str, count: float, processes: int = 0) -> Iterator[None]:
        """Add the traffic during the block, divided by ``count``; and for each of ``processes`` and second."""
        before, started = self._proxy.traffic(), time.monotonic()
        yield
        passed, seconds = self._proxy.traffic().since(before), time.monotonic() - started
        self._add_traffic(work, passed, count)
        if processes:
            self._add_traffic(f'{work}, per process and second', passed, processes * seconds)

    def _add_traffic(self, work: str, passed: traffic.Traffic, count: float) -> None:
        for name, amount in passed._asdict().items():
            self._found[work, name, ''] = amount / count

    def _memory(self) -> float:
        return sum(host.proportional_memory() for host in self._hosts)


def _search(cloud: shapes.Cloud) -> Request:
    return next(Request('GET', read.path(cloud)) for read in lines.READS if read.name == 'limit-10')


def table(measures: list[Measure], large: Size) -> str:
    """Return all measures as a table in Markdown."""
    rows = [f'| Work | Measure | {SMALL} | {large} | Times |', '|' + '---|' * 5]
    before = ''
    for one in measures:
        amounts = [f'{amount:,.{_digits(amount)}f} {one.unit}'.strip() for amount in (one.small, one.large)]
        ratio = '' if one.ratio is None else f'{one.ratio:.2f}'
        rows.append('| ' + ' | '.join(['' if one.work == before else one.work, one.name, *amounts, ratio]) + ' |')
        before = one.work
    return '\n'.join(rows)


def _digits(amount: float) -> int:
    return 0 if amount >= 100 or amount == int(amount) else 1 if amount >= 10 else 2


def as_json(measures: list[Measure]) -> str:
    """Return all measures as a list of objects."""
    return orjson.dumps([one._asdict() for one in measures], option=orjson.OPT_INDENT_2).decode()
