"""Explains query parameters of GET /allocation_candidates that a microversion does not have, for operators."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib import parse

from placement.schemas import allocation_candidate as schema
from placement.web.query import Version


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
    return None


def _text(version: Version) -> str:
    return f'{version[0]}.{version[1]}'
