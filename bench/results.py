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
    #: Length of the answer, in bytes.
    length: int | None = None
    #: The number of providers of the cloud.
    providers: int = 0
    note: str = ''

    @property
    def times_floor(self) -> float | None:
        """Its time as a multiple of the floor's."""
        if not self.floor or not self.median:
            return None
        return self.floor / self.median if self.unit in _RATES else self.median / self.floor


def from_samples(samples: Sequence[float]) -> dict[str, Any]:
    """Median, lowest and highest as arguments of ``Result``."""
    return {'median': statistics.median(samples), 'low': min(samples), 'high': max(samples)}


def table(results: Sequence[Result]) -> str:
    """All results as a table in Markdown, with comparisons below the shapes that have several sizes."""
    rows = ['| Cloud | Work | Median | Min | Max | Floor | Times the floor | Answer |', '|' + '---|' * 8]
    rows += [_row(result) for result in results]
    return '\n'.join([*rows, *_comparisons(results)])


def _row(result: Result) -> str:
    cloud = f'{result.size:,} {result.shape}' if result.size else result.shape
    cells = [cloud, result.title]
    if result.median is None:
        return '| ' + ' | '.join([*cells, result.note, '', '', '', '', '']) + ' |'
    cells += [_amount(result.median, result.unit), _amount(result.low, ''), _amount(result.high, '')]
    cells += [_amount(result.floor, result.unit), '' if result.times_floor is None else f'{result.times_floor:.1f}']
    return '| ' + ' | '.join([*cells, result.note or _length(result.length)]) + ' |'


def _amount(number: float | None, unit: str) -> str:
    if number is None:
        return ''
    digits = 0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2
    return f'{number:,.{digits}f}{"" if unit in ("", "/s") else " "}{unit}'


def _length(length: int | None) -> str:
    if length is None:
        return ''
    return f'{length:,} B' if length < 10_000 else f'{length / 1000:,.0f} KB'


def _comparisons(results: Sequence[Result]) -> Iterator[str]:
    """How the largest cloud compares with the smallest, for the searches with a limit."""
    for name in ('limit-10', 'limit-1000'):
        found = sorted((one for one in results if one.name == name and one.median), key=lambda one: one.size)
        if len(found) > 1 and found[0].median and found[-1].median:
            times = found[-1].median / found[0].median
            sizes = f'{found[-1].size:,} against {found[0].size:,} flat'
            yield f'| {sizes} | {found[0].title} | {times:.2f} times |' + ' |' * 5


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
    """The machine in one line."""
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
    told = subprocess.run(command, cwd=root, check=False, capture_output=True, text=True)
    return told.stdout.strip() or 'unknown'


def write_section(page: pathlib.Path, text: str) -> None:
    """Replace the text between the marks of the page. Raises ValueError without marks."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f'{page} has no {_BEGIN} ... {_END}')
    page.write_text(f'{before}{begin}\n{text}\n{end}{after}')
