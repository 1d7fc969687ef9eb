"""Functions for handlers, which read query strings, and make responses and links."""

from __future__ import annotations

import datetime as dt
import email.utils
from collections.abc import Iterable, Mapping
from typing import Any
from urllib import parse

import orjson
from oslo_utils import timeutils
from webob import Request, Response, multidict

from placement import query_string
from placement.objects.base import Timestamped
from placement.validation import Validator
from placement.web import microversion


def query_params(req: Request, validator: Validator | None = None) -> multidict.MultiDict:
    """Read the query string, and check it if there is a validator.

    :param validator: of an object of strings. It checks the last value of each key.
    :returns: the values by key. An index gives the last value of a key; ``getall`` gives all.
    :raises BadQuery: it is too long, not UTF-8, or is invalid.
    """
    pairs = query_string.parse_query(req.environ.get('QUERY_STRING', ''))
    if validator is not None:
        # Not of the MultiDict, whose look-ups search all keys: thousands of unknown ones would take seconds.
        query_string.validate_query(dict(pairs), validator)
    return multidict.MultiDict(pairs)


# Responses --------------------------------------------------------------------------------------------------


def json_response(req: Request, payload: Any, status: int = 200, last_modified: dt.datetime | None = None) -> Response:
    """Make a response with a JSON body.

    :param payload: a value that orjson can encode.
    :param last_modified: an aware time; None for a response without cache headers.
    """
    body = orjson.dumps(payload)
    return _respond(req, last_modified, body=body, status=status, content_type='application/json')


def fragments_response(
    req: Request, members: Mapping[str, tuple[str, list[bytes]]], last_modified: dt.datetime
) -> Response:
    """Make a response with a JSON object of long arrays or objects whose items are already encoded.

    :param members: by name, the brackets of the value (``[]`` or ``{}``) and its encoded items. The lists are modified,
        so that the body, which may have many megabytes, can be joined in one step.
    """
    parts: list[bytes] = []
    for name, (brackets, items) in members.items():
        # The final join puts commas between items and between members, so the items get all other text.
        written = items or [b'']
        written[0] = f'{"" if parts else "{"}"{name}":{brackets[0]}'.encode() + written[0]
        written[-1] += brackets[1].encode()
        parts += written
    parts[-1] += b'}'
    return _respond(req, last_modified, body=b','.join(parts), status=200, content_type='application/json')


def empty_response(
    req: Request, status: int, location: str | None = None, last_modified: dt.datetime | None = None
) -> Response:
    """Make a response without a body.

    :param location: the path of the resource, from ``url``.
    :param last_modified: an aware time; None for a response without cache headers.
    """
    response = _respond(req, last_modified, status=status)
    del response.content_type
    if location is not None:
        response.location = req.host_url + location
    return response


def _respond(req: Request, last_modified: dt.datetime | None, **arguments: Any) -> Response:
    """Make a response, with Last-Modified and Cache-Control from 1.15 on (api-ref/rules.md#cache-headers)."""
    response = Response(charset=None, conditional_response=False, **arguments)
    if last_modified is not None and microversion.requested(req) >= (1, 15):
        response.headerlist += [
            ('Last-Modified', email.utils.format_datetime(last_modified.astimezone(dt.UTC), usegmt=True)),
            ('Cache-Control', 'no-cache'),
        ]
    return response


# Links ------------------------------------------------------------------------------------------------------


def url(environ: Mapping[str, Any], *segments: str) -> str:
    """Quote path segments and join them into the path of a resource, below the mount prefix."""
    prefix = parse.quote(environ.get('SCRIPT_NAME', '').rstrip('/').encode('latin-1', 'replace'))
    return '/'.join([prefix, *(parse.quote(segment, safe='') for segment in segments)])


def add_prefix(req: Request, json: bytes) -> bytes:
    """Return ``json``, whose links were made without a mount prefix, with the prefix of the request in each ``href``.

    So the caches of JSON do not have the prefix in their keys. It may come from a client, and with many long prefixes a
    cache would grow.
    """
    # A string of JSON cannot contain this text, because its quotes are escaped.
    return json.replace(b'"href":"', f'"href":"{url(req.environ)}'.encode()) if req.script_name else json


def now() -> dt.datetime:
    """Return the current time, timezone-aware and in UTC."""
    return timeutils.utcnow(with_timezone=True)


def last_modified(records: Iterable[Timestamped]) -> dt.datetime:
    """Return the time of the latest write of any record; the current time if there are no records."""
    return max((record.modified for record in records), default=now())
