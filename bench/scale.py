"""Measures a service on a flat cloud with many slots of the change log, processes, candidates, or connections."""

from __future__ import annotations

import contextlib
import cProfile
import http.client
import pstats
import resource
import select
import statistics
import time
from collections.abc import Callable, Iterator

from bench import callers, client, databases, lines, probe, service
from bench.client import Request
from bench.costs import NO_LOG, Setting, claim_elsewhere, result
from bench.results import Result
from bench.shapes import Cloud

_SLOTS = (5, 500, 2000)
_SLOTS_CLAIMING, _CLAIMING_CALLERS = (5, 500), 4
_PROCESSES, _SEARCHES = 8, 1000
#: Of the first ``_PROCESSES``, right after their start on 100,000 hosts.
_MEMORY_TARGET_MB = 600.0
_IDLE_CONNECTIONS = 2000
#: The default interval of the refresh in the background is one second.
_CLAIMS_ELSEWHERE, _BACKGROUND_SECONDS = 10_000, 2.5
#: Requests before a measurement.
_WARM_UP = 20


def _slots(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure a search while the change log has few and many slots, which every search has to check."""
    if not databases.delete_slots(setting.url):
        yield result(cloud, 'slots', 'ms', [], note=NO_LOG)
        return
    with service.placement(setting.url, 1, setting.directory) as served:
        for count in _SLOTS:
            databases.add_slots(setting.url, count)
            samples = _search(served, setting, cloud, 4 * setting.repeat)
            yield result(cloud, 'slots', 'ms', samples, title=f'candidates, limit=10, with {count:,} slots')


def _slots_claiming(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure the same while other processes claim, so that nearly every search refreshes."""
    if not databases.delete_slots(setting.url):
        yield result(cloud, 'slots-claiming', 'ms', [], note=NO_LOG)
        return
    few: float | None = None
    with (
        service.placement(setting.url, 1, setting.directory) as served,
        service.placement(setting.url, 2, setting.directory) as claiming,
    ):
        for count in _SLOTS_CLAIMING:
            databases.add_slots(setting.url, count)
            with contextlib.ExitStack() as stack:
                for caller in range(_CLAIMING_CALLERS):
                    stream = lines.claims_and_releases(cloud, caller)
                    stack.enter_context(callers.repeating(claiming.port, setting.microversion, stream))
                samples = _search(served, setting, cloud, 4 * setting.repeat)
            title = f'candidates, limit=10, with {count:,} slots while {_CLAIMING_CALLERS} callers claim'
            target = None if few is None else 1.5
            yield result(cloud, 'slots-claiming', 'ms', samples, title=title, floor=few, target_ratio=target)
            few = few or statistics.median(samples)


def _background_refresh(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure the first search of a process that nobody asked while others claimed."""
    count = min(cloud.size, _CLAIMS_ELSEWHERE)
    search = _request('limit-10', cloud).encode(setting.microversion)
    with (
        service.placement(setting.url, 1, setting.directory) as served,
        service.placement(setting.url, 1, setting.directory) as other,
    ):
        unchanged = statistics.median(_search(served, setting, cloud, 2 * setting.repeat))
        searching, claiming = client.Connection(served.port), client.Connection(other.port)
        samples = []
        for turn in range(2):
            claim_elsewhere(claiming, setting, cloud, f'background {turn}', count, min(count, 100))
            time.sleep(_BACKGROUND_SECONDS)
            samples.append(searching.send(search).seconds * 1000)
        searching.close()
        claiming.close()
    title = f'first search {_BACKGROUND_SECONDS:g} s after {count:,} claims elsewhere'
    yield result(cloud, 'background-refresh', 'ms', samples, title=title, floor=unchanged, target=20.0)


def _processes(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure start and memory of several processes of one host."""
    name, work = 'processes', f'{_PROCESSES} processes'
    with service.hosts(setting.url, 1, 1, setting.directory) as [one]:
        floor = one.seconds
    with service.hosts(setting.url, 1, _PROCESSES, setting.directory) as [host]:
        title = f'{work}: start until all are ready, against one process'
        yield result(cloud, name, 's', [host.seconds], title=title, floor=floor, target_ratio=1.3)
        target = _MEMORY_TARGET_MB if cloud.size >= 100_000 else None
        title = f'{work}: memory of all (PSS) after the start'
        yield result(cloud, name, 'MB', [host.proportional_memory()], title=title, target=target)
        searches = [_request('limit-10', cloud), _request('limit-1000', cloud)] * (_SEARCHES // 2)
        job = {'port': host.port, 'requests': searches, 'reconnect': True}
        callers.run_jobs(setting.microversion, [job])
        title = f'{work}: memory of all (PSS) after {_SEARCHES:,} searches'
        yield result(cloud, name, 'MB', [host.proportional_memory()], title=title)


def _each_candidate(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure what a candidate adds to an answer, in an application in this process."""
    few, many = _request('limit-10', cloud), _request('limit-1000', cloud)
    more = min(1000, cloud.size) - min(10, cloud.size)
    application = probe.Probe(setting.url, setting.microversion)

    def microseconds(request: Request) -> float:
        started = time.thread_time()
        application.send(request)
        return (time.thread_time() - started) * 1e6

    def function_calls(request: Request) -> int:
        profile = cProfile.Profile()
        profile.runcall(application.send, request)
        return int(pstats.Stats(profile).total_calls)  # type: ignore[attr-defined]

    for request in (few, many) * 3:
        application.send(request)
    times = [(microseconds(few), microseconds(many)) for _ in range(setting.repeat)]
    base = statistics.median(time_ for time_, _ in times)
    calls = function_calls(many) - function_calls(few)
    application.close()
    samples = [(time_ - base) / more for _, time_ in times]
    yield result(cloud, 'each-candidate', 'us', samples, note=f'{calls / more:.1f} calls', target=2.0)


def _idle_connections(setting: Setting, cloud: Cloud) -> Iterator[Result]:
    """Measure a search while other clients keep connections to the same process open."""
    settings = {'OS_SERVER__MAX_CONNECTIONS': str(2 * _IDLE_CONNECTIONS), 'OS_SERVER__KEEPALIVE_TIMEOUT': '600'}
    name = 'idle-connections'
    with service.placement(setting.url, 1, setting.directory, **settings) as served:
        samples, processor = _search_and_use(served, setting, cloud)
        floor = statistics.median(samples)
        with _open_connections(served.port):
            samples, used = _search_and_use(served, setting, cloud)
        note = f'processor: {used:.2f} ms a request, {processor:.2f} without them'
        yield result(cloud, name, 'ms', samples, floor=floor, target_ratio=1.2, note=note)


def _search_and_use(served: service.Service, setting: Setting, cloud: Cloud) -> tuple[list[float], float]:
    """Return the milliseconds of searches, and the processor's milliseconds for each."""
    before = served.processor_seconds()
    # The clock of the processor's time has ticks of 10 ms.
    samples = _search(served, setting, cloud, 20 * setting.repeat)
    return samples, (served.processor_seconds() - before) * 1000 / (len(samples) + _WARM_UP)


@contextlib.contextmanager
def _open_connections(port: int) -> Iterator[None]:
    """Keep connections open on each of which a request was answered.

    :raises RuntimeError: at the end, the service has closed some of them.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 2 * _IDLE_CONNECTIONS), hard), hard))
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        for _ in range(_IDLE_CONNECTIONS):
            connection = http.client.HTTPConnection('127.0.0.1', port, timeout=60)
            stack.callback(connection.close)
            connection.request('GET', '/')
            connection.getresponse().read()
            poll.register(connection.sock, select.POLLIN)
        yield
        if closed := poll.poll(0):
            raise RuntimeError(f'the service closed {len(closed)} of {_IDLE_CONNECTIONS} idle connections')


def _request(name: str, cloud: Cloud) -> Request:
    return next(Request('GET', read.path(cloud)) for read in lines.READS if read.name == name)


def _search(served: service.Service, setting: Setting, cloud: Cloud, count: int) -> list[float]:
    """Return the milliseconds of searches over one connection."""
    encoded = _request('limit-10', cloud).encode(setting.microversion)
    connection = client.Connection(served.port)
    samples = [connection.send(encoded).seconds * 1000 for _ in range(_WARM_UP + count)]
    connection.close()
    return samples[_WARM_UP:]


#: The lines that are measured here, by name.
LINES: dict[str, Callable[[Setting, Cloud], Iterator[Result]]] = {
    'slots': _slots,
    'slots-claiming': _slots_claiming,
    'background-refresh': _background_refresh,
    'processes': _processes,
    'each-candidate': _each_candidate,
    'idle-connections': _idle_connections,
}
