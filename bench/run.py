"""One run: each cloud in databases of its own, and each line in rounds, the checkouts in turn."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence

from bench import databases
from bench.results import Result
from bench.shapes import SHAPES, Cloud
from bench.statements import Counter
from bench.target import Line, Settings, Target


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of the command."""

    database: str
    #: The number of hosts of each cloud, by shape.
    sizes: dict[str, list[int]]
    lines: list[Line]
    #: The one that is measured, and perhaps another to compare it with.
    checkouts: list[pathlib.Path]
    rounds: int
    settings: Settings


def run(options: Options, directory: pathlib.Path, report: Callable[[str], None]) -> tuple[list[Result], str]:
    """Measure everything.

    :param directory: for logs.
    :param report: called with what is done next.
    :returns: the results, and the database's name and version.
    """
    results: list[Result] = []
    with databases.fresh(options.database) as url:
        version = databases.version(url)
    for shape, sizes in options.sizes.items():
        for size in sizes:
            lines = [line for line in options.lines if line.shape == shape and line.min_hosts <= size]
            if not lines:
                continue
            report(f'{size:,} {shape}: filling the database')
            with contextlib.ExitStack() as stack:
                cloud = SHAPES[shape](size)
                targets = [
                    Target(cloud, options.database, checkout, options.settings, directory, stack)
                    for checkout in options.checkouts
                ]
                counter = Counter(targets[0].url, options.settings.microversion)
                stack.callback(counter.close)
                for line in lines:
                    report(f'{size:,} {shape}: {line.figures[0].title}')
                    values = _measure(line, targets, options.rounds)
                    results += _results(line, cloud, values, _count(line, cloud, counter))
    return results, version


def _measure(line: Line, targets: Sequence[Target], rounds: int) -> list[list[list[float]]]:
    """Measure a line in rounds, in each of them on all targets, and return the figures by target and round."""
    if line.setup:
        for target in targets:
            target.send(*line.setup(target.cloud))
    values: list[list[list[float]]] = [[] for _ in targets]
    in_turn = list(zip(targets, values, strict=True))
    for number in range(min(rounds, line.max_rounds)):
        # So that neither is always measured right after the other.
        for target, rounds_of_target in in_turn if number % 2 == 0 else in_turn[::-1]:
            rounds_of_target.append(line.measure(target, number))
    return values


def _count(line: Line, cloud: Cloud, counter: Counter) -> list[tuple[int, int]]:
    """Return the number of statements of each request of a work, and the length of each response."""
    requests = line.requests(cloud) if line.requests else []
    # The first of equal ones fills caches.
    return [counter.send(request) for request in (requests * 2 if len(requests) == 1 else requests)][-line.counted :]


def _results(
    line: Line, cloud: Cloud, values: list[list[list[float]]], counts: list[tuple[int, int]]
) -> Iterator[Result]:
    # In a large cloud the last figures of a line may be missing.
    for position, figure in enumerate(line.figures[: len(values[0][0])]):
        measured, *others = ([figures[position] for figures in rounds] for rounds in values)
        yield Result(
            cloud=f'{cloud.size:,} {cloud.shape}',
            name=line.name,
            title=figure.title,
            unit=figure.unit,
            values=measured,
            other_values=others[0] if others else [],
            statements=[statements for statements, _ in counts],
            response_bytes=counts[-1][1] if counts else 0,
        )
