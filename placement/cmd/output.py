"""Prints what commands report: text to a terminal or a pipe, JSON, and warnings."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
from collections.abc import Iterator
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from placement import units
from placement.reports.capacity import Summary

#: The width of output that is not to a terminal: more than any line has, so that rich breaks none.
_UNBROKEN = 10_000


def console() -> Console:
    """Make a console for standard output. If that is not a terminal, long lines are not broken."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBROKEN, highlight=False)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show ``what`` and a spinner on standard error during the block, if that is a terminal."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def paged(console: Console, what: str) -> Iterator[None]:
    """Show what the block prints to ``console`` in a pager, if standard output is a terminal.

    The pager is $PAGER, or else less; unless $LESS is set, less exits immediately if everything fits on the screen.

    :param what: shown with a spinner until the pager starts.
    """
    if not sys.stdout.isatty():
        yield
        return
    if pager := os.environ.get('PAGER') or shutil.which('less'):
        # The command sets $LESS, because pydoc, which runs it, replaces the variable since Python 3.13.
        options = shlex.quote(os.environ.get('LESS', 'FRX'))
        os.environ['MANPAGER'] = f'LESS={options} {pager}'
    with console.pager(styles=True), waiting(what):
        yield


def print_json(data: Any) -> None:
    """Print ``data`` as indented JSON in ASCII; other characters and control characters are escaped."""
    console().out(json.dumps(data, indent=2), highlight=False)


def table(name: str, *headings: str) -> Table:
    """Make a table with a column of names, which are folded where the terminal is too narrow, and columns of figures.

    Figures are aligned to the right and never shortened.
    """
    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    made.add_column(name, overflow='fold')
    for heading in headings:
        made.add_column(heading, justify='right', no_wrap=True)
    return made


def figure(text: str) -> Text:
    """Return the text of a figure, dimmed if it is 0."""
    return Text(text, 'dim' if text in ('0', '0%') else '')


def print_summary(summary: Summary) -> None:
    """Print the figures of some trees by resource class: the amounts, and the providers on which no allocation fits."""
    to = console()
    what = 'resource provider' if summary.providers == 1 else 'resource providers'
    to.print(f'{summary.providers:,} {what} in {summary.trees:,} {"tree" if summary.trees == 1 else "trees"}')
    if not summary.classes:
        return
    amounts = table('Class', 'Used of capacity', 'Share', 'Free', 'Max\nallocatable')
    providers = table('Class', 'Providers', 'Fully\nallocated', 'Reserved', 'Over-\ncommitted')
    for one in summary.classes:
        name = one.resource_class
        used = units.used_of_capacity(name, one.used, one.capacity)
        free, largest = (units.amount(name, value, round_down=True) for value in (one.free, one.max_allocatable))
        amounts.add_row(name, *map(figure, (used, units.percent(one.used, one.capacity), free, largest)))
        counts = (one.providers, one.providers_fully_allocated, one.providers_reserved)
        over = f'{one.providers_over_committed:,}'
        if one.over_committed:
            over += f' by {units.amount(name, one.over_committed)}'
        providers.add_row(name, *(figure(f'{count:,}') for count in counts), figure(over))
    for shown in (amounts, providers):
        to.print()
        to.print(shown)


def printable(text: str, to: Console) -> str:
    """Return ``text`` with all characters escaped that ``to`` cannot show or that could control a terminal."""
    shown = ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown.encode(to.encoding, 'backslashreplace').decode(to.encoding)


def warn_of_usage_mismatches(count: int) -> None:
    """Print on standard error that the usage of ``count`` inventories is wrong; nothing if it is 0."""
    if count:
        inventories = '1 inventory' if count == 1 else f'{count} inventories'
        print(
            f'Warning: the recorded usage of {inventories} is not the sum of the allocations. Another program wrote to'
            ' the database. See: placement-manage audit',
            file=sys.stderr,
        )
