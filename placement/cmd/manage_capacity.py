"""``placement-manage capacity``: how full the cloud is, and how many more consumers of a size fit."""

from __future__ import annotations

import argparse
import dataclasses

from oslo_config import cfg
from rich.text import Text

from placement import units
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.ops.display_names import DisplayNames
from placement.ops.planning.fits import Size, count_fits
from placement.ops.reports import capacity
from placement.ops.reports.tree_filter import TreeFilter
from placement.search import syntax

_DESCRIPTION = """\
Show for each resource class how much of the capacity is used and how much is free, the largest amount that one
allocation can have (max allocatable), and on how many providers no allocation fits because they are fully allocated,
fully reserved, or over-committed. Reads one state of the database and changes nothing."""
_EPILOG = (
    'Example: placement-manage capacity --fit VCPU:4,MEMORY_MB:8192 --trait HW_CPU_X86_AVX2.'
    ' Exit code: 0; 127 if a trait, an aggregate or a resource class does not exist or the command failed.'
)


def add_command(program: CommandParser) -> None:
    """Add ``capacity`` to the parser of ``placement-manage``."""
    summary = 'show the capacity and usage of all inventories, and how many more consumers of a size fit'
    parser = program.add_command('capacity', summary, _DESCRIPTION, _EPILOG, run=_run)
    parser.add_argument(
        '--aggregate',
        metavar='AGGREGATE',
        help='only trees with a provider in this aggregate: its uuid, or its name in the names file',
    )
    parser.add_argument(
        '--trait',
        metavar='NAME',
        action='append',
        default=[],
        help='only trees with a provider that has this trait; may be repeated',
    )
    parser.add_argument(
        '--root-trait',
        metavar='NAME',
        action='append',
        default=[],
        help='only trees whose root has this trait or, with ! before the name, lacks it; may be repeated',
    )
    parser.add_argument(
        '--fit',
        metavar='SIZE',
        help='count how many more consumers of this size fit: CLASS:AMOUNT,CLASS:AMOUNT; --trait, --aggregate'
        ' and --root-trait apply like required, member_of and root_required in a request',
    )
    parser.add_names()
    parser.add_format()


#: Maximum number of searches for one count, so that it takes minutes at most.
_SEARCHES = 1_000_000


def _run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    names = output.display_names(conf)
    scope, size = _scope_and_size(args, names)
    snapshot = ProviderCache(db).up_to_date()
    scope.raise_unless_aggregates_exist(snapshot)
    summary = capacity.summary(snapshot, scope)
    count = None
    if size is not None:
        with output.waiting('Counting ...'):
            count = count_fits(snapshot, size.request(), _SEARCHES)
    if args.format == 'json':
        report = dataclasses.asdict(summary)
        report['fit_estimate'] = None if count is None else dataclasses.asdict(count)
        output.print_json(report)
        return 0
    output.print_summary(summary)
    if count is not None:
        console = output.console()
        if summary.classes:
            console.print()
        times = f'{count.at_least}{units.plural(count.fit, "more time")}'
        disabled = f', {count.on_disabled_hosts:,} of them on disabled hosts' if count.on_disabled_hosts else ''
        console.print(Text(f'{output.printable(args.fit, console)} fits {times}{disabled}'))
    return 0


def _scope_and_size(args: argparse.Namespace, names: DisplayNames) -> tuple[TreeFilter, Size | None]:
    """Read the arguments: the trees to include, and the size of a consumer if one is given."""
    aggregate = None if args.aggregate is None else names.aggregate_uuid(args.aggregate)
    roots = syntax.parse_traits(','.join(args.root_trait)) if args.root_trait else (frozenset(), frozenset())
    aggregates = frozenset(() if aggregate is None else (aggregate,))
    scope = TreeFilter(aggregates, frozenset(args.trait), *roots)
    if args.fit is None:
        return scope, None
    return scope, Size(syntax.parse_resources(args.fit), scope.traits, aggregate, *roots)
