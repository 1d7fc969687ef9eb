"""The command: ``python -m bench --help``."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import importlib.util
import itertools
import json
import pathlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from sqlalchemy import exc as sa_exc

from bench import client, databases, lines, results, run, site
from tests.support.servers import ServerError

PAGE = pathlib.Path(__file__).parents[1] / 'doc' / 'performance.md'

_DESCRIPTION = """\
Fills databases with clouds, drives placement-api over HTTP, and prints what each work costs. Every cloud gets a
database of its own, which is dropped at the end. The floor beside a GET is the time in which the same server returns
the same bytes from memory, and one SELECT 1 of the bare driver; beside a write it is a transaction of as many
statements through the bare driver, and a trivial request, by as many callers."""

_CAN_PLOT = importlib.util.find_spec('matplotlib') is not None
_CANNOT_PLOT = "the plot needs matplotlib: pip install '.[bench]'"

_T = TypeVar('_T')

#: Hosts of the cloud of --site.
_SITE_PROVIDERS = 10_000

_DEFAULT_SIZES = {'flat': [1000, 10_000], 'nested': [1000], 'shared': [1000], 'symmetric': [2]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    :param argv: arguments; None takes those of the process.
    :returns: the exit status, 1 when it cannot go on; the reason is on standard error.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.write_doc and not _CAN_PLOT:
        return _failed(_CANNOT_PLOT)
    if arguments.site and (arguments.line or arguments.write_doc):
        parser.error('--site goes with neither --line nor --write-doc')
    if arguments.site and arguments.database == 'sqlite':
        parser.error('--site counts at a database server: choose one with --database')
    try:
        if arguments.site:
            return _measure_site(arguments)
        options = _options(arguments)
        measured, version = _with_progress(run.steps(options), functools.partial(run.run, options))
    except ServerError as error:
        # The message includes the end of the log.
        return _failed(str(error))
    except (sa_exc.SQLAlchemyError, ImportError, OSError, RuntimeError) as error:
        return _failed(str(error).strip().partition('\n')[0])
    except KeyboardInterrupt:
        return _failed('interrupted')
    machine = results.machine(version)
    table = results.table(measured)
    print(f'{machine}\n\n{table}')
    if arguments.output:
        _write(arguments.output, machine, table, measured)
    if arguments.write_doc:
        results.plot(_of_sizes(measured), PAGE.with_suffix('.png'), machine)
        results.write_section(PAGE, f'{machine}.\n\n{table}\n\n![Time against size]({PAGE.stem}.png)')
    return 0


def _measure_site(arguments: argparse.Namespace) -> int:
    providers = (arguments.flat or [_SITE_PROVIDERS])[0]
    options = site.Options(
        size=arguments.site,
        database=arguments.database,
        server_url=arguments.server_url,
        providers=providers,
        rate=arguments.rate,
        seconds=arguments.duration,
        microversion=arguments.microversion,
    )
    measures, version = _with_progress(site.STEPS, functools.partial(site.run, options))
    machine = results.machine(version)
    load = f'{providers:,} flat providers; each second {arguments.rate:g} searches and {arguments.rate:g} claims'
    text = f'{machine}\n\n{load}\n\n{site.table(measures, arguments.site)}'
    print(text)
    if arguments.output:
        arguments.output.mkdir(parents=True, exist_ok=True)
        (arguments.output / 'site.md').write_text(f'{text}\n')
        (arguments.output / 'site.json').write_text(site.as_json(measures))
    return 0


def _failed(reason: str) -> int:
    print(f'bench: {reason}', file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('python -m bench', description=_DESCRIPTION)
    parser.add_argument('--database', choices=databases.KINDS, default='sqlite', help='default: %(default)s')
    parser.add_argument(
        '--server-url',
        metavar='URL',
        help='where databases can be created (default: PLACEMENT_TEST_MARIADB_URL or PLACEMENT_TEST_POSTGRESQL_URL, or'
        ' the local server)',
    )
    for shape, sizes in _DEFAULT_SIZES.items():
        shown = ' '.join(map(str, sizes))
        parser.add_argument(
            f'--{shape}',
            metavar='HOSTS',
            type=_positive,
            nargs='+',
            help=f'sizes of {shape} clouds (default: {shown}, or none when another shape is named)',
        )
    parser.add_argument(
        '--line', metavar='NAME', action='append', choices=lines.NAMES, help='measure only this; may be repeated'
    )
    parser.add_argument(
        '--site',
        metavar='HOSTSxPROCESSES',
        type=site.size,
        help='instead of the lines, count the statements, rows and bytes of so many processes on one database, for each'
        f' request and process, beside those of {site.SMALL}; such as 3x16, with the first size of --flat (default:'
        f' {_SITE_PROVIDERS})',
    )
    parser.add_argument(
        '--rate',
        metavar='N',
        type=_positive_float,
        default=20.0,
        help='with --site: searches in each second, and as many claims (default: %(default)g)',
    )
    parser.add_argument(
        '--duration',
        metavar='S',
        type=_positive_float,
        default=15.0,
        help='with --site: seconds for which each kind of load lasts (default: %(default)g)',
    )
    parser.add_argument('--list', action=_List, help='name all lines and exit')
    parser.add_argument('--workers', metavar='N', type=_positive, default=2, help='processes (default: %(default)s)')
    parser.add_argument(
        '--repeat', metavar='N', type=_positive, default=50, help='most requests behind a median (default: %(default)s)'
    )
    parser.add_argument(
        '--seconds', metavar='S', type=float, default=5.0, help='longest for one median (default: %(default)s)'
    )
    parser.add_argument(
        '--writes',
        metavar='N',
        type=_positive,
        default=1000,
        help='claims, moves or new hosts in each round (default: %(default)s)',
    )
    parser.add_argument(
        '--rounds', metavar='N', type=_positive, default=3, help='rounds of each kind of write (default: %(default)s)'
    )
    parser.add_argument('--microversion', default=client.DEFAULT_MICROVERSION, help='default: %(default)s')
    parser.add_argument(
        '--output', metavar='DIRECTORY', type=pathlib.Path, help='write bench.md, bench.json and bench.png there'
    )
    parser.add_argument('--write-doc', action='store_true', help='put table and plot into doc/performance.md')
    return parser


class _List(argparse.Action):
    def __init__(self, option_strings: list[str], dest: str, **more: object) -> None:
        super().__init__(option_strings, dest, nargs=0, help=str(more['help']))

    def __call__(self, parser: argparse.ArgumentParser, *_parsed: object) -> None:
        titles = {one.name: f'{one.shape}: {one.title}' for one in lines.READS}
        titles |= {one.name: f'flat: {one.title.format(count="new")}' for one in lines.WRITES}
        titles |= {name: f'flat: {title}' for name, title in lines.OTHERS.items()}
        for name in lines.NAMES:
            print(f'{name:24} {titles[name]}')
        parser.exit()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('must be at least 1')
    return number


def _positive_float(text: str) -> float:
    number = float(text)
    if not 0 < number < float('inf'):
        raise argparse.ArgumentTypeError('must be above 0')
    return number


def _options(arguments: argparse.Namespace) -> run.Options:
    given = {shape: getattr(arguments, shape) for shape in _DEFAULT_SIZES}
    sizes = {shape: sizes for shape, sizes in given.items() if sizes is not None} or _DEFAULT_SIZES
    wanted = set(arguments.line or lines.NAMES)
    return run.Options(
        database=arguments.database,
        server_url=arguments.server_url,
        sizes={shape: sizes for shape, sizes in sizes.items() if wanted & run.lines_of(shape)},
        lines=wanted,
        workers=arguments.workers,
        repeat=arguments.repeat,
        seconds=arguments.seconds,
        rounds=arguments.rounds,
        writes=arguments.writes,
        microversion=arguments.microversion,
    )


def _with_progress(steps: int, measure: Callable[[pathlib.Path, Callable[[str], None]], _T]) -> _T:
    """Call ``measure`` with a directory for logs and a function that shows the next of so many steps."""
    console = Console(stderr=True)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn('{task.description}'))
    with (
        tempfile.TemporaryDirectory(prefix='placement-bench-') as directory,
        Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress,
    ):
        task = progress.add_task('starting', total=steps)
        finished = itertools.count()

        def report(work: str) -> None:
            progress.update(task, completed=next(finished), description=work)

        return measure(pathlib.Path(directory), report)


def _of_sizes(measured: list[results.Result]) -> list[results.Result]:
    """Return the results that are plotted against the number of providers."""
    names = {*(line.name for line in lines.SEARCHES), 'limit-10-while-claiming', 'provider'}
    return [one for one in measured if one.name in names]


def _write(directory: pathlib.Path, machine: str, table: str, measured: list[results.Result]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / 'bench.md').write_text(f'{machine}\n\n{table}\n')
    listed = {'machine': machine, 'results': [dataclasses.asdict(one) for one in measured]}
    (directory / 'bench.json').write_text(json.dumps(listed, indent=2))
    if not _CAN_PLOT:
        print(f'bench: {_CANNOT_PLOT}', file=sys.stderr)
    elif plotted := _of_sizes(measured):
        results.plot(plotted, directory / 'bench.png', machine)


if __name__ == '__main__':
    sys.exit(main())
