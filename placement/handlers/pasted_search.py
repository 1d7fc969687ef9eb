"""Finds a search for candidates in pasted text, such as a log line, so that operators can have it explained."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib import parse

from oslo_config import cfg

from placement import exception
from placement.candidates.request import CandidateRequest
from placement.handlers import candidate_query
from placement.reports import pasted_query
from placement.schemas import allocation_candidate as schema
from placement.web import microversion
from placement.web.query import BadQuery, Version

#: The microversion that introduced candidates.
_FIRST = (1, 10)


class BadSearch(exception.PlacementError):
    """The API would reject the query string, or has no search at the microversion."""

    template = '{reason}'


class PastedSearch(NamedTuple):
    """The query string and the microversion found in a text, and the request that they describe."""

    query: str
    microversion: str
    request: CandidateRequest


def read(text: str, version: str | None, conf: cfg.ConfigOpts) -> PastedSearch:
    """Find the search in ``text``.

    :param version: the microversion; when None or empty, the one in the text, or else the newest that is served.
    :raises NoQuery: the text has no search.
    :raises BadSearch: the API would reject the search.
    """
    pasted = pasted_query.read(text)
    newest = conf.placement.max_microversion
    version = version or pasted.version or newest
    numbers = _numbers(version, newest)
    unknown = unknown_parameter(pasted.query, numbers, _numbers(newest, newest))
    if unknown:
        raise BadSearch(reason=unknown)
    try:
        request = candidate_query.parse(pasted.query, numbers)
    except BadQuery as error:
        raise BadSearch(reason=' '.join(str(error).split())) from error
    return PastedSearch(pasted.query, version, request)


def _numbers(version: str, newest: str) -> tuple[int, int]:
    major, _dot, minor = version.partition('.')
    if version not in microversion.served(newest) or (int(major), int(minor)) < _FIRST:
        raise BadSearch(
            reason=f'A search for candidates has a microversion from {_FIRST[0]}.{_FIRST[1]} to {newest}, not {version}'
        )
    return int(major), int(minor)


def unknown_parameter(query: str, version: Version, newest: Version) -> str | None:
    """Return a sentence about the first parameter of ``query`` that a microversion does not have; None if it has all.

    :param query: a query string.
    :param newest: the newest microversion that is served.
    """
    seen: set[str] = set()
    for key, value in parse.parse_qsl(query, keep_blank_values=True):
        for what, since in _features(key, value, repeated=key in seen):
            if since is None:
                return f'{what} is not a parameter of GET /allocation_candidates.'
            if since > newest:
                return f'{what} requires microversion {_text(since)}, and this service supports up to {_text(newest)}.'
            if since > version:
                return f'{what} requires microversion {_text(since)}, and the request has {_text(version)}.'
        seen.add(key)
    return None


def _features(key: str, value: str, repeated: bool) -> Iterator[tuple[str, Version | None]]:
    """Yield the features of a parameter, each with the first microversion that has it; None for an unknown one."""
    served = (
        since
        for since, window in reversed(schema.GET)
        if key in window.get('properties', ())
        or any(re.match(form, key) for form in window.get('patternProperties', ()))
    )
    yield key, next(served, None)
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


def _text(version: Version) -> str:
    return f'{version[0]}.{version[1]}'
