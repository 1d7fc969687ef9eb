"""The lines about what a process costs beside requests: its start, its memory, and refreshes after writes of others."""

from __future__ import annotations

import functools
import statistics
import time

from bench import reads
from bench.client import Connection
from bench.target import Figure, Line, Target
from bench.writes import claims, consumer

_PROCESSES, _SEARCHES = 8, 400
#: In larger clouds nobody lists everything.
_MAX_LISTED_HOSTS = 100_000
#: The default interval of the refresh in the background is one second.
_BACKGROUND_SECONDS = 2.5
#: The claims of another process, the transactions in which it makes them, and how often that is done in a round.
_TRANSACTIONS = {1: 1, 100: 100, 10_000: 100}
_REPEATS = {1: 10, 100: 2, 10_000: 1}


def _measure_process(target: Target, _round: int) -> list[float]:
    """Measure the start of one process, and its memory after searches and after lists of everything."""
    with target.start(1) as service, Connection(service.port) as connection:

        def memory_after(*names: str) -> float:
            for name in names:
                for _ in range(3):
                    connection.send(target.encode(reads.search(target.cloud, name)))
            return service.memory()

        searched = memory_after('limit-10')
        if target.cloud.size > _MAX_LISTED_HOSTS:
            return [service.start_seconds, searched]
        return [service.start_seconds, searched, memory_after('no-limit', 'providers')]


def _measure_processes(target: Target, _round: int) -> list[float]:
    """Measure the start of several processes of one host, and their memory after searches."""
    searches = [target.encode(reads.search(target.cloud, name)) for name in ('limit-10', 'limit-1000')]
    with target.start(_PROCESSES) as service:
        for number in range(_SEARCHES):
            # So that any process may accept it.
            with Connection(service.port) as connection:
                connection.send(searches[number % 2])
        return [service.start_seconds, service.memory()]


def _measure_refresh(count: int, target: Target, round_: int) -> list[float]:
    """Measure the first search after claims through another process, above one after none."""
    encoded = target.encode(reads.search(target.cloud))
    with Connection(target.searching.port) as connection:
        unchanged = statistics.median(connection.send(encoded).seconds for _ in range(20))
        samples = []
        for repeat in range(_REPEATS[count]):
            _claim_elsewhere(target, 'refresh', count, round_ * _REPEATS[count] + repeat)
            samples.append(connection.send(encoded).seconds)
        return [(statistics.median(samples) - unchanged) * 1000]


def _measure_background_refresh(target: Target, round_: int) -> list[float]:
    """Measure the first search of a process that nobody asked while others claimed."""
    encoded = target.encode(reads.search(target.cloud))
    with Connection(target.service.port) as connection:
        connection.send(encoded)
        _claim_elsewhere(target, 'background', max(_TRANSACTIONS), round_)
        time.sleep(_BACKGROUND_SECONDS)
        return [connection.send(encoded).seconds * 1000]


def _claim_elsewhere(target: Target, name: str, count: int, turn: int) -> None:
    """Claim on ``count`` hosts through another process, in each turn on the next ones."""
    size = count // _TRANSACTIONS[count]
    with Connection(target.other.port) as connection:
        for first in range(0, count, size):
            numbers = range(turn * count + first, turn * count + first + size)
            hosts = [(consumer(name, count, number), target.cloud.host(number)) for number in numbers]
            connection.send(target.encode(claims(hosts)))


def _refresh(count: int) -> Line:
    title = f'refresh of a process after {count:,} claim{"s" if count > 1 else ""} elsewhere'
    measure = functools.partial(_measure_refresh, count)
    return Line(f'refresh-{count}', 'flat', [Figure(title, 'ms')], measure, max_rounds=3, min_hosts=count)


LINES = [
    Line(
        'process',
        'flat',
        [
            Figure('start of one process, to its first search', 's'),
            Figure('its memory (PSS) after searches with a limit', 'MB'),
            Figure('its memory (PSS) after everything was listed', 'MB'),
        ],
        _measure_process,
        max_rounds=3,
    ),
    Line(
        'processes',
        'flat',
        [
            Figure(f'start of {_PROCESSES} processes', 's'),
            Figure(f'memory of all (PSS) after {_SEARCHES:,} searches', 'MB'),
        ],
        _measure_processes,
        max_rounds=3,
    ),
    *map(_refresh, _TRANSACTIONS),
    Line(
        'background-refresh',
        'flat',
        [Figure(f'first search {_BACKGROUND_SECONDS:g} s after {max(_TRANSACTIONS):,} claims elsewhere', 'ms')],
        _measure_background_refresh,
        max_rounds=3,
        min_hosts=max(_TRANSACTIONS),
    ),
]
