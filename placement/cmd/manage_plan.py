"""``placement-manage plan``: what fits if hosts are drained or fail."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from oslo_config import cfg
from rich.text import Text

from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.ops.planning import drain, failures, sentences
from placement.ops.planning.drain import DrainPlan, Verdict
from placement.ops.planning.failures import FailureReport
from placement.ops.planning.loads import PlanOptions

FITS, CANNOT, NOT_FOUND = 0, 1, 2
_EXIT_CODES = {Verdict.FITS: FITS, Verdict.CANNOT: CANNOT, Verdict.NOT_FOUND: NOT_FOUND}

_EPILOG = (
    'Exit code: 0 if everything fits; 1 if it is proved that something cannot fit; 2 if no placement was found, without'
    ' a proof; 127 if a provider or aggregate does not exist or the command failed.'
)
_READS = 'Reads one state of the database and changes nothing.'
#: Maximum number of rows of a table.
_ROWS = 20


def add_command(program: CommandParser) -> None:
    """Add ``plan`` and its own commands to the parser of ``placement-manage``."""
    group = program.add_command(
        'plan', 'what fits if hosts are drained or fail', 'Answer what fits before maintenance.'
    )
    parser = group.add_command(
        'drain',
        'plan moves of all consumers of some hosts to the others',
        'Say whether all that is allocated on the trees of some hosts fits on the other hosts, and plan the moves.'
        f' {_READS}',
        _EPILOG,
        run=_drain,
    )
    parser.add_argument('hosts', metavar='HOST', nargs='*', help='name or uuid of a provider; its tree is drained')
    parser.add_argument('--aggregate', metavar='UUID', help='also drain the hosts in this aggregate')
    _add_options(parser)
    parser.add_argument('--spread', action='store_true', help='use as many hosts as possible (default: as few)')
    parser.add_argument(
        '--move-shared', action='store_true', help='also move what sharing providers supply, to others in reach'
    )
    parser.add_format()
    parser = group.add_command(
        'failures',
        'check that the load of each host fits on the others',
        'Say for each host whether its load fits on the others if it fails, and how many hosts may fail together.'
        f' {_READS}',
        _EPILOG,
        run=_failures,
    )
    parser.add_argument('--aggregate', metavar='UUID', help='only the hosts in this aggregate fail')
    _add_options(parser)
    parser.add_argument('--count', metavar='N', type=int, default=_ROWS, help='hosts to list (default: %(default)s)')
    parser.add_format()


def _add_options(parser: CommandParser) -> None:
    parser.add_argument('--keep-traits', action='store_true', help='a destination has the custom traits of the source')
    parser.add_argument(
        '--keep-aggregates', action='store_true', help='a destination is in all aggregates that the source is in'
    )
    parser.add_argument(
        '--isolate', action='store_true', help='what is on two providers of a tree does not come together on one'
    )


def _options(args: argparse.Namespace) -> PlanOptions:
    names = ('isolate', 'keep_traits', 'keep_aggregates', 'spread', 'move_shared')
    return PlanOptions(**{name: getattr(args, name, False) for name in names})


def _print_sentences(texts: Iterable[str]) -> None:
    console = output.console()
    for text in texts:
        console.print(Text(output.printable(text, console)))


# drain -----------------------------------------------------------------------------------------------------------


def _drain(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    with output.waiting('Planning ...'):
        plan = drain.plan_drain(db, args.hosts, args.aggregate, _options(args))
    output.warn_of_usage_mismatches(plan.mismatches)
    if args.format == 'json':
        output.print_json(sentences.drain_document(plan))
    else:
        _print_sentences(sentences.drain_sentences(plan))
        _print_unplaced(plan)
        _print_destinations(plan)
        _print_sentences(['', sentences.MEANING])
    return _EXIT_CODES[plan.verdict]


def _print_unplaced(plan: DrainPlan) -> None:
    if not plan.unplaced:
        return
    console = output.console()
    table = output.table('Not placed', 'Consumers', 'Eligible\nhosts', 'Closest host', 'Lacks there')
    for item in plan.unplaced[:_ROWS]:
        closest = '-' if item.closest is None else sentences.host_name(plan.hosts, item.closest)
        lacks = sentences.amounts(item.lacks) or ('-' if item.closest is None else 'nothing that is left')
        name = output.printable(closest, console)
        table.add_row(sentences.size(plan.hosts, item.shape), f'{item.count:,}', f'{item.eligible:,}', name, lacks)
    console.print()
    console.print(table)
    _print_rest(len(plan.unplaced) - _ROWS, 'size')


def _print_destinations(plan: DrainPlan) -> None:
    destinations = sentences.destinations(plan)
    if not destinations:
        return
    console = output.console()
    table = output.table('Destination', 'Consumers')
    for tree, count in destinations[:_ROWS]:
        table.add_row(output.printable(sentences.host_name(plan.hosts, tree), console), f'{count:,}')
    console.print()
    console.print(table)
    _print_rest(len(destinations) - _ROWS, 'host')
    _print_sentences(['--format json has the moves.'])


def _print_rest(count: int, noun: str) -> None:
    if count > 0:
        _print_sentences([f'And {count:,} more {noun}{"s" if count > 1 else ""}.'])


# failures --------------------------------------------------------------------------------------------------------


def _failures(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    report = failures.check_failures(
        db, _options(args), args.aggregate, lambda trees: output.with_progress('Checking hosts', trees)
    )
    output.warn_of_usage_mismatches(report.mismatches)
    if args.format == 'json':
        output.print_json(sentences.failure_document(report))
    else:
        _print_sentences(sentences.failure_sentences(report))
        _print_failed(report, args.count)
        _print_sentences(['', sentences.MEANING])
    verdicts = {host.verdict for host in report.failed}
    return CANNOT if Verdict.CANNOT in verdicts else NOT_FOUND if verdicts else FITS


def _print_failed(report: FailureReport, count: int) -> None:
    if not report.failed:
        return
    console = output.console()
    table = output.table('Host', 'Consumers', 'Not placed', 'Verdict', 'Resources not placed')
    for host in report.failed[:count]:
        name = output.printable(sentences.host_name(report.hosts, host.tree), console)
        amounts = sentences.amounts(host.left_amounts)
        table.add_row(name, f'{host.consumers:,}', f'{host.left_count:,}', host.verdict.value, amounts)
    console.print()
    console.print(table)
    _print_rest(len(report.failed) - count, 'host')
