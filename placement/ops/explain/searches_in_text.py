"""Finds the search for candidates in a text that an operator pastes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib import parse

from oslo_config import cfg

from placement.exception import BadQuery
from placement.schemas import Version
from placement.schemas import allocation_candidate as schema
from placement.search import parsing
from placement.search.request import CandidateRequest
from placement.web import microversion

#: The microversion that introduced candidates.
_FIRST = '1.10'

_NOT_IN_A_QUERY = r'[^\s"\'<>]'
#: Patterns that find a query string in a longer text; the first one that matches is used.
_QUERY_PATTERNS = (
    re.compile(rf'/allocation_candidates\?({_NOT_IN_A_QUERY}+)'),
    re.compile(rf'No allocation candidates for ({_NOT_IN_A_QUERY}+?):? '),
    re.compile(rf'Stopped at \[placement\] [\w =,]+ for ({_NOT_IN_A_QUERY}+)'),
)
#: The first alternative matches only at the beginning of a word, so that a long text is read in linear time.
_OTHER_PATH = re.compile(r'(?<![^\s?])(?=[^\s?]*\?)[^\s?]*/[a-z_]|(?:GET|PUT|POST|DELETE) /|https?://\S')
_VERSION = re.compile(r'(?:microversion: |OpenStack-API-Version: placement )([0-9]+\.[0-9]+)', re.IGNORECASE)
#: The end of a query string that the log has shortened.
_CUT_OFF = '...'


class PastedSearch(NamedTuple):
    """The query string and the microversion found in a text, and the request that they describe."""

    query: str
    microversion: str
    request: CandidateRequest


def read(text: str, version: str | None, conf: cfg.ConfigOpts) -> PastedSearch:
    """Find the search in ``text``.

    :param version: the microversion; when None or empty, the one in the text, or else the newest that is served.
    :raises BadQuery: the text has no search, or the API would reject it.
    """
    newest = conf.placement.max_microversion
    served = microversion.served(newest)
    query, version_in_text = find_query(text)
    version = version or version_in_text or newest
    if version not in served[served.index(_FIRST) :]:
        raise BadQuery(f'A search for candidates has a microversion from {_FIRST} to {newest}, not {version}')
    numbers = microversion.parse_version_string(version)
    unknown = unknown_parameter(query, numbers, microversion.parse_version_string(newest))
    if unknown:
        raise BadQuery(unknown)
    return PastedSearch(query, version, parsing.parse(query, numbers))


def find_query(text: str) -> tuple[str, str | None]:
    """Find the query string of a search in a text: a query string, a path, a URL, or a log line.

    :returns: the query string, and the microversion that the text gives for it.
    :raises BadQuery: there is no query string, or the log has cut it off.
    """
    text = text.strip()
    bare = text.removeprefix('allocation_candidates').removeprefix('?')
    match = next(filter(None, (pattern.search(text) for pattern in _QUERY_PATTERNS)), None)
    if match:
        query = match[1].partition('#')[0]
    elif text.rstrip('/').endswith('/allocation_candidates'):
        raise BadQuery('There is no query after /allocation_candidates.')
    elif _OTHER_PATH.search(text):
        raise BadQuery('This is not a search for candidates: it does not contain /allocation_candidates?...')
    elif '=' not in bare or re.search(r'\s', bare):
        raise BadQuery(
            'There is no query for candidates in this text. Give a query string such as'
            " 'resources=VCPU:4&limit=10', a URL, or a line of the log."
        )
    else:
        query = bare
    if query.endswith(_CUT_OFF):
        raise BadQuery(
            'The log has only the beginning of this query. Paste the whole query, for example from the client.'
        )
    version = _VERSION.search(text)
    return query, version[1] if version else None


def unknown_parameter(query: str, version: Version, newest: Version) -> str | None:
    """Return an error about the first parameter of ``query`` that the microversion does not have; None if it has all.

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
    """Yield the features of a parameter, each with the first microversion that has it, or None if it is unknown."""
    served = (
        since
        for since, window in reversed(schema.GET)
        if key in window.get('properties', ())
        or any(re.match(form, key) for form in window.get('patternProperties', ()))
    )
    yield key, next(served, None)
    if key.startswith('member_of'):
        if value.startswith('!'):
            yield f'! in {key}', parsing.FORBIDDEN_MEMBER_OF
        if repeated:
            yield f'{key} given twice', parsing.REPEATED_MEMBER_OF
    elif key.startswith('required'):
        if value.startswith('in:'):
            yield f'in: in {key}', parsing.ANY_OF_TRAITS
        if '!' in value:
            yield f'! in {key}', parsing.FORBIDDEN_TRAITS


def _text(version: Version) -> str:
    return f'{version[0]}.{version[1]}'
