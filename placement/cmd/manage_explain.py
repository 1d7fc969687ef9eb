"""``placement-manage explain``: why a search for allocation candidates finds something, or nothing."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from oslo_config import cfg
from rich.table import Table
from rich.text import Text

from placement import units
from placement.cache.refresh import ProviderCache
from placement.cmd import output
from placement.db.api import Database
from placement.ops.audit import audit
from placement.ops.explain import explanation, searches_in_text, sentences
from placement.search.budget import Limit, SearchBudget, describe_limits

#: Characters of a uuid with its comma.
_UUID_LENGTH = 37


def run(args: argparse.Namespace, conf: cfg.ConfigOpts, db: Database) -> int:
    """Run a search, and print why it finds something or nothing."""
    text = args.query
    if text == '-':
        if sys.stdin.isatty():
            print('Paste the query or the line of the log, then press Ctrl-D.', file=sys.stderr)
        text = sys.stdin.buffer.read().decode(errors='replace')
    pasted = searches_in_text.read(text, args.microversion, conf)
    budget = SearchBudget.for_search(conf.placement)
    with output.waiting('Reading the resource providers ...'):
        result = explanation.explain(ProviderCache(db).up_to_date(), pasted.request, budget)
    document = sentences.Writer(output.display_names(conf)).document(result)
    if args.format == 'json':
        output.print_json({'query': pasted.query, 'microversion': pasted.microversion, **document})
    else:
        _print(document, conf)
    output.warn_of_usage_mismatches(len(audit.find(db, conf, 'usage_mismatch')))
    return 0


def _print(document: Mapping[str, Any], conf: cfg.ConfigOpts) -> None:
    """Print the document of an explanation."""
    console = output.console()
    output.print_lines([' '.join(document['sentences'])])
    if document['stages']:
        console.print(_stages(document))
    limit = '' if document['limit'] is None else f' (limit={document["limit"]})'
    lines = [f'Candidates: {document["candidates"]:,}{limit}']
    if document['limits_reached']:
        options = describe_limits(map(Limit, document['limits_reached']), conf.placement)
        lines.append(f'Limit reached: [placement] {options}')
    for conflict in document['conflicts']:
        root, groups = conflict['example'], ','.join(conflict['groups'])
        where = f'one of {units.plural(conflict["trees"], "tree")} where {conflict["reason"]} {groups}'.rstrip()
        lines.append(f'Conflict: {root["name"]} ({root["uuid"]}), {where}')
    output.print_lines(lines)
    if document['states'] or document['blocked']:
        console.print(_blocked(document))
    output.print_lines(
        f'Pool: {pool["provider"]["name"]} ({pool["provider"]["uuid"]}) {pool["text"]}' for pool in document['pools']
    )


def _stages(document: Mapping[str, Any]) -> Table:
    table = Table()
    cells = _add_rule_column(table, 'Rule', [stage['rule']['text'] for stage in document['stages']])
    for heading in ('Trees left', 'Excluded'):
        table.add_column(heading, overflow='fold')
    style = None
    for rule, stage in zip(cells, document['stages'], strict=True):
        excluded = ', '.join(sentences.excluded_texts(stage['excluded']))
        table.add_row(rule, f'{stage["trees"]:,}', excluded, style=style)
        # After a rule that leaves no tree, the other rules do not matter.
        style = style if stage['trees'] else 'dim'
    return table


def _blocked(document: Mapping[str, Any]) -> Table:
    """Return the table of what keeps trees from serving the request."""
    table = Table()
    table.add_column('Trees')
    rows = {fact['text']: fact for fact in [*document['states'], *document['blocked']]}
    cells = _add_rule_column(table, 'that', list(rows))
    table.add_column('for example', overflow='fold')
    for cell, fact in zip(cells, rows.values(), strict=True):
        examples = ', '.join(root['name'] for root in fact['examples'])
        table.add_row(f'{fact["trees"]:,}', cell, output.shown(examples))
    return table


def _add_rule_column(table: Table, heading: str, rules: Sequence[str]) -> list[Text]:
    """Add a column that does not break uuids, but folds longer words. Return its cells."""
    # A space after each uuid allows a line break in a list of aggregates.
    cells = [Text(re.sub('([0-9a-f]{12}),', r'\1, ', output.shown(rule))) for rule in rules]
    longest = max((len(word) for cell in cells for word in cell.plain.split()), default=0)
    table.add_column(heading, overflow='fold', min_width=min(longest, _UUID_LENGTH))
    return cells
