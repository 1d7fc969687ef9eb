"""How commands print: for people on a terminal, in one piece per line into a pipe, or as JSON; and how they fail."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

from oslo_db import exception as db_exc
from rich.console import Console
from sqlalchemy import exc as sa_exc

from placement import exception, installation

#: What a command cannot go on after, and says in one line.
FAILURES = (exception.PlacementError, db_exc.DBError, sa_exc.SQLAlchemyError, KeyboardInterrupt)

#: Columns of a line that no terminal breaks; rich leaves no blanks at the end.
_UNBROKEN = 10_000


def console() -> Console:
    """Standard output: as wide as the terminal, or without line breaks of its own when it is not one."""
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBROKEN, highlight=False)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show on a terminal, on standard error, that a command is busy with ``what``."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def paged(console: Console, what: str) -> Iterator[None]:
    """Show what is printed to ``console`` meanwhile in the reader's pager, if standard output is a terminal.

    That is $PAGER or less, which is told to leave alone what fits on the screen, unless $LESS says otherwise.

    :param what: what the command is busy with until the pager starts.
    """
    if not sys.stdout.isatty():
        yield
        return
    os.environ.setdefault('LESS', 'FRX')
    with console.pager(styles=True), waiting(what):
        yield


class ShowVersion(argparse.Action):
    """The action of ``--version``: print the release that is installed, and end."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help='print the release and exit')

    def __call__(self, parser: argparse.ArgumentParser, *_parsed: Any) -> None:
        """Do it."""
        print(f'placement {metadata.version("placement")}')
        parser.exit()


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that every command of ours takes."""
    parser.add_argument('--version', action=ShowVersion)
    add_configuration_option(parser)


def add_configuration_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--config-file``."""
    parser.add_argument(
        '--config-file',
        metavar='FILE',
        help='configuration file (default: placement.conf in $OS_PLACEMENT_CONFIG_DIR or /etc/placement, if it exists)',
    )


def warn_of_installation(program: str) -> None:
    """Say in one line on standard error what is wrong with the installation, if anything."""
    if trouble := installation.trouble():
        print(f'{program}: warning: {trouble}', file=sys.stderr)


def failed(program: str, error: BaseException) -> None:
    """Say in one line on standard error why ``program`` ends; ``error`` is one of ``FAILURES``."""
    if isinstance(error, exception.PlacementError):
        reason = error.for_operators
    elif isinstance(error, KeyboardInterrupt):
        reason = 'interrupted'
    else:
        reason = 'the database said: ' + str(error).partition('\n')[0]
    print(f'{program}: {reason}', file=sys.stderr)


def print_json(data: Any) -> None:
    """Print ``data`` as indented JSON in ASCII; control characters inside texts come out escaped."""
    console().out(json.dumps(data, indent=2), highlight=False)


def printable(text: str, to: Console) -> str:
    """``text`` with what ``to`` cannot show, or should not obey, as escapes: names may hold any character."""
    shown = ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown.encode(to.encoding, 'backslashreplace').decode(to.encoding)
