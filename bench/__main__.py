"""The command: ``python -m bench --help``."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import signal
import sys
import tempfile
from collections.abc import Sequence

from rich.console import Console
from sqlalchemy import exc as sa_exc

from bench import client, databases, results, run
from bench.lines import LINES
from bench.target import Settings
from tests.support.servers import ServerError

PAGE = databases.ROOT / 'doc' / 'performance.md'

_DESCRIPTION = """\
Fills databases with clouds, sends requests to placement-api over HTTP, and prints what each work costs. With --against
another checkout is measured in the same rounds, each on databases of its own, which are dropped at the end."""

_DEFAULT_SIZES = {'flat': [1000, 10_000], 'nested': [1000], 'shared': [1000], 'symmetric': [2]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command.

    :param argv: arguments; None takes those of the process.
    :returns: the exit status, 1 when it cannot continue; the reason is on standard error.
    """
    arguments = _parser().parse_args(argv)
    if arguments.list:
        for line in LINES:
            print('\n'.join(f'{line.name:24} {line.shape}: {figure.title}' for figure in line.figures))
        return 0
    try:
        measured, version = _run(_options(arguments))
    except ServerError as error:
        # The message includes the end of the log.
        return _fail(str(error))
    except (sa_exc.SQLAlchemyError, ImportError, OSError, RuntimeError) as error:
        return _fail(str(error).strip().partition('\n')[0])
    except KeyboardInterrupt:
        return _fail('interrupted')
    commits = ' against '.join(results.commit(path) for path in (databases.ROOT, arguments.against) if path)
    text = f'{results.machine(version)}, commit {commits}.\n\n{results.table(measured)}'
    print(text)
    if arguments.output:
        arguments.output.write_text(json.dumps([dataclasses.asdict(result) for result in measured], indent=2))
    if arguments.write_doc:
        results.write_section(PAGE, text)
    return 0


def _fail(reason: str) -> int:
    print(f'bench: {reason}', file=sys.stderr)
    return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        'python -m bench', description=_DESCRIPTION, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        '--database',
        default='sqlite',
        help=f'{", ".join(databases.KINDS)}, on the servers of the tests, or a URL with which databases can be created',
    )
    parser.add_argument('--against', metavar='CHECKOUT', type=_checkout, help='a directory with other sources')
    for shape, sizes in _DEFAULT_SIZES.items():
        usual = ' '.join(map(str, sizes))
        parser.add_argument(
            f'--{shape}',
            metavar='HOSTS',
            type=_positive,
            nargs='+',
            default=argparse.SUPPRESS,
            help=f'sizes of {shape} clouds (default: {usual}, or none when another shape is named)',
        )
    parser.add_argument(
        '--line',
        metavar='NAME',
        action='append',
        choices=[line.name for line in LINES],
        help='measure only this; may be repeated',
    )
    parser.add_argument('--list', action='store_true', help='name all lines and exit')
    parser.add_argument('--rounds', metavar='N', type=_positive, default=5, help='measurements of each line, at most')
    parser.add_argument('--workers', metavar='N', type=_positive, default=2, help='processes of the service')
    parser.add_argument('--requests', metavar='N', type=_positive, default=20, help='behind the median of a round')
    parser.add_argument('--writes', metavar='N', type=_positive, default=500, help='claims, moves or hosts of a round')
    parser.add_argument('--microversion', default=client.DEFAULT_MICROVERSION, help='of most requests')
    parser.add_argument('--output', metavar='FILE', type=pathlib.Path, help='write the values of all rounds, as JSON')
    parser.add_argument('--write-doc', action='store_true', help='put the table into doc/performance.md')
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError('must be at least 1')
    return number


def _checkout(text: str) -> pathlib.Path:
    path = pathlib.Path(text).resolve()
    if not (path / 'placement').is_dir():
        raise argparse.ArgumentTypeError(f'{path} has no directory placement')
    return path


def _options(arguments: argparse.Namespace) -> run.Options:
    return run.Options(
        database=arguments.database,
        sizes={shape: getattr(arguments, shape) for shape in _DEFAULT_SIZES if shape in arguments} or _DEFAULT_SIZES,
        lines=[line for line in LINES if line.name in (arguments.line or [line.name])],
        checkouts=[databases.ROOT, *([arguments.against] if arguments.against else [])],
        rounds=arguments.rounds,
        settings=Settings(
            workers=arguments.workers,
            requests=arguments.requests,
            writes=arguments.writes,
            microversion=arguments.microversion,
        ),
    )


def _run(options: run.Options) -> tuple[list[results.Result], str]:
    """Measure with logs in a temporary directory, and show on a terminal what is measured."""
    with (
        tempfile.TemporaryDirectory(prefix='placement-bench-') as directory,
        Console(stderr=True).status('starting') as status,
    ):
        return run.run(options, pathlib.Path(directory), status.update)


if __name__ == '__main__':
    # Ended by a signal, it stops its services and drops its databases also.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
