"""Checks the headers that describe the body of a request, and limits the size of the body."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO
from wsgiref.types import WSGIApplication

from webob import exc

#: The form of a valid ``Content-Length``.
CONTENT_LENGTH = re.compile(r'[0-9]{1,18}')


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
