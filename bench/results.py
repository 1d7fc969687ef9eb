"""The results: a table in Markdown, JSON, and a plot of time against the number of providers."""

from __future__ import annotations

import dataclasses
import pathlib
import platform
import re
import statistics
import subprocess
from collections.abc import Iterator, Sequence
from typing import Any

#: Units of which less is better, and units of which more is better.
_TIMES, _RATES = ('ms', 's', 'MB'), ('/s',)

#: Line styles of a plot with more lines than colours.
_MARKERS = 'osD^v'

#: Lines that are compared between clouds, and the cloud to compare with if it is there.
_COMPARED = ('limit-10', 'limit-1000', 'refresh')
_USUAL_SIZE = 10_000
#: The targets of comparisons, by size and line of the numerator.
_TARGET_RATIOS = {(1_000_000, 'limit-10'): 2.0, (1_000_000, 'limit-1000'): 2.0, (10_000, 'no-limit'): 6.0}

_BEGIN, _END = '<!-- bench: begin -->', '<!-- bench: end -->'


@dataclasses.dataclass(frozen=True)
class Result:
    """One line of the table."""

    shape: str
    size: int
    name: str
    title: str
    unit: str
    median: float | None
    low: float | None = None
    high: float | None = None
    #: The same of the floor.
    floor: float | None = None
    #: Length of the response, in bytes.
    length: int | None = None
    #: The number of providers of the cloud.
    providers: int = 0
    note: str = ''
    #: The most that it should be: in its unit, and as a multiple of the floor.
    target: float | None = None
    target_ratio: float | None = None

    @property
    def times_floor(self) -> float | None:
        """Its time as a multiple of the floor's."""
        if not self.floor or not self.median:
            return None
        return self.floor / self.median if self.unit in _RATES else self.median / self.floor


def from_samples(samples: Sequence[float]) -> dict[str, Any]:
    """Return median, lowest and highest as arguments of ``Result``."""
    return {'median': statistics.median(samples), 'low': min(samples), 'high': max(samples)}


def table(results: Sequence[Result]) -> str:
    """Return all results as a table in Markdown, with comparisons below the shapes that have several sizes."""
    rows = ['| Cloud | Work | Median | Min | Max | Floor | Times the floor | Target | Response |', '|' + '---|' * 9]
    rows += [_row(result) for result in results]
    return '\n'.join([*rows, *_comparisons(results)])


def _row(result: Result) -> str:
    cloud = f'{result.size:,} {result.shape}' if result.size else result.shape
    cells = [cloud, result.title]
    if result.median is None:
        return '| ' + ' | '.join([*cells, result.note, '', '', '', '', '', '']) + ' |'
    cells += [_amount(result.median, result.unit), _amount(result.low, ''), _amount(result.high, '')]
    cells += [_amount(result.floor, result.unit), '' if result.times_floor is None else f'{result.times_floor:.1f}']
    cells.append(_amount(result.target, result.unit) or _times(result.target_ratio))
    return '| ' + ' | '.join([*cells, result.note or _length(result.length)]) + ' |'


def _amount(number: float | None, unit: str) -> str:
    if number is None:
        return ''
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f'{number:,.{digits}f}{"" if unit in ("", "/s") else " "}{unit}'


def _times(ratio: float | None) -> str:
    return '' if ratio is None else f'{ratio:g} times'


def _length(length: int | None) -> str:
    if length is None:
        return ''
    return f'{length:,} B' if length < 10_000 else f'{length / 1000:,.0f} KB'


def _comparisons(results: Sequence[Result]) -> Iterator[str]:
    """Compare the largest cloud with the usual one, or else the smallest; and all candidates with ten."""
    flat = [one for one in results if one.shape == 'flat' and one.median]
    for name, title in dict.fromkeys((one.name, one.title) for one in flat if one.name in _COMPARED):
        found = {one.size: one for one in flat if (one.name, one.title) == (name, title)}
        base, largest = found.get(_USUAL_SIZE, found[min(found)]), found[max(found)]
        if base is not largest:
            target = _TARGET_RATIOS.get((largest.size, name))
            yield _comparison(f'{largest.size:,} against {base.size:,} flat', title, largest, base, target)
    for ten in (one for one in flat if one.name == 'limit-10'):
        for one in flat:
            if one.name == 'no-limit' and one.size == ten.size:
                target = _TARGET_RATIOS.get((one.size, one.name))
                yield _comparison(f'{one.size:,} flat', f'{one.title}, against limit=10', one, ten, target)


def _comparison(cloud: str, title: str, one: Result, base: Result, target: float | None) -> str:
    assert one.median is not None
    assert base.median is not None
    ratio = one.median / base.median
    return f'| {cloud} | {title} | {ratio:.2f} times | | | | | {_times(target)} | |'


def plot(results: Sequence[Result], path: pathlib.Path, title: str) -> None:
    """Draw the median of each result, and its floor, against the number of providers, on logarithmic axes."""
    # An extra, which the table does not need.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), dpi=120)
    axes = figure.subplots()
    lines: dict[tuple[str, str], list[Result]] = {}
    for one in results:
        lines.setdefault((one.shape, one.title), []).append(one)
    for number, ((shape, work), points) in enumerate(lines.items()):
        sizes = [point.providers for point in points]
        style: dict[str, Any] = {'color': f'C{number % 10}', 'marker': _MARKERS[number // 10 % len(_MARKERS)]}
        axes.plot(sizes, [point.median or 0 for point in points], label=f'{shape}: {work}', **style)
        axes.plot(sizes, [point.floor or 0 for point in points], linestyle=':', markersize=3, **style)
    axes.set(xscale='log', yscale='log', xlabel='providers', ylabel='median, ms (dotted: the floor)')
    axes.set_title(title, fontsize=8)
    axes.grid(visible=True, which='both', alpha=0.3)
    axes.legend(fontsize=8, loc='center left', bbox_to_anchor=(1.0, 0.5))
    figure.savefig(path, bbox_inches='tight')


def machine(database: str) -> str:
    """Return the machine in one line."""
    cpus = re.findall(r'^model name\s*:\s*(.+)$', pathlib.Path('/proc/cpuinfo').read_text(), re.MULTILINE)
    memory = re.search(r'^MemTotal:\s+(\d+)', pathlib.Path('/proc/meminfo').read_text(), re.MULTILINE)
    size = f'{int(memory[1]) / 1e6:.0f} GB' if memory else 'unknown memory'
    processor = f'{len(cpus)} x {cpus[0]}' if cpus else platform.machine()
    return (
        f'{processor}, {size}, Linux {platform.release()}, Python {platform.python_version()}, {database},'
        f' commit {_commit()}'
    )


def _commit() -> str:
    command = ['git', 'describe', '--always', '--dirty']
    root = pathlib.Path(__file__).parent
    described = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    return described.stdout.strip() or 'unknown'


def write_section(page: pathlib.Path, text: str) -> None:
    """Replace the text between the marks of the page. Raises ValueError without marks."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f'{page} has no {_BEGIN} ... {_END}')
    page.write_text(f'{before}{begin}\n{text}\n{end}{after}')
