"""``placement-manage capacity``: how full the cloud is, and how many more consumers of a size fit."""

from __future__ import annotations

import argparse
import dataclasses

from oslo_config import cfg
from rich.console import Console
from rich.text import Text

from placement import exception
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.reports import capacity
from placement.reports.fit_estimate import FitEstimate, Size, estimate_fit
from placement.reports.tree_filter import TreeFilter
from placement.web import query, validation

_DESCRIPTION = """\
Show for each resource class how much of the capacity is used and how much is free, the largest amount that one
allocation can have (max allocatable), and on how many providers no allocation fits because they are fully allocated,
reserved as a whole, or over-committed. Reads one state of the database, changes nothing."""
_EPILOG = (
    'Example: placement-manage capacity --fit VCPU:4,MEMORY_MB:8192 --trait HW_CPU_X86_AVX2.'
    ' Exit code: 0; 127 when a trait or resource class does not exist or the command failed.'
)


class BadRequest(exception.PlacementError):
    """An argument is invalid."""

    template = '{reason}'


def add_command(program: CommandParser) -> None:
    """Add ``capacity`` to the parser of ``placement-manage``."""
    summary = 'the capacity and usage of all inventories, and how many more consumers of a size fit'
    parser = program.add_command('capacity', summary, _DESCRIPTION, _EPILOG, run=_run)
    parser.add_argument('--aggregate', metavar='UUID', help='only trees with a provider in this aggregate')
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
        help='only trees whose root has this trait, or with ! before the name does not have it; may be repeated',
    )
    parser.add_argument(
        '--fit',
        metavar='SIZE',
        help='count how many more consumers of this size fit: CLASS:AMOUNT,CLASS:AMOUNT; --trait, --aggregate'
        ' and --root-trait apply like required, member_of and root_required in a request',
    )
    parser.add_format()


#: Maximum number of searches for one count. They take minutes.
_SEARCHES = 1_000_000


def _run(args: argparse.Namespace, _conf: cfg.ConfigOpts, db: Database) -> int:
    try:
        scope, size = _scope_and_size(args)
        state = ProviderCache(db).current()
        summary = capacity.summary(state, scope)
        more = None
        if size is not None:
            with output.waiting('Counting ...'):
                more = estimate_fit(state, size, _SEARCHES)
    except (query.BadQuery, exception.NotFound) as error:
        raise BadRequest(reason=' '.join(str(error).split())) from error
    if args.format == 'json':
        output.print_json(
            {**dataclasses.asdict(summary), 'fit_estimate': None if more is None else dataclasses.asdict(more)}
        )
    else:
        output.print_summary(summary)
        if more is not None:
            console = output.console()
            if summary.classes:
                console.print()
            console.print(Text(_sentence(args.fit, more, console)))
    return 0


def _scope_and_size(args: argparse.Namespace) -> tuple[TreeFilter, Size | None]:
    """Read the arguments: the trees to include, and the size of a consumer if one is given."""
    if args.aggregate is not None and not validation.is_uuid(args.aggregate):
        raise BadRequest(reason=f'An aggregate is given by its uuid, which {args.aggregate!r} is not.')
    aggregate = None if args.aggregate is None else validation.canonical_uuid(args.aggregate)
    roots = query.parse_traits(','.join(args.root_trait)) if args.root_trait else query.TraitFilter()
    aggregates = frozenset(() if aggregate is None else (aggregate,))
    scope = TreeFilter(aggregates, frozenset(args.trait), roots.required, roots.forbidden)
    if args.fit is None:
        return scope, None
    return scope, Size(query.parse_resources(args.fit), scope.traits, aggregate, roots.required, roots.forbidden)


def _sentence(size: str, more: FitEstimate, console: Console) -> str:
    at_least = '' if more.complete else 'At least '
    upper_bound = '' if more.fit == more.upper_bound else f' (upper bound: {more.upper_bound:,})'
    return f'{at_least}{more.fit:,} more of {output.printable(size, console)} fit{upper_bound}'
