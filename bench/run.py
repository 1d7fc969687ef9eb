"""One run: each cloud in a database of its own, the lines measured one after the other, each beside its floor."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench import callers, client, costs, databases, driver, floor, lines, probe, scale, service, shapes
from bench.client import Request
from bench.results import Result, from_samples

#: The lines that are measured on one service of ``Options.workers`` processes.
_OVER_HTTP = {read.name for read in lines.READS} | {write.name for write in lines.WRITES} | {'limit-10-while-claiming'}
#: The minimum number of samples of a median, however long they take.
_MIN_SAMPLES = 3


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the command."""

    database: str
    server_url: str | None
    sizes: dict[str, list[int]]
    lines: set[str]
    workers: int
    repeat: int
    seconds: float
    rounds: int
    writes: int
    microversion: str


@dataclasses.dataclass
class Bench:
    """The state of the whole run."""

    options: Options
    directory: pathlib.Path
    floor: service.Service
    #: Called with the name of what is measured next.
    report: Callable[[str], None]
    empty: costs.Costs | None = None
    results: list[Result] = dataclasses.field(default_factory=list)

    @property
    def responses(self) -> pathlib.Path:
        """Directory of the floor's responses."""
        return responses_in(self.directory)


def responses_in(directory: pathlib.Path) -> pathlib.Path:
    """Return the directory of the responses of a floor, below ``directory``; created if it is missing."""
    path = directory / 'responses'
    path.mkdir(exist_ok=True)
    return path


def lines_of(shape: str) -> set[str]:
    """Return the names of the lines that are about a shape."""
    names = {read.name for read in lines.READS if read.shape == shape}
    return names.union(lines.OTHERS, (write.name for write in lines.WRITES)) if shape == 'flat' else names


def steps(options: Options) -> int:
    """Return the number of calls of ``report``: for each line, and for filling each cloud."""
    return sum(len(sizes) * len((lines_of(shape) & options.lines) | {'fill'}) for shape, sizes in options.sizes.items())


def run(options: Options, directory: pathlib.Path, report: Callable[[str], None]) -> tuple[list[Result], str]:
    """Measure everything.

    :param directory: for logs and the like.
    :param report: called with the name of what is measured next.
    :returns: the results, and the database's name and version.
    """
    version = ''
    with service.floor(responses_in(directory), options.workers, directory) as served:
        bench = Bench(options, directory, served, report)
        if costs.wanted(options.lines) and options.sizes.get('flat'):
            with databases.fresh(options.database, options.server_url) as url:
                databases.prepare(url)
                setting = costs.Setting(url, options.microversion, directory, options.repeat)
                bench.empty = costs.of_service(setting, shapes.flat(0))
        for shape, sizes in options.sizes.items():
            for size in sizes:
                with databases.fresh(options.database, options.server_url) as url:
                    version = databases.version(url)
                    _Cloud(bench, url, shapes.SHAPES[shape](size)).measure()
    return bench.results, version


