"""Finds the query for candidates in what people have: a query string, a path, a URL, or a line of a log."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib import parse

from placement import exception

#: A microversion as two numbers.
Version = tuple[int, int]


class NoQuery(exception.PlacementError):
    """There is no query for candidates in a text, or not the whole of it."""

    template = '{reason}'


class Pasted(NamedTuple):
    """A query string, and the microversion that the text says it was sent with."""

    query: str
    version: str | None


_NOT_IN_A_QUERY = r'[^\s"\'<>]'
#: Where a query string may stand in a longer text, the best sign first.
_PLACES = (
    re.compile(rf'/allocation_candidates\?({_NOT_IN_A_QUERY}+)'),
    re.compile(rf'No allocation candidates for ({_NOT_IN_A_QUERY}+?):? '),
    re.compile(rf'Stopped at \[placement\] .* for ({_NOT_IN_A_QUERY}+)'),
)
_OTHER_PATH = re.compile(r'/[a-z_]+[^\s?]*(?=\?)|(?:GET|PUT|POST|DELETE) (/\S*)|https?://\S+')
_VERSION = re.compile(r'(?:microversion: |OpenStack-API-Version: placement )([0-9]+\.[0-9]+)', re.IGNORECASE)
#: What the service puts behind a query that is too long for its log.
_CUT_OFF = '...'


def read(text: str) -> Pasted:
    """Find the query in ``text``.

    :raises NoQuery: it is something else, or was cut off by the log.
    """
    text = text.strip()
    version = _VERSION.search(text)
    query = _query(text)
    if query.endswith(_CUT_OFF):
        raise NoQuery(reason='The log cut this query off. Ask with the whole of it: the client has it.')
    return Pasted(query, version[1] if version else None)


def _query(text: str) -> str:
    for place in _PLACES:
        found = place.search(text)
        if found:
            return found[1].partition('#')[0]
    if text.rstrip('/').endswith('/allocation_candidates'):
        raise NoQuery(reason='There is no query behind /allocation_candidates, so nothing is asked for.')
    if _OTHER_PATH.search(text):
        raise NoQuery(reason='This is not about candidates: there is no /allocation_candidates?... in it.')
    bare = text.removeprefix('allocation_candidates').removeprefix('?')
    if '=' not in bare or re.search(r'\s', bare):
        raise NoQuery(
            reason='There is no query for candidates in this text. Give a query string such as'
            " 'resources=VCPU:4&limit=10', a URL, or a line of the log."
        )
    return bare


# Parameters that a microversion does not have ----------------------------------------------------------------------

_NUMBERED = re.compile(r'(resources|required|member_of)[1-9][0-9]*')
_IN_TREE = re.compile(r'in_tree([1-9][0-9]*)?')
_NAMED = re.compile(r'(resources|required|member_of|in_tree)[a-zA-Z0-9_-]{1,64}')
#: Keys with the microversion that they came with.
_KEYS: dict[str, Version] = {
    'resources': (1, 10),
    'limit': (1, 16),
    'required': (1, 17),
    'member_of': (1, 21),
    'group_policy': (1, 25),
    'root_required': (1, 35),
    'same_subtree': (1, 36),
}


def unknown(query: str, version: Version, newest: Version) -> str | None:
    """Say which parameter of ``query`` does not exist at a microversion; None when all do.

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
    """The microversions that a parameter, and the form of its value, came with."""
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
    if key in _KEYS:
        return _KEYS[key]
    if _NUMBERED.fullmatch(key):
        return 1, 25
    if _IN_TREE.fullmatch(key):
        return 1, 31
    return (1, 33) if _NAMED.fullmatch(key) else None


def _text(version: Version) -> str:
    return f'{version[0]}.{version[1]}'
