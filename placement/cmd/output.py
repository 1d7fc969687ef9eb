"""Prints what commands report: text to a terminal or a pipe, JSON, and warnings."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import json
import os
import shlex
import shutil
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
from oslo_config import cfg
from rich import box
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from placement import log_format, units
from placement.ops.display_names import DisplayNames

if TYPE_CHECKING:
    from placement.ops.reports.consumer_reports import ConsumerReport

T = TypeVar('T')

#: The delay until a progress bar appears.
_PROGRESS_DELAY_SECONDS = 2.0
#: The width of output that does not go to a terminal. It exceeds the length of every line, so that rich breaks none.
_UNBROKEN = 10_000


class _Console(Console):
    """A console that leaves it to ``command.run_command`` what happens if nobody reads its output any longer."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def console() -> Console:
    """Make a console for standard output. If this is not a terminal, do not break long lines."""
    return _Console(file=sys.stdout, width=None if sys.stdout.isatty() else _UNBROKEN, highlight=False)


@contextlib.contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show ``what`` and a spinner on standard error during the block, if this is a terminal."""
    console = Console(stderr=True)
    with console.status(what) if console.is_terminal else contextlib.nullcontext():
        yield


def with_progress(title: str, items: list[T]) -> Iterable[T]:
    """Yield the items. After ``_PROGRESS_DELAY_SECONDS`` seconds a terminal shows a progress bar, on standard error."""
    started = time.monotonic()
    console = Console(stderr=True)
    progress = Progress(console=console, transient=True, disable=not console.is_terminal)
    task = progress.add_task(title, total=len(items))
    try:
        for item in items:
            if not progress.live.is_started and time.monotonic() - started > _PROGRESS_DELAY_SECONDS:
                progress.start()
            yield item
            progress.advance(task)
    finally:
        # Otherwise rich 13 prints an empty line.
        if progress.live.is_started:
            progress.stop()


@contextlib.contextmanager
def paged(console: Console, what: str) -> Iterator[None]:
    """If standard output is a terminal, show in a pager what the block prints to ``console``.

    The pager is $PAGER, or otherwise less. Unless $LESS is set, less exits if everything fits on the screen.

    :param what: a text that is shown with a spinner until the pager starts.
    """
    if not sys.stdout.isatty():
        yield
        return
    if pager := os.environ.get('PAGER') or shutil.which('less'):
        # The command line sets $LESS, because pydoc runs it, and since Python 3.13 pydoc replaces the variable.
        options = shlex.quote(os.environ.get('LESS', 'FRX'))
        os.environ['MANPAGER'] = f'LESS={options} {pager}'
    with console.pager(styles=True), waiting(what):
        yield


def print_json(data: Any) -> None:
    """Print ``data`` as indented JSON in ASCII. Escape other characters and control characters.

    Times become texts in the format of ISO 8601, and dataclasses become objects.
    """
    # Not with rich, which needs gigabytes of memory and minutes for 100 MB of text.
    print(_json(data))


def print_json_list(name: str, items: Iterable[Any]) -> None:
    """Print an object with one member as ``print_json`` does, item by item, so that memory holds only one of them.

    :param name: the name of the member, an array.
    """
    write = sys.stdout.write
    write(f'{{\n  {json.dumps(name)}: [')
    end = ']\n}\n'
    separator = '\n    '
    for item in items:
        write(separator + _json(item).replace('\n', '\n    '))
        separator, end = ',\n    ', '\n  ]\n}\n'
    write(end)


def _json(data: Any) -> str:
    """Return ``data`` as indented JSON in ASCII."""
    # orjson takes a tenth of the time of json, but does not escape other characters, nor write integers of any size.
    with contextlib.suppress(TypeError):
        text = orjson.dumps(data, option=orjson.OPT_INDENT_2).decode()
        if text.isascii():
            return text
    return json.dumps(
        data,
        indent=2,
        default=lambda value: value.isoformat() if isinstance(value, dt.datetime) else dataclasses.asdict(value),
    )


def table(name: str, *headings: str) -> Table:
    """Make a table with one column of names and several columns of figures.

    Names are folded if the terminal is too narrow. Figures are aligned to the right and never shortened.
    """
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(name, overflow='fold')
    for heading in headings:
        table.add_column(heading, justify='right', no_wrap=True)
    return table


def print_tables(*tables: Table) -> None:
    """Print tables, each after an empty line."""
    to = console()
    for table in tables:
        to.print()
        to.print(table)


def figure(text: str) -> Text:
    """Return the text of a figure, dimmed if it is 0."""
    return Text(text, 'dim' if text in ('0', '0%') else '')


def shown(text: str) -> str:
    """Escape all characters that standard output cannot show or that could control a terminal."""
    encoding = sys.stdout.encoding or 'utf-8'
    return log_format.printable(text).encode(encoding, 'backslashreplace').decode(encoding)


def escaped(text: str, style: str = '') -> Text:
    """Return ``text`` for a table or a tree, escaped by ``shown``. rich would read [] as a style."""
    return Text(shown(text), style)


def print_lines(texts: Iterable[str]) -> None:
    """Print lines, escaped by ``shown``."""
    to = console()
    for text in texts:
        to.print(escaped(text))


def describe_consumer(consumer: ConsumerReport, names: DisplayNames) -> str:
    """Return the type, project and user of a consumer."""
    if consumer.project is None or consumer.user is None:
        return 'has no record of its project and user'
    owner = f'of project {names.label(consumer.project)}, user {names.label(consumer.user)}'
    return f'{consumer.type} {owner}' if consumer.type else owner


def display_names(conf: cfg.ConfigOpts) -> DisplayNames:
    """Return the names of ``[placement] names_file`` or ``--names``. A command has no log, so standard error warns."""
    return DisplayNames(conf.placement.names_file, lambda text: print(f'Warning: {text}', file=sys.stderr))


def warn_of_usage_mismatches(count: int) -> None:
    """Print on standard error that the usage of ``count`` inventories is wrong. Print nothing for 0."""
    if count:
        inventories = units.plural(count, 'inventory', 'inventories')
        print(
            f'Warning: the recorded usage of {inventories} is not the sum of the allocations. Another program wrote to'
            ' the database. See: placement-manage audit',
            file=sys.stderr,
        )
