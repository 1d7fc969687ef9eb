"""``placement-manage explain``: why a search for allocation candidates finds something, or nothing."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence

from oslo_config import cfg
from rich.console import Console
from rich.table import Table
from rich.text import Text

from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.cmd.command import CommandParser
from placement.db.api import Database
from placement.ops import audit
from placement.ops.explain import explanation, searches_in_text, sentences
from placement.ops.explain.explanation import Explanation
from placement.search.budget import SearchBudget, describe_limits

_DESCRIPTION = """\
Run a search for allocation candidates and print why it finds nothing, or what it finds. Then show how
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
    summary = 'explain why a search finds no allocation candidates'
    parser = program.add_command('explain', summary, _DESCRIPTION, _EPILOG, run=_run)
    parser.add_argument(
        'query',
        metavar='QUERY',
        nargs='?',
        default='-',
        help='query string of GET /allocation_candidates, or a path, a URL or a log line with it; in quotes. Without'
        ' it, or with "-", the query is read from standard input',
    )
    parser.add_argument(
        '--microversion',
        metavar='VERSION',
        help='microversion of the request, from 1.10 (default: the one in the log line, or else'
        ' [placement] max_microversion)',
    )
    parser.add_format()


def _run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    text = args.query
    if text == '-':
        if sys.stdin.isatty():
            print('Paste the query or the line of the log, then press Ctrl-D.', file=sys.stderr)
        text = sys.stdin.buffer.read().decode(errors='replace')
    pasted = searches_in_text.read(text, args.microversion, conf)
    budget = SearchBudget.for_search(conf.placement)
    with output.waiting('Reading the resource providers ...'):
        result = explanation.explain(ProviderCache(db).up_to_date(), pasted.request, budget)
    if args.format == 'json':
        output.print_json(
            {'query': pasted.query, 'microversion': pasted.microversion, **sentences.explanation_document(result)}
        )
    else:
        _print(result, conf)
    output.warn_of_usage_mismatches(len(audit.find(db, conf, 'usage_mismatch')))
    return 0


def _print(result: Explanation, conf: cfg.ConfigOpts) -> None:
    console = output.console()
    _print_line(console, sentences.explanation_sentence(result))
    for blocker in result.blockers:
        for note in blocker.notes:
            _print_line(console, f'Note: {sentences.cause_text(note)}')
    console.print(_stages(result, console))
    limit = '' if result.limit is None else f' (limit={result.limit})'
    _print_line(console, f'Candidates: {result.candidates:,}{limit}')
    if result.limits_reached:
        options = describe_limits(result.limits_reached, conf.placement)
        _print_line(console, f'Limit reached: [placement] {options}')
    for candidate in result.first_candidates:
        supplies = [
            f'{supply.name} {",".join(f"{name}:{amount}" for name, amount in supply.resources.items())}'
            for supply in candidate
        ]
        _print_line(console, f'Candidate: {"; ".join(supplies)}')
    if result.candidates > len(result.first_candidates):
        _print_line(console, f'And {result.candidates - len(result.first_candidates):,} more candidates')
    for failure in result.combination_failures:
        for tree in failure.examples:
            conflict = sentences.conflict_text(failure.reason, tree.contention)
            _print_line(console, f'Conflict: {tree.name} ({tree.uuid}), one of {failure.trees} trees where {conflict}')
    if result.what_ifs:
        console.print(_what_ifs(result, console))
    for near in result.near_misses:
        _print_line(console, f'Near miss: {near.name} ({near.uuid}) {sentences.near_miss_text(near)}.')


def _print_line(console: Console, text: str) -> None:
    console.print(Text(output.printable(text, console)))


def _stages(result: Explanation, console: Console) -> Table:
    table = Table()
    serving = [f' (for {stage.serving})' if stage.serving else '' for stage in result.stages]
    rules = [f'{sentences.rule_text(stage.rule)}{suffix}' for stage, suffix in zip(result.stages, serving, strict=True)]
    cells = _add_rule_column(table, 'Rule', rules, console)
    for heading in ('Providers', 'Trees left', 'Rejected inventories'):
        table.add_column(heading, overflow='fold')
    style = None
    for rule, stage in zip(cells, result.stages, strict=True):
        counts = Text('\n'.join(sentences.rejection_texts(stage.rejected)))
        table.add_row(rule, f'{stage.providers:,}', f'{stage.trees:,}', counts, style=style)
        # After a rule that leaves no tree, the other rules do not matter.
        style = style if stage.trees else 'dim'
    return table


def _what_ifs(result: Explanation, console: Console) -> Table:
    table = Table()
    rules = _add_rule_column(
        table, 'Without', [sentences.rule_text(what_if.rule) for what_if in result.what_ifs], console
    )
    table.add_column('Candidates', overflow='fold')
    for rule, what_if in zip(rules, result.what_ifs, strict=True):
        table.add_row(rule, sentences.what_if_text(what_if.candidates, what_if.lower_bound))
    if result.rules_not_tried:
        table.add_row(f'{result.rules_not_tried} more', 'not tried')
    return table


def _add_rule_column(table: Table, heading: str, rules: Sequence[str], console: Console) -> list[Text]:
    """Add a column that does not break uuids, but folds longer words. Return its cells."""
    # A space after each uuid allows a line break in a list of aggregates.
    cells = [Text(re.sub('([0-9a-f]{12}),', r'\1, ', output.printable(rule, console))) for rule in rules]
    longest = max((len(word) for cell in cells for word in cell.plain.split()), default=0)
    table.add_column(heading, overflow='fold', min_width=min(longest, _UUID_LENGTH))
    return cells
