"""An HTTP client with little cost: one socket, requests encoded beforehand, bodies that are not parsed."""

from __future__ import annotations

import socket
import time
from typing import NamedTuple

DEFAULT_MICROVERSION = '1.29'
#: The newest microversion of the services that are measured.
MAX_MICROVERSION = '1.39'

#: An older connection is replaced before a request, outside of the timing, since services close idle ones.
_MAX_IDLE_SECONDS = 1.0
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
    """A response. ``body`` is valid until the next request on that connection."""

    status: int
    body: memoryview
    seconds: float


class Connection:
    """A connection that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._last = 0.0

    def send(self, encoded: bytes) -> Response:
        """Send a request and wait for the whole response. Raises OSError when the connection ends."""
        connected = self._connected()
        started = time.perf_counter()
        connected.sendall(encoded)
        head, body_start = self._head(connected)
        status = int(head[9:12])
        length = 0 if status in (204, 304) else _content_length(head)
        body = self._body(connected, length, body_start)
        seconds = time.perf_counter() - started
        self._last = time.monotonic()
        return Response(status, body, seconds)

    def close(self) -> None:
        """Close it; the next request opens it again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connected(self) -> socket.socket:
        if time.monotonic() - self._last > _MAX_IDLE_SECONDS:
            self.close()
        if self._socket is None:
            self._socket = socket.create_connection(('127.0.0.1', self._port), timeout=_TIMEOUT_SECONDS)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    @staticmethod
    def _head(connected: socket.socket) -> tuple[bytes, bytes]:
        received = b''
        while b'\r\n\r\n' not in received:
            piece = connected.recv(65536)
            if not piece:
                raise ConnectionResetError('the server closed the connection')
            received += piece
        head, _, rest = received.partition(b'\r\n\r\n')
        return head, rest

    def _body(self, connected: socket.socket, length: int, start: bytes) -> memoryview:
        if len(self._buffer) < length:
            self._buffer = bytearray(length)
        view = memoryview(self._buffer)[:length]
        view[: len(start)] = start
        filled = len(start)
        while filled < length:
            got = connected.recv_into(view[filled:])
            if not got:
                raise ConnectionResetError('the server closed the connection in the middle of a response')
            filled += got
        return view


def _content_length(head: bytes) -> int:
    _, found, rest = head.lower().partition(b'content-length:')
    if not found:
        raise ValueError(f'a response without Content-Length: {head!r}')
    return int(rest.partition(b'\r\n')[0])
