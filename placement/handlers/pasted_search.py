"""Finds a search for candidates in pasted text, such as a log line, so that operators can have it explained."""

from __future__ import annotations

from typing import NamedTuple

from oslo_config import cfg

from placement import exception
from placement.candidates.request import CandidateRequest
from placement.handlers import candidate_parameters, candidate_query
from placement.reports import pasted_query
from placement.web import microversion
from placement.web.query import BadQuery

#: The microversion that candidates came with.
_FIRST = (1, 10)


class BadSearch(exception.PlacementError):
    """The API would refuse the query string, or has no search at the microversion."""

    template = '{reason}'


class PastedSearch(NamedTuple):
    """The query string and the microversion found in a text, and the request that they stand for."""

    query: str
    microversion: str
    request: CandidateRequest


def read(text: str, version: str | None, conf: cfg.ConfigOpts) -> PastedSearch:
    """Find the search in ``text``.

    :param version: the microversion; when None or empty, the one in the text, or else the newest that is served.
    :raises NoQuery: the text has no search.
    :raises BadSearch: the API would refuse the search.
    """
    pasted = pasted_query.read(text)
    newest = conf.placement.max_microversion
    version = version or pasted.version or newest
    numbers = _numbers(version, newest)
    unknown = candidate_parameters.unknown(pasted.query, numbers, _numbers(newest, newest))
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
            reason=f'There is no search for candidates at microversion {version}: it takes'
            f' {_FIRST[0]}.{_FIRST[1]} to {newest}'
        )
    return int(major), int(minor)
