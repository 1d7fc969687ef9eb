"""Finds the latest searches without candidates in the log of the service."""

from __future__ import annotations

import os
import pathlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib import parse

from placement.exception import BadQuery
from placement.ops.explain.searches_in_text import find_query

#: Bytes that are read at the end of a log.
_MAX_BYTES = 4 * 1024 * 1024
#: The beginning of a log line about a search without candidates.
_MARKER = 'No allocation candidates for '
#: Matches the number of equal searches that were not logged.
_MORE = re.compile(r'\(([0-9]{1,9}) more since the last such line\)$')
_TIME = re.compile(r'[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}')


@dataclass
class EmptyPattern:
    """The searches for the same classes and traits; amounts and aggregates may differ.

    ``latest_query`` is the query string of the last one, and ``latest_at`` the time in its log line.
    """

    pattern: str
    count: int = 0
    latest_query: str = ''
    latest_at: str | None = None


@dataclass(frozen=True)
class SearchesInLog:
    """The searches at the end of a log, the most frequent first; ``complete`` says whether all of it was read."""

    patterns: Sequence[EmptyPattern]
    complete: bool


def recent(log: pathlib.Path) -> SearchesInLog:
    """Read the end of a log file.

    :raises OSError: it cannot be read.
    """
    with log.open('rb') as file:
        size = file.seek(0, os.SEEK_END)
        start = file.seek(max(size - _MAX_BYTES, 0))
        lines = file.read(_MAX_BYTES).decode('utf-8', 'replace').splitlines()
    patterns: dict[str, EmptyPattern] = {}
    # If the beginning of the log was skipped, the first line is incomplete.
    for line in lines[1:] if start else lines:
        try:
            query, _ = find_query(line[line.index(_MARKER) :])
        except (ValueError, BadQuery):
            continue
        text = pattern_of(query)
        pattern = patterns.setdefault(text, EmptyPattern(text))
        omitted, time = _MORE.search(line.rstrip()), _TIME.search(line)
        pattern.count += 1 + (int(omitted[1]) if omitted else 0)
        pattern.latest_query, pattern.latest_at = query, time[0] if time else None
    return SearchesInLog(sorted(patterns.values(), key=lambda pattern: -pattern.count), complete=start == 0)


def pattern_of(query: str) -> str:
    """Return a query string in a normal form, without amounts, the uuids of aggregates and providers, and the limit."""
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
