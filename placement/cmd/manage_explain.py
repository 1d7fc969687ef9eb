"""``placement-manage explain``: why there are, or are not, allocation candidates for a request."""

from __future__ import annotations

import argparse
from typing import Any

from oslo_config import cfg
from rich.table import Table
from rich.text import Text

from placement import exception
from placement.candidates.budget import Bound
from placement.candidates.funnel import Funnel, Stage
from placement.cmd import output
from placement.db.api import Database
from placement.handlers import candidate_query
from placement.objects import allocation_candidate, candidate_bounds
from placement.web import microversion
from placement.web.context import RequestContext
from placement.web.query import BadQuery

_DESCRIPTION = """\
Run a search for allocation candidates and show what each part of the request left over, in the order in which the
parts are applied: first every resource class, trait and aggregate of every group, then what kept the groups from being
placed together, then the limit. When nothing is found, the providers that came closest are named. Reads only."""
_EPILOG = (
    "Example: placement-manage explain 'resources=VCPU:4,MEMORY_MB:8192&required=HW_CPU_X86_AVX2&limit=10'."
    ' Exit code: 0, also when nothing is found; 127 when the query is not valid or the database does not answer.'
)


class BadRequest(exception.PlacementError):
    """The query string or the microversion is not one that the API would take."""

    template = '{reason}'


def add_parser(commands: Any) -> None:
    """Add ``explain`` to the parser of ``placement-manage``."""
    parser = commands.add_parser(
        'explain', help='why there are, or are not, allocation candidates', description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument('query', metavar='QUERY', help='query string of GET /allocation_candidates, quoted')
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        default=microversion.max_version_string(),
        help='microversion of the request, from 1.10 (default: %(default)s)',
    )
    parser.add_argument('--format', choices=('table', 'json'), default='table', help='how to print the account')
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    context = RequestContext(conf=conf, db=db)
    try:
        request = candidate_query.parse(args.query.removeprefix('?'), _version(args.microversion), conf)
        with output.waiting('Reading the resource providers ...'):
            funnel = allocation_candidate.explain(context, request)
    except (BadQuery, exception.NotFound) as error:
        raise BadRequest(reason=' '.join(str(error).split())) from error
    if args.format == 'json':
        output.print_json(_as_data(funnel))
    else:
        _print(funnel, conf)
    return 0


def _version(text: str) -> tuple[int, int]:
    if text not in microversion.VERSIONS or text in microversion.VERSIONS[:10]:
        raise BadRequest(
            reason=f'There is no search for candidates at microversion {text}: it takes 1.10 to'
            f' {microversion.max_version_string()}'
        )
    major, minor = text.split('.')
    return int(major), int(minor)


def _as_data(funnel: Funnel) -> dict[str, Any]:
    return {
        'stages': [
            {
                'group': stage.group,
                'rule': stage.rule,
                'subject': stage.subject,
                'providers': stage.providers,
                'trees': stage.trees,
                'refused': {reason.name.lower(): count for reason, count in stage.refused.items()},
            }
            for stage in funnel.stages
        ],
        'grouping': [
            {'group': group, 'reason': reason.name.lower(), 'times': times}
            for (group, reason), times in funnel.grouping.items()
        ],
        'limit': funnel.limit,
        'candidates': funnel.found,
        'stopped_at': [bound.value for bound in Bound if bound in funnel.bounds],
        'nearest_misses': [
            {
                'name': miss.name,
                'uuid': miss.uuid,
                'group': miss.group,
                'resource_class': miss.resource_class,
                'wanted': miss.wanted,
                'left': miss.left,
            }
            for miss in funnel.misses
        ],
    }


def _print(funnel: Funnel, conf: cfg.ConfigOpts) -> None:
    console = output.console()
    table = Table('Rule', 'Providers', 'Trees left', 'Have the class, but')
    for stage in funnel.stages:
        table.add_row(Text(_rule(stage)), str(stage.providers), str(stage.trees), _refusals(stage))
    console.print(table)
    for (group, reason), times in funnel.grouping.items():
        console.print(Text(f'Grouping, resources{group}, {times} times: {reason.value}'))
    cut = '' if funnel.limit is None else f' (limit={funnel.limit})'
    console.print(Text(f'Candidates: {funnel.found}{cut}'))
    if funnel.bounds:
        console.print(Text(f'Stopped at [placement] {candidate_bounds.in_words(funnel.bounds, conf.placement)}'))
    for miss in funnel.misses:
        lack = f'{miss.wanted - miss.left} less than the {miss.wanted} asked for'
        name = output.printable(miss.name, console)
        console.print(Text(f'Close: {name} ({miss.uuid}) has {miss.left} of {miss.resource_class} left, {lack}.'))


def _rule(stage: Stage) -> str:
    return f'{stage.rule}{stage.group} {stage.subject}'


def _refusals(stage: Stage) -> Text:
    return Text('\n'.join(f'{count}: {reason.value}' for reason, count in stage.refused.items()))
