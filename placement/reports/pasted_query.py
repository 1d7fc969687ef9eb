"""Finds the query for candidates in what people have: a query string, a path, a URL, or a line of a log."""

from __future__ import annotations

import re
from typing import NamedTuple

from placement import exception


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
