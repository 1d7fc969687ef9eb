"""What is read from an HTTP request and written into a response: the query string, the body, JSON, and links."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO
from urllib import parse
from wsgiref.types import WSGIApplication

import orjson
from oslo_utils import timeutils
from webob import Request, Response, exc, multidict

from placement.objects.base import Timestamped
from placement.validation import ValidationError, Validator, parse_query, validate_query
from placement.web import microversion

#: The form of a valid ``Content-Length``.
CONTENT_LENGTH = re.compile(r'[0-9]{1,18}')
#: A run of digits that orjson may read as an inexact float. It reads the first eighteen digits exactly.
_LONG_NUMBER = re.compile(rb'([0-9]{18})[0-9]+')
#: A number with a fraction or an exponent, not inside a uuid or a name.
_FRACTION_OR_EXPONENT = re.compile(rb'(?:^|[\s:,\[])-?[0-9]+[.eE]')
#: NUL in a string of a JSON text: this escape, unless its backslash is itself escaped.
_NUL = re.compile(rb'(?<!\\)(?:\\\\)*\\u0000')


# Requests ---------------------------------------------------------------------------------------------------


class BodyHeaders:
    """WSGI middleware that rejects invalid headers about the body, and bodies that are too long.

    :param max_size: the maximum size of a body in bytes. At most one byte more is read.
    """

    def __init__(self, application: WSGIApplication, max_size: int) -> None:
        self._application = application
        self._max_size = max_size

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on.

        :raises HTTPBadRequest: a header is invalid or missing.
        :raises HTTPRequestEntityTooLarge: the body is too long.
        """
        # The service cannot decode other codings, such as ``gzip, chunked``.
        if environ.get('HTTP_TRANSFER_ENCODING', 'chunked').strip(' \t').lower() != 'chunked':
            raise exc.HTTPBadRequest('transfer-encoding header must be chunked, and nothing else')
        length = environ.get('CONTENT_LENGTH')
        if length:
            if not CONTENT_LENGTH.fullmatch(length):
                raise exc.HTTPBadRequest('content-length header must be an integer')
            if int(length) and not environ.get('CONTENT_TYPE'):
                raise exc.HTTPBadRequest('content-type header required when content-length > 0')
            if int(length) > self._max_size:
                raise _too_long(self._max_size)
        elif environ.get('wsgi.input_terminated'):
            # A chunked body: its length is unknown until it has been read.
            environ['wsgi.input'] = _LimitedBody(environ['wsgi.input'], self._max_size)
            # WebOb may have set this key for the original stream, for example if a test makes the request.
            environ['webob.is_body_seekable'] = False
        return self._application(environ, start_response)


class _LimitedBody:
    """A body of unknown length. Reading it raises an HTTP error if it exceeds ``size`` bytes or is malformed."""

    def __init__(self, stream: BinaryIO, size: int) -> None:
        self._stream = stream
        self._size = size
        self._remaining = size

    def read(self, size: int) -> bytes:
        """Read at most ``size`` bytes. WebOb calls no other method."""
        try:
            data = self._stream.read(min(size, self._remaining + 1))
        except Exception as error:  # WSGI servers have different exceptions for malformed chunks and lost connections.
            raise exc.HTTPBadRequest('The request body could not be read.') from error
        self._remaining -= len(data)
        if self._remaining < 0:
            raise _too_long(self._size)
        return data


def _too_long(size: int) -> exc.HTTPError:
    return exc.HTTPRequestEntityTooLarge(f'The request body must not be longer than {size} bytes.')


def query_params(req: Request, validator: Validator | None = None) -> multidict.MultiDict:
    """Read the query string, and check it if there is a validator.

    :param validator: of an object of strings. It checks the last value of each key.
    :returns: the values by key. An index gives the last value of a key; ``getall`` gives all.
    :raises BadQuery: it is too long, not UTF-8, or is invalid.
    """
    pairs = parse_query(req.environ.get('QUERY_STRING', ''))
    if validator is not None:
        # Not of the MultiDict, whose look-ups search all keys: thousands of unknown ones would take seconds.
        validate_query(dict(pairs), validator)
    return multidict.MultiDict(pairs)


def validated_json(body: bytes, validator: Validator) -> Any:
    """Read a JSON body and check it (api-ref/rules.md#json-bodies).

    :param body: the body as sent.
    :returns: the value. Integers of any size are exact.
    :raises HTTPBadRequest: it is not JSON, contains NUL, or is invalid.
    """
    try:
        data = parse_json(body)
        validator.validate(data)
    except ValidationError as error:
        raise exc.HTTPBadRequest(f'JSON does not validate: {error}') from error
    except ValueError as error:
        raise exc.HTTPBadRequest(f'Malformed JSON: {error}') from error
    # On all databases, because PostgreSQL cannot store this character.
    if b'u0000' in body and _NUL.search(body):
        raise exc.HTTPBadRequest('JSON does not validate: The character NUL (U+0000) is not allowed')
    return data


def parse_json(body: bytes) -> Any:
    """Read JSON (RFC 8259) in UTF-8, without NaN and infinity. Integers are exact; the last of repeated keys counts.

    Numbers without a fraction are integers in every spelling, as in JSON Schema: ``16.0`` and ``1e1`` are.

    :raises ValueError: ``body`` is not JSON, is nested about 1000 levels deep, or has a number of over 4300 digits.
    """
    if _LONG_NUMBER.search(body):
        # orjson is strict about syntax, but reads integers beyond 64 bits as floats, and rejects those beyond the range
        # of floats. So orjson checks the syntax of a copy with shortened numbers, and json, which is lax about syntax,
        # reads the values. Shortening keeps eighteen digits, so it does not break \u escapes, which have four.
        orjson.loads(_LONG_NUMBER.sub(rb'\1', body))
        try:
            data = json.loads(body)
        except RecursionError:
            raise ValueError('nested too deeply') from None
    else:
        data = orjson.loads(body)
    return _with_integers(data) if _FRACTION_OR_EXPONENT.search(body) else data


def _with_integers(data: Any) -> Any:
    """Replace the floats without a fraction in a JSON value by integers.

    :raises ValueError: a number is beyond the range of floats. Only ``json`` reads such a number, as infinity.
    """
    root = [data]
    pending: list[Any] = [root]
    while pending:
        container = pending.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, float):
                if math.isinf(value):
                    raise ValueError('number is infinity when parsed as double')
                if value.is_integer():
                    container[key] = int(value)
            elif isinstance(value, dict | list):
                pending.append(value)
    return root[0]


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

    :param members: by name, the brackets of the value (``[]`` or ``{}``) and its encoded items, with links as for
        ``add_prefix``. The lists are modified, so that the body, which may have many megabytes, can be joined in one
        step.
    """
    parts: list[bytes] = []
    for name, (brackets, items) in members.items():
        # The final join puts commas between items and between members, so the items get all other text.
        written = items or [b'']
        written[0] = f'{"" if parts else "{"}"{name}":{brackets[0]}'.encode() + written[0]
        written[-1] += brackets[1].encode()
        parts += written
    parts[-1] += b'}'
    body = add_prefix(req, b','.join(parts))
    return _respond(req, last_modified, body=body, status=200, content_type='application/json')


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
