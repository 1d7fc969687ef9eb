"""``placement-manage explain``: why a search for allocation candidates finds something, or nothing."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from oslo_config import cfg
from rich.console import Console
from rich.table import Table
from rich.text import Text

from placement import exception
from placement.audit import checks
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.handlers import pasted_search
from placement.objects import search_limits
from placement.reports import explanation
from placement.reports.explanation import Explanation

_DESCRIPTION = """\
Run a search for allocation candidates and print in one sentence why it finds nothing, or what it finds. Then show how
many providers and trees remain after each rule, in the order in which the rules are applied; how many candidates there
would be without each rule; and which providers only one rule excludes. Changes nothing."""
_EPILOG = (
    "Example: placement-manage explain 'resources=VCPU:4,MEMORY_MB:8192&required=HW_CPU_X86_AVX2&limit=10'."
    ' Exit code: 0, also when nothing is found; 127 when the query is not valid or the database does not answer.'
)


#: Characters of a uuid with its comma.
_UUID_LENGTH = 37


def add_command(program: CommandParser) -> None:
    """Add ``explain`` to the parser of ``placement-manage``."""
    summary = 'why there are, or are not, allocation candidates'
    parser = program.add_command('explain', summary, _DESCRIPTION, _EPILOG, run=_run)
    parser.add_argument(
        'query',
        metavar='QUERY',
        help='query string of GET /allocation_candidates, or a path, a URL or a log line with it; in quotes',
    )
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        help='microversion of the request, from 1.10 (default: the one in the log line, or else'
        ' [placement] max_microversion)',
    )
    parser.add_format()


def _run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    pasted = pasted_search.read(args.query, args.microversion, conf)
    options = explanation.Options(search_limits.for_search(conf.placement))
    try:
        with output.waiting('Reading the resource providers ...'):
            result = explanation.explain(ProviderCache(db).current(), pasted.request, options)
    except exception.NotFound as error:
        raise pasted_search.BadSearch(reason=' '.join(str(error).split())) from error
    if args.format == 'json':
        output.print_json({'query': pasted.query, 'microversion': pasted.microversion, **result.as_data()})
    else:
        _print(result, conf)
    output.warn_of_usage_mismatches(len(checks.find(db, conf, 'usage_mismatch')))
    return 0


def _print(result: Explanation, conf: cfg.ConfigOpts) -> None:
    console = output.console()
    _print_line(console, result.sentence)
    for blocker in result.blockers:
        for note in blocker.notes:
            _print_line(console, f'Note: {note}.')
    console.print(_stages(result, console))
    limit = '' if result.limit is None else f' (limit={result.limit})'
    _print_line(console, f'Candidates: {result.candidates:,}{limit}')
    if result.limits_reached:
        options = search_limits.describe(result.limits_reached, conf.placement)
        _print_line(console, f'Limit reached: [placement] {options}')
    for candidate in result.first_candidates:
        _print_line(console, f'Candidate: {"; ".join(map(str, candidate))}')
    if result.candidates > len(result.first_candidates):
        _print_line(console, f'And {result.candidates - len(result.first_candidates):,} more candidates')
    for failure in result.combination_failures:
        for tree in failure.examples:
            line = f'Conflict: {tree.name} ({tree.uuid}), one of {failure.trees} trees where {tree.detail}'
            _print_line(console, line)
    if result.what_ifs:
        console.print(_what_ifs(result, console))
    for near in result.near_misses:
        _print_line(console, f'Near miss: {near.name} ({near.uuid}) {near.missing}.')


def _print_line(console: Console, text: str) -> None:
    console.print(Text(output.printable(text, console)))


def _stages(result: Explanation, console: Console) -> Table:
    table = Table()
    serving = [f' (for {stage.serving})' if stage.serving else '' for stage in result.stages]
    rules = [f'{stage.rule}{suffix}' for stage, suffix in zip(result.stages, serving, strict=True)]
    cells = _add_rule_column(table, 'Rule', rules, console)
    for heading in ('Providers', 'Trees left', 'Rejected inventories'):
        table.add_column(heading, overflow='fold')
    style = None
    for rule, stage in zip(cells, result.stages, strict=True):
        counts = Text('\n'.join(stage.rejections))
        table.add_row(rule, f'{stage.providers:,}', f'{stage.trees:,}', counts, style=style)
        # The rules after the first one that leaves no tree do not matter.
        style = style if stage.trees else 'dim'
    return table


def _what_ifs(result: Explanation, console: Console) -> Table:
    table = Table()
    rules = _add_rule_column(table, 'Without', [str(one.rule) for one in result.what_ifs], console)
    table.add_column('Candidates', overflow='fold')
    for rule, one in zip(rules, result.what_ifs, strict=True):
        table.add_row(rule, str(one))
    if result.rules_not_tried:
        table.add_row(f'{result.rules_not_tried} more', 'not tried')
    return table


def _add_rule_column(table: Table, heading: str, rules: Sequence[str], console: Console) -> list[Text]:
    """Add a column that does not break uuids; longer words are folded. Return its cells."""
    # A space after each uuid of a list of aggregates, so that a line can be broken there.
    cells = [Text(re.sub('([0-9a-f]{12}),', r'\1, ', output.printable(rule, console))) for rule in rules]
    longest = max((len(word) for cell in cells for word in cell.plain.split()), default=0)
    table.add_column(heading, overflow='fold', min_width=min(longest, _UUID_LENGTH))
    return cells
