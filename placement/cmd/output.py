"""The output of commands: text for a terminal or a pipe, JSON, and error messages."""

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

from placement import exception, package_conflict

#: The exceptions that end a command with a message of one line.
FAILURES = (exception.PlacementError, db_exc.DBError, sa_exc.SQLAlchemyError, KeyboardInterrupt)

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


class ShowVersion(argparse.Action):
    """The action of ``--version``: print the installed release and exit."""

    def __init__(self, option_strings: list[str], dest: str) -> None:
        super().__init__(option_strings, dest, nargs=0, help='print the release and exit')

    def __call__(self, parser: argparse.ArgumentParser, *_parsed: Any) -> None:
        """Print the release and exit."""
        print(f'placement {metadata.version("placement")}')
        parser.exit()


def add_common_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that all our commands have."""
    parser.add_argument('--version', action=ShowVersion)
    add_configuration_option(parser)


def add_configuration_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--config-file``."""
    parser.add_argument(
        '--config-file',
        metavar='FILE',
        help='configuration file (default: placement.conf in $OS_PLACEMENT_CONFIG_DIR or /etc/placement, if it exists)',
    )


def add_configuration_directory_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--config-dir``."""
    parser.add_argument(
        '--config-dir',
        metavar='DIR',
        help='directory whose *.conf files are read after the configuration file, in the order of their names; a later'
        ' value replaces an earlier one',
    )


def configuration_arguments(arguments: argparse.Namespace) -> list[str]:
    """The arguments for oslo.config: the configuration file and directory, if given."""
    options = {'--config-file': arguments.config_file, '--config-dir': arguments.config_dir}
    return [word for option, value in options.items() if value for word in (option, value)]


def warn_of_installation(program: str) -> None:
    """Print a line on standard error if something is wrong with the installation."""
    if trouble := package_conflict.trouble():
        print(f'{program}: warning: {trouble}', file=sys.stderr)


def failed(program: str, error: BaseException) -> None:
    """Print in one line on standard error why ``program`` failed; ``error`` is one of ``FAILURES``."""
    if isinstance(error, exception.PlacementError):
        reason = error.for_operators
    elif isinstance(error, KeyboardInterrupt):
        reason = 'interrupted'
    else:
        reason = 'the database said: ' + str(error).partition('\n')[0]
    print(f'{program}: {reason}', file=sys.stderr)


def print_json(data: Any) -> None:
    """Print ``data`` as indented JSON in ASCII; other characters and control characters are escaped."""
    console().out(json.dumps(data, indent=2), highlight=False)


def printable(text: str, to: Console) -> str:
    """``text`` with all characters escaped that ``to`` cannot show or that could control a terminal."""
    shown = ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
    return shown.encode(to.encoding, 'backslashreplace').decode(to.encoding)
