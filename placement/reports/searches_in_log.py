"""The searches that found nothing lately, read from the log of the service and grouped by what they asked for."""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from urllib import parse

from placement.reports import pasted_query

#: Bytes that are read at the end of a log.
_TAIL = 4 * 1024 * 1024
_MARKER = 'No allocation candidates for '
#: The number of further equal searches that a line stands for.
_MORE = re.compile(r'\(([0-9]{1,9}) more since the last such line\)$')
_TIME = re.compile(r'[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}')


@dataclass
class EmptyShape:
    """The searches for the same classes and traits; amounts and aggregates may differ.

    ``latest`` is the query string of the last one, and ``at`` the time in its log line.
    """

    shape: str
    count: int = 0
    latest: str = ''
    at: str | None = None


@dataclass(frozen=True)
class SearchesInLog:
    """The searches at the end of a log, the most frequent first. ``whole`` says whether all of the log was read."""

    shapes: Sequence[EmptyShape] = field(default_factory=list)
    whole: bool = True


def recent(log: pathlib.Path) -> SearchesInLog:
    """Read the end of a log file.

    :raises OSError: it cannot be read.
    """
    with log.open('rb') as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(size - _TAIL, 0))
        lines = file.read(_TAIL).decode('utf-8', 'replace').splitlines()
    found: dict[str, EmptyShape] = {}
    # If the beginning of the log was skipped, the first line is incomplete.
    for query, line in _queries(lines[1:] if start else lines):
        shape = shape_of(query)
        one = found.setdefault(shape, EmptyShape(shape))
        more, at = _MORE.search(line), _TIME.search(line)
        one.count += 1 + (int(more[1]) if more else 0)
        one.latest, one.at = query, at[0] if at else None
    return SearchesInLog(sorted(found.values(), key=lambda one: -one.count), whole=start == 0)


def _queries(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The query strings of empty searches, each with its line."""
    for line in lines:
        if _MARKER in line:
            with contextlib.suppress(pasted_query.NoQuery):
                yield pasted_query.read(line[line.index(_MARKER) :]).query, line.rstrip()


def shape_of(query: str) -> str:
    """Return what a query string asks for, without amounts, the uuids of aggregates and providers, and the limit."""
    parts = []
    for key, value in parse.parse_qsl(query):
        if key.startswith('resources'):
            parts.append(f'{key}={",".join(sorted(item.partition(":")[0] for item in value.split(",")))}')
        elif key.startswith(('required', 'root_required', 'same_subtree')):
            prefix = 'in:' if value.startswith('in:') else ''
            parts.append(f'{key}={prefix}{",".join(sorted(value.removeprefix(prefix).split(",")))}')
        elif key.startswith('member_of'):
            parts.append(f'{key}=!' if value.startswith('!') else key)
        elif key != 'limit':
            parts.append(key if key.startswith('in_tree') else f'{key}={value}')
    return ' '.join(sorted(parts))
