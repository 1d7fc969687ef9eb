"""Explains query parameters of GET /allocation_candidates that a microversion does not have, for operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib import parse

from placement.handlers.candidate_query import Version
from placement.schemas import allocation_candidate as schema

#: Keys that no served microversion has, with the first microversion that has them.
_LATER: tuple[tuple[re.Pattern[str], Version], ...] = (
    (re.compile(r'in_tree([1-9][0-9]*)?'), (1, 31)),
    (re.compile(r'(resources|required|member_of|in_tree)[a-zA-Z0-9_-]{1,64}'), (1, 33)),
    (re.compile(r'root_required'), (1, 35)),
    (re.compile(r'same_subtree'), (1, 36)),
)


def unknown(query: str, version: Version, newest: Version) -> str | None:
    """Return a sentence about the first parameter of ``query`` that a microversion does not have; None if it has all.

    :param query: a query string.
    :param newest: the newest microversion that is served.
    """
    seen: set[str] = set()
    for key, value in parse.parse_qsl(query, keep_blank_values=True):
        for what, since in _needs(key, value, repeated=key in seen):
            if since is None:
                return f'{what} is no parameter of GET /allocation_candidates.'
            if since > newest:
                return f'{what} needs {_text(since)}, this service speaks {_text(newest)}.'
            if since > version:
                return f'{what} needs {_text(since)}, the request is one of {_text(version)}.'
        seen.add(key)
    return None


def _needs(key: str, value: str, repeated: bool) -> Iterator[tuple[str, Version | None]]:
    """Each feature that a parameter uses, with the first microversion that has it; None for an unknown parameter."""
    yield key, _since(key)
    if key.startswith('member_of'):
        if value.startswith('!'):
            yield f'! in {key}', (1, 32)
        if repeated:
            yield f'{key} given twice', (1, 24)
    elif key.startswith('required'):
        if value.startswith('in:'):
            yield f'in: in {key}', (1, 39)
        if '!' in value:
            yield f'! in {key}', (1, 22)


def _since(key: str) -> Version | None:
    for since, served in reversed(schema.GET):
        if key in served.get('properties', ()) or any(
            re.match(form, key) for form in served.get('patternProperties', ())
        ):
            return since
    return next((since for form, since in _LATER if form.fullmatch(key)), None)


def _text(version: Version) -> str:
    return f'{version[0]}.{version[1]}'
