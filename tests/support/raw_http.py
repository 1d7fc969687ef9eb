"""The bytes of requests and responses, for tests that send them in parts, break them or do not read them."""

from __future__ import annotations

import http.client
import socket

ROOT = b'GET / HTTP/1.1\r\nHost: localhost\r\n\r\n'


def request(method: str, path: str, body: bytes = b'', *headers: str) -> bytes:
    """The bytes of a request of an administrator.

    :param headers: lines instead of those that belong to a JSON body.
    """
    of_body = [f'Content-Length: {len(body)}', 'Content-Type: application/json'] if body else []
    lines = [f'{method} {path} HTTP/1.1', 'Host: localhost', 'X-Auth-Token: admin', *(headers or of_body)]
    return '\r\n'.join([*lines, 'OpenStack-API-Version: placement 1.29', '', '']).encode() + body


def answer(connection: socket.socket) -> http.client.HTTPResponse:
    """The next answer on a connection, of which the whole body was received."""
    response = http.client.HTTPResponse(connection)
    response.begin()
    response.read()
    return response
