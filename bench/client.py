"""An HTTP client that costs little: one socket, requests encoded beforehand, bodies that are not parsed."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple, Self

from placement.conf.options import MICROVERSION_CHOICES

DEFAULT_MICROVERSION = '1.29'
#: The newest microversion of the services that are measured.
MAX_MICROVERSION = MICROVERSION_CHOICES[-1]

_TIMEOUT_SECONDS = 300.0
_BUFFER_BYTES = 1 << 20


class Request(NamedTuple):
    """A request; without ``version`` it is made at the microversion of the run."""

    method: str
    path: str
    body: str = ''
    version: str | None = None

    def encode(self, microversion: str) -> bytes:
        """Return the bytes to send, as an administrator, at ``microversion`` unless the request has one of its own."""
        lines = [
            f'{self.method} {self.path} HTTP/1.1',
            'Host: 127.0.0.1',
            'X-Auth-Token: admin',
            f'OpenStack-API-Version: placement {self.version or microversion}',
            'Accept: application/json',
        ]
        if self.body:
            lines += ['Content-Type: application/json', f'Content-Length: {len(self.body.encode())}']
        return '\r\n'.join([*lines, '', self.body]).encode()


class Response(NamedTuple):
    """A response."""

    body: bytes
    #: From the first byte sent to the last byte received.
    seconds: float


class Connection:
    """A connection to a service, open as long as the context lasts."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(('127.0.0.1', port), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = self._socket.makefile('rb', _BUFFER_BYTES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._received.close()
        self._socket.close()

    def send(self, encoded: bytes) -> Response:
        """Send a request and wait for the whole response.

        :raises RuntimeError: the status is not 2xx.
        :raises OSError: the connection ends.
        """
        started = time.perf_counter()
        self._socket.sendall(encoded)
        status = self._line()[9:12]
        length = 0
        while (line := self._line()) != b'\r\n':
            if line[:15].lower() == b'content-length:':
                length = int(line[15:])
        body = self._received.read(length)
        seconds = time.perf_counter() - started
        check(encoded, status, body)
        return Response(body, seconds)

    def _line(self) -> bytes:
        line = self._received.readline()
        if not line:
            raise ConnectionResetError('the server closed the connection')
        return line


def check(encoded: bytes, status: bytes, body: bytes) -> None:
    """Raise RuntimeError if the status of the response to a request is not 2xx."""
    if not status.startswith(b'2'):
        line = encoded.partition(b'\r\n')[0].decode()
        raise RuntimeError(f'{line}: the response was {status.decode()} {body.decode()}')
