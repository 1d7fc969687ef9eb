"""Finds the query string of a search for candidates in a text: a query string, a path, a URL, or a log line."""

from __future__ import annotations

import re
from typing import NamedTuple

from placement import exception


class NoQuery(exception.PlacementError):
    """A text has no query string of a search for candidates, or only a part of one."""

    template = '{reason}'


class Pasted(NamedTuple):
    """The query string in a text, and the microversion that the text gives for it."""

    query: str
    version: str | None


_NOT_IN_A_QUERY = r'[^\s"\'<>]'
#: The places of a query string in a longer text; the first pattern that matches is used.
_PLACES = (
    re.compile(rf'/allocation_candidates\?({_NOT_IN_A_QUERY}+)'),
    re.compile(rf'No allocation candidates for ({_NOT_IN_A_QUERY}+?):? '),
    re.compile(rf'Stopped at \[placement\] .* for ({_NOT_IN_A_QUERY}+)'),
)
_OTHER_PATH = re.compile(r'/[a-z_]+[^\s?]*(?=\?)|(?:GET|PUT|POST|DELETE) (/\S*)|https?://\S+')
_VERSION = re.compile(r'(?:microversion: |OpenStack-API-Version: placement )([0-9]+\.[0-9]+)', re.IGNORECASE)
#: The text that the service writes after a query string that it has cut off in its log.
_CUT_OFF = '...'


def read(text: str) -> Pasted:
    """Find the query string and the microversion in ``text``.

    :raises NoQuery: there is no query string, or the log has cut it off.
    """
    text = text.strip()
    version = _VERSION.search(text)
    query = _query(text)
    if query.endswith(_CUT_OFF):
        raise NoQuery(
            reason='The log has only the beginning of this query. Paste the whole query, for example from the client.'
        )
    return Pasted(query, version[1] if version else None)


def _query(text: str) -> str:
    for place in _PLACES:
        found = place.search(text)
        if found:
            return found[1].partition('#')[0]
    if text.rstrip('/').endswith('/allocation_candidates'):
        raise NoQuery(reason='There is no query after /allocation_candidates.')
    if _OTHER_PATH.search(text):
        raise NoQuery(reason='This is not a search for candidates: it does not contain /allocation_candidates?...')
    bare = text.removeprefix('allocation_candidates').removeprefix('?')
    if '=' not in bare or re.search(r'\s', bare):
        raise NoQuery(
            reason='There is no query for candidates in this text. Give a query string such as'
            " 'resources=VCPU:4&limit=10', a URL, or a line of the log."
        )
    return bare
