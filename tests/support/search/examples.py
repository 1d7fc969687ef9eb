"""The worked examples of api-ref/candidate-examples.md: topologies, queries, candidates and summaries.

In queries aggregates and providers are given by name; callers replace the names by uuids before they send the query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from tests.support.pages import ROOT, Row, rows
from tests.support.search.oracle import RP, Body, Entry, Mappings, record


class Section(NamedTuple):
    """An example: the rows of its table of providers, and those of its tables of queries."""

    name: str
    providers: list[Row]
    queries: list[Row]


class Example(NamedTuple):
    """The candidates of a query at a minor version, and the providers with summaries."""

    topology: str
    query: str
    candidates: str
    summaries: str
    minor: int = 29

    def entries(self) -> set[Entry]:
        """The candidates, with their mappings since 1.34."""
        candidates = entries(self.candidates)
        if self.minor >= 34:
            return {entry if entry.mappings else self._with_mappings(entry.body) for entry in candidates}
        return candidates

    def _with_mappings(self, body: Body) -> Entry:
        """The candidate of a single group, whose mappings follow from its allocations."""
        [suffix] = {key.removeprefix('resources') for key, _ in parse_qsl(self.query) if key.startswith('resources')}
        return Entry(body, frozenset({(suffix, frozenset(name for name, _, _ in body))}))


class Rejection(NamedTuple):
    """A query that is answered with 400, and what the detail contains."""

    topology: str
    query: str
    phrase: str
    code: str
    minor: int


def sections() -> Iterator[Section]:
    """The examples of the page. The second table of providers of one is an example of its own: ``X9`` and ``X9-2``.

    An example without a table of providers names the one whose providers it has.
    """
    text = (ROOT / 'api-ref' / 'candidate-examples.md').read_text()
    providers: dict[str, list[Row]] = {}
    for section in re.split(r'^## ', text, flags=re.MULTILINE)[1:]:
        tables = [list(rows(table)) for table in re.findall(r'(?:^\|.*\n)+', section, flags=re.MULTILINE)]
        same = re.search(r'The providers of \[(\w+)\]', section)
        if same:
            tables.insert(0, providers[same[1]])
        starts = [number for number, table in enumerate(tables) if 'Provider' in table[0]]
        for count, (start, end) in enumerate(zip(starts, [*starts[1:], len(tables)], strict=True), start=1):
            queries = [row for table in tables[start + 1 : end] for row in table]
            name = section.split()[0]
            providers.setdefault(name, tables[start])
            yield Section(name if count == 1 else f'{name}-{count}', tables[start], queries)


def listed(cell: str) -> list[str]:
    """The names in a cell."""
    return [name.strip() for name in cell.split(',') if name and name != 'none']


def inventories(cell: str) -> dict[str, dict[str, Any]]:
    """Classes, and the fields of their inventories that the page gives, including ``used``."""
    inventories = {}
    for part_of_cell in filter(None, cell.split(';')):
        (name, total), *fields = (part.split() for part in part_of_cell.split(','))
        inventories[name] = {'total': int(total), **{field: json.loads(value) for field, value in fields}}
    return inventories


def _provider(row: Row) -> RP:
    return RP(
        row['Provider'],
        row['Parent'] or None,
        {name: record(**fields) for name, fields in inventories(row['Inventory']).items()},
        set(listed(row['Traits'])),
        set(listed(row['Aggregates'])),
    )


def _minor(row: Row) -> int:
    return int((row['At'] or '1.29').partition('.')[2])


def _examples() -> Iterator[Example]:
    for section in sections():
        for row in section.queries:
            if 'Query' in row:
                summaries = ' '.join(listed(row['Summaries']))
                yield Example(section.name, row['Query'].strip('`'), row['Candidates'], summaries, _minor(row))


def _rejections() -> Iterator[Rejection]:
    for section in sections():
        for row in section.queries:
            if 'Rejected query' in row:
                query, phrase, code = (row[name].strip('`') for name in ('Rejected query', 'Detail has', 'Code'))
                yield Rejection(section.name, query, phrase, code or 'placement.undefined_code', _minor(row))


def entries(text: str) -> set[Entry]:
    """Parse the notation of the page: ``a{VCPU:1} + b{DISK_GB:2} [_A: a; _B: b]; ...``."""
    candidates = set()
    for candidate, mappings in re.findall(r'([^;[]+)(?:\[([^]]*)\])?', text if text != 'none' else ''):
        body = {
            (name, *_amount(item))
            for name, amounts in re.findall(r'([\w-]+)\{([^}]*)\}', candidate)
            for item in amounts.split(',')
        }
        candidates.add(Entry(frozenset(body), _mappings(mappings) if mappings else None))
    return candidates


def _amount(item: str) -> tuple[str, int]:
    name, amount = item.split(':')
    return name, int(amount)


def _mappings(text: str) -> Mappings:
    members = (member.split(':') for member in text.split(';'))
    return frozenset((suffix.strip().strip("'"), frozenset(listed(names))) for suffix, names in members)


TOPOLOGIES = {section.name: [_provider(row) for row in section.providers] for section in sections()}
EXAMPLES = list(_examples())
REJECTIONS = list(_rejections())
