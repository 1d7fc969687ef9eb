"""The results, as a table in Markdown."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import platform
import re
import statistics
import subprocess
from collections.abc import Sequence

from bench.databases import ROOT

_BEGIN, _END = '<!-- bench: begin -->', '<!-- bench: end -->'


@dataclasses.dataclass(frozen=True)
class Result:
    """One row of the table."""

    cloud: str
    name: str
    title: str
    unit: str
    #: Of each round.
    values: list[float]
    #: Those of the other checkout in the same rounds.
    other_values: list[float] = dataclasses.field(default_factory=list)
    #: Statements of the request, or of each request of the work, and the bytes of the last response.
    statements: list[int] = dataclasses.field(default_factory=list)
    response_bytes: int = 0


def table(results: Sequence[Result]) -> str:
    """Return all results as a table in Markdown, with the other checkout if there is one."""
    columns = ['Cloud', 'Name', 'Work', 'Median', 'Rounds', 'Statements', 'Response']
    if any(result.other_values for result in results):
        columns[5:5] = ['Other', 'Ratio', 'Ratios of rounds']
    cells = [columns, ['---'] * len(columns), *([cell[name] for name in columns] for cell in map(_cells, results))]
    return '\n'.join(f'| {" | ".join(row)} |' for row in cells)


def _cells(result: Result) -> dict[str, str]:
    ratios = [value / other for value, other in zip(result.values, result.other_values, strict=False) if other]
    return {
        'Cloud': result.cloud,
        'Name': f'`{result.name}`',
        'Work': result.title,
        'Median': _amount(result.values, result.unit),
        'Rounds': _range(result.values),
        'Other': _amount(result.other_values, result.unit),
        'Ratio': f'{statistics.median(ratios):.2f}' if ratios else '',
        'Ratios of rounds': _range(ratios),
        'Statements': ' + '.join(map(str, result.statements)),
        'Response': _size(result.response_bytes),
    }


def _amount(values: Sequence[float], unit: str) -> str:
    return f'{_number(statistics.median(values))}{"" if unit == "/s" else " "}{unit}' if values else ''


def _range(values: Sequence[float]) -> str:
    return f'{_number(min(values))} to {_number(max(values))}' if len(values) > 1 else ''


def _number(number: float) -> str:
    return f'{number:,.{0 if abs(number) >= 100 else 1 if abs(number) >= 10 else 2}f}'


def _size(count: int) -> str:
    return '' if not count else f'{count:,} B' if count < 10_000 else f'{count / 1000:,.0f} KB'


def machine(database: str) -> str:
    """Return the machine, how busy it is, and the commit, in one line."""
    processors = re.findall(r'^model name\s*:\s*(.+)$', pathlib.Path('/proc/cpuinfo').read_text(), re.MULTILINE)
    memory = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 1e9
    return (
        f'{len(processors)} x {processors[0] if processors else platform.machine()}, {memory:.0f} GB,'
        f' Linux {platform.release()}, Python {platform.python_version()}, {database},'
        f' load {os.getloadavg()[2]:.1f} in the last 15 minutes'
    )


def commit(checkout: pathlib.Path = ROOT) -> str:
    """Return the commit of a checkout, or ``unknown``."""
    command = ['git', 'describe', '--always', '--dirty']
    described = subprocess.run(command, cwd=checkout, check=False, capture_output=True, text=True)
    return described.stdout.strip() or 'unknown'


def write_section(page: pathlib.Path, text: str) -> None:
    """Replace the text between the marks of the page. Raises ValueError without marks."""
    before, begin, rest = page.read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not end:
        raise ValueError(f'{page} has no {_BEGIN} ... {_END}')
    page.write_text(f'{before}{begin}\n{text}\n{end}{after}')
