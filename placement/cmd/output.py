"""Prints what commands report: text to a terminal or a pipe, JSON, and warnings."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from rich.console import Console

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

    The pager is $PAGER, or else less; unless $LESS is set, less exits at once if everything fits on the screen.

    :param what: shown with a spinner until the pager starts.
    """
    if not sys.stdout.isatty():
        yield
        return
    os.environ.setdefault('LESS', 'FRX')
    with console.pager(styles=True), waiting(what):
        yield


def print_json(data: Any) -> None:
    """Print ``data`` as indented JSON in ASCII; other characters and control characters are escaped."""
    console().out(json.dumps(data, indent=2), highlight=False)


def printable(text: str, to: Console) -> str:
    """``text`` with all characters escaped that ``to`` cannot show or that could control a terminal."""
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
