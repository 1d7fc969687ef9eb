"""The worked examples of api-ref/candidate-examples.md, read from that page: worlds, queries, candidates and summaries.

In queries aggregates are given by name; callers replace the names by uuids before they send the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.support.candidates.oracle import RP, Body, record
from tests.support.pages import ROOT, Row, rows


class Section(NamedTuple):
    """An example: the rows of its table of providers, and those of its tables of queries."""

    name: str
    providers: list[Row]
    queries: list[Row]


class Example(NamedTuple):
    """The candidates of a query at a minor version, and the providers with summaries."""

    world: str
    query: str
    candidates: str
    summaries: str
    minor: int = 29


def sections() -> Iterator[Section]:
    """The examples of the page. The second table of providers of one is an example of its own: ``X9`` and ``X9-2``."""
    text = (ROOT / 'api-ref' / 'candidate-examples.md').read_text()
    for section in re.split(r'^## ', text, flags=re.MULTILINE)[1:]:
        tables = [list(rows(table)) for table in re.findall(r'(?:^\|.*\n)+', section, flags=re.MULTILINE)]
        starts = [number for number, table in enumerate(tables) if 'Provider' in table[0]]
        for count, (start, end) in enumerate(zip(starts, [*starts[1:], len(tables)], strict=True), start=1):
            queries = [row for table in tables[start + 1 : end] for row in table]
            name = section.split()[0]
            yield Section(name if count == 1 else f'{name}-{count}', tables[start], queries)


def listed(cell: str) -> list[str]:
    """The names in a cell."""
    return [name.strip() for name in cell.split(',') if name and name != 'none']


def inventories(cell: str) -> dict[str, dict[str, Any]]:
    """Classes, and the fields of their inventories that the page gives, including ``used``."""
    found = {}
    for each in filter(None, cell.split(';')):
        (name, total), *fields = (part.split() for part in each.split(','))
        found[name] = {'total': int(total), **{field: json.loads(value) for field, value in fields}}
    return found


def _provider(row: Row) -> RP:
    return RP(
        row['Provider'],
        row['Parent'] or None,
        {name: record(**fields) for name, fields in inventories(row['Inventory']).items()},
        set(listed(row['Traits'])),
        set(listed(row['Aggregates'])),
    )


def _examples() -> Iterator[Example]:
    for section in sections():
        for row in section.queries:
            if 'Query' in row:
                minor = int((row['At'] or '1.29').partition('.')[2])
                summaries = ' '.join(listed(row['Summaries']))
                yield Example(section.name, row['Query'].strip('`'), row['Candidates'], summaries, minor)


def bodies(text: str) -> set[Body]:
    """Parse the notation of the page: ``a{VCPU:1} + b{DISK_GB:2}; ...``."""
    found = set()
    for candidate in text.split(';') if text != 'none' else []:
        body = set()
        for name, amounts in re.findall(r'([\w-]+)\{([^}]*)\}', candidate):
            for item in amounts.split(','):
                rc, amount = item.split(':')
                body.add((name, rc, int(amount)))
        found.add(frozenset(body))
    return found


WORLDS = {section.name: [_provider(row) for row in section.providers] for section in sections()}
EXAMPLES = list(_examples())