class _Cloud:
    """One cloud in one database."""

    def __init__(self, bench: Bench, url: str, cloud: shapes.Cloud) -> None:
        self._bench = bench
        self._options = bench.options
        self._url = url
        self._cloud = cloud
        self._setting = costs.Setting(url, self._options.microversion, bench.directory, self._options.repeat)

    def measure(self) -> None:
        """Fill the database and measure every line of this shape."""
        self._fill()
        self._select = self._round_trip()
        if self._cloud.shape == 'flat' and self._bench.empty is not None:
            self._costs()
        # The start of a service takes long on a large cloud.
        if self._options.lines & lines_of(self._cloud.shape) & _OVER_HTTP:
            self._over_http()
        if self._begin('log-size'):
            self._bench.results.append(costs.log(self._url, self._cloud))
        for name, measure in scale.LINES.items():
            if self._begin(name):
                self._bench.results.extend(measure(self._setting, self._cloud))

    def _over_http(self) -> None:
        with service.placement(self._url, self._options.workers, self._bench.directory) as served:
            self._connection = client.Connection(served.port)
            if self._cloud.shape == 'flat':
                self._send(lines.claim(lines.READER, self._cloud.uuid_of(lines.middle(self._cloud))))
            for read in lines.READS:
                if read.shape == self._cloud.shape and self._begin(read.name, read.title):
                    self._read(read)
            if self._cloud.shape == 'flat':
                self._others(served)
            self._connection.close()

    def _fill(self) -> None:
        self._report(lines.OTHERS['fill'])
        databases.prepare(self._url)
        started = time.perf_counter()
        databases.fill(self._url, self._cloud)
        if self._cloud.shape == 'flat' and 'fill' in self._options.lines:
            self._add('fill', lines.OTHERS['fill'], 's', [time.perf_counter() - started])

    def _round_trip(self) -> float:
        """Return the median of one statement through the bare driver, in milliseconds."""
        database = driver.Driver(*databases.driver_of(self._url))

        def select() -> float:
            started = time.perf_counter()
            database.select()
            return time.perf_counter() - started

        samples = _sample(select, repeat=200, seconds=1)
        database.close()
        return statistics.median(samples)

    def _others(self, served: service.Service) -> None:
        if self._begin('limit-10-while-claiming'):
            read = next(read for read in lines.READS if read.name == 'limit-10')
            stream = lines.claims_and_releases(self._cloud)
            with callers.repeating(served.port, self._options.microversion, stream):
                title = lines.OTHERS['limit-10-while-claiming']
                self._read(read._replace(name='limit-10-while-claiming', title=title))
        for write in lines.WRITES:
            if self._begin(write.name, write.title):
                self._write(write, served)

    def _begin(self, name: str, title: str | None = None) -> bool:
        """Return whether the line is wanted, after reporting that it is measured next."""
        wanted = name in self._options.lines & lines_of(self._cloud.shape)
        if wanted:
            self._report((title or lines.OTHERS[name]).format(count=f'{self._options.writes:,}'))
        return wanted

    def _report(self, what: str) -> None:
        self._bench.report(f'{self._cloud.size:,} {self._cloud.shape}: {what}')

    def _add(self, name: str, title: str, unit: str, samples: Sequence[float], **more: Any) -> None:
        numbers = from_samples(samples)
        cloud = self._cloud
        more |= {'providers': len(cloud.providers)}
        self._bench.results.append(Result(cloud.shape, cloud.size, name, title, unit, **numbers, **more))

    def _send(self, request: Request) -> client.Response:
        response = self._connection.send(request.encode(self._options.microversion))
        if response.status not in (200, 201, 204):
            raise RuntimeError(f'{request.method} {request.path}: {response.status} {bytes(response.body).decode()}')
        return response

    def _read(self, read: lines.Read) -> None:
        request = Request('GET', read.path(self._cloud), version=read.version)
        response = self._send(request)
        name = f'{self._cloud.shape}-{self._cloud.size}-{read.name}'
        floor.store(self._bench.responses, name, response.status, bytes(response.body))
        floor_connection = client.Connection(self._bench.floor.port)
        samples = self._timed(self._connection, request)
        floor_samples = self._timed(floor_connection, request._replace(path=f'/{name}'))
        floor_connection.close()
        floor_ms = statistics.median(floor_samples) + self._select
        self._add(read.name, read.title, 'ms', samples, floor=floor_ms, length=len(response.body))

    def _timed(self, connection: client.Connection, request: Request) -> list[float]:
        encoded = request.encode(self._options.microversion)
        connection.send(encoded)
        return _sample(lambda: connection.send(encoded).seconds, self._options.repeat, self._options.seconds)

    def _write(self, write: lines.Write, served: service.Service) -> None:
        options = self._options
        floor_names, statements = self._floor_of(write)
        rounds = []
        for number in range(options.rounds):
            script = write.script(self._cloud, options.writes, f'round{number}')
            for request in script.setup:
                self._send(request)
            rounds.append(callers.run(served.port, options.microversion, script.callers))
        floor_scripts = [
            [request._replace(path=f'/{floor_names[n % write.cycle]}') for n, request in enumerate(requests)]
            for requests in script.callers
        ]
        more = {'database': databases.driver_of(self._url), 'statements': statements}
        floor_round = callers.run(self._bench.floor.port, options.microversion, floor_scripts, more)
        convert = _rate if write.unit == '/s' else _seconds
        title = write.title.format(count=f'{options.writes:,}')
        note = f'{" + ".join(map(str, statements))} statements'
        self._add(
            write.name, title, write.unit, [convert(one) for one in rounds], floor=convert(floor_round), note=note
        )

    def _floor_of(self, write: lines.Write) -> tuple[list[str], list[int]]:
        """Return the responses of the floor to the requests of a cycle, and the number of statements of each."""
        script = write.script(self._cloud, 2 * write.callers, 'probe')
        probing = probe.Probe(self._url, self._options.microversion)
        # The last ones, since the first requests create projects and users, and fill caches.
        responses = [probing.send(request) for request in [*script.setup, *script.callers[0]]][-write.cycle :]
        probing.close()
        names = [f'{self._cloud.shape}-{self._cloud.size}-{write.name}-{number}' for number in range(write.cycle)]
        for name, (status, body, _) in zip(names, responses, strict=True):
            floor.store(self._bench.responses, name, status, body)
        return names, [statements for _, _, statements in responses]

    def _costs(self) -> None:
        bench = self._bench
        assert bench.empty is not None
        bench.results += costs.measure(self._setting, self._cloud, bench.empty, self._begin)


def _rate(done: callers.Round) -> float:
    return done.requests / done.seconds


def _seconds(done: callers.Round) -> float:
    return done.seconds


def _sample(timed: Callable[[], float], repeat: int, seconds: float) -> list[float]:
    """Return the milliseconds of each of ``repeat`` runs; fewer runs when they take more than ``seconds`` in all.

    :param timed: makes one run and returns its seconds.
    """
    samples: list[float] = []
    ends = time.perf_counter() + seconds
    while len(samples) < repeat and (len(samples) < _MIN_SAMPLES or time.perf_counter() < ends):
        samples.append(timed() * 1000)
    return samples
