"""The body of a request: the checks of the headers about it, its maximum size, and JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO
from wsgiref.types import WSGIApplication

import orjson
from webob import exc

from placement.validation import ValidationError, Validator

#: The form of a valid ``Content-Length``.
CONTENT_LENGTH = re.compile(r'[0-9]{1,18}')
#: A run of digits that orjson may read as an inexact float. It reads the first eighteen digits exactly.
_LONG_NUMBER = re.compile(rb'([0-9]{18})[0-9]+')
#: A number with a fraction or an exponent, not inside a uuid or a name.
_FRACTION_OR_EXPONENT = re.compile(rb'(?:^|[\s:,\[])-?[0-9]+[.eE]')


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

    def read(self, size: int = -1) -> bytes:
        return self._count(self._stream.read, size)

    def readline(self, size: int = -1) -> bytes:
        return self._count(self._stream.readline, size)

    def readlines(self, _hint: int = -1) -> list[bytes]:
        return list(self)

    def __iter__(self) -> Any:
        return iter(self.readline, b'')

    def _count(self, read: Callable[[int], bytes], size: int) -> bytes:
        try:
            data = read(self._remaining + 1 if size < 0 else min(size, self._remaining + 1))
        except Exception as error:  # WSGI servers have different exceptions for malformed chunks and lost connections.
            raise exc.HTTPBadRequest('The request body could not be read.') from error
        self._remaining -= len(data)
        if self._remaining < 0:
            raise _too_long(self._size)
        return data


def _too_long(size: int) -> exc.HTTPError:
    return exc.HTTPRequestEntityTooLarge(f'The request body must not be longer than {size} bytes.')


# JSON -------------------------------------------------------------------------------------------------------


def validated_json(body: bytes, validator: Validator) -> Any:
    """Read a JSON body and check it (api-ref/rules.md#json-bodies).

    :param body: the body as sent.
    :returns: the value. Integers of any size are exact.
    :raises HTTPBadRequest: it is not JSON, contains NUL, or is invalid.
    """
    try:
        data = parse_json(body)
        validator.validate(data)
        # JSON allows NUL in strings only as this escape.
        if b'\\u0000' in body:
            _reject_nul(data)
    except ValidationError as error:
        raise exc.HTTPBadRequest(f'JSON does not validate: {error}') from error
    except ValueError as error:
        raise exc.HTTPBadRequest(f'Malformed JSON: {error}') from error
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
            data = json.loads(body, parse_float=_finite)
        except RecursionError:
            raise ValueError('nested too deeply') from None
    else:
        data = orjson.loads(body)
    return _with_integers(data) if _FRACTION_OR_EXPONENT.search(body) else data


def _with_integers(data: Any) -> Any:
    """Replace the floats without a fraction in a JSON value by integers."""
    root = [data]
    pending: list[Any] = [root]
    while pending:
        container = pending.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, float) and value.is_integer():
                container[key] = int(value)
            elif isinstance(value, dict | list):
                pending.append(value)
    return root[0]


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError('number is infinity when parsed as double')
    return number


def _reject_nul(data: Any) -> None:
    """Reject NUL on all databases: PostgreSQL cannot store this character.

    :param data: a JSON value that is to be stored.
    :raises ValidationError: a string or the name of a member contains NUL.
    """
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            if '\0' in value:
                raise ValidationError('The character NUL (U+0000) is not allowed')
        elif isinstance(value, dict):
            pending += value.keys()
            pending += value.values()
        elif isinstance(value, list):
            pending += value
