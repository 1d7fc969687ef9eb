"""Counts the statements and rows between services and their database, in a TCP proxy before the database."""

from __future__ import annotations

import contextlib
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

import sqlalchemy as sa

from tests.support import tcp_proxy


class Traffic(NamedTuple):
    """Amounts since the proxy was started, or between two moments.

    A statement is whatever the server answers on its own: also BEGIN, COMMIT, and each part of a text with several
    statements. A row is one that the server returns.
    """

    statements: int
    rows: int

    def since(self, earlier: Traffic) -> Traffic:
        """Return what was added to ``earlier``."""
        return Traffic(*(now - before for now, before in zip(self, earlier, strict=True)))


class _Responses:
    """Counts statements and rows in the bytes that the server sends on one connection."""

    header_size: int

    def __init__(self) -> None:
        self.statements = 0
        self.rows = 0
        self._rest = b''

    def feed(self, received: bytes) -> None:
        """Count in the next bytes."""
        data, start = self._rest + received, 0
        while len(data) >= start + self.header_size:
            end = self.end_of_packet(data, start)
            if end > len(data):
                break
            self.packet(data, start, end)
            start = end
        self._rest = data[start:]

    def end_of_packet(self, data: bytes, start: int) -> int:
        """Return where the packet ends whose header is at ``start``."""
        raise NotImplementedError

    def packet(self, data: bytes, start: int, end: int) -> None:
        """Count one packet."""
        raise NotImplementedError


class _PostgreSQLResponses(_Responses):
    header_size = 5

    def end_of_packet(self, data: bytes, start: int) -> int:
        return start + 1 + int.from_bytes(data[start + 1 : start + 5], 'big')

    def packet(self, data: bytes, start: int, end: int) -> None:  # noqa: ARG002
        kind = data[start : start + 1]
        self.rows += kind == b'D'
        # CommandComplete, EmptyQueryResponse, ErrorResponse.
        self.statements += kind in (b'C', b'I', b'E')


class _MySQLResponses(_Responses):
    """The text protocol without CLIENT_DEPRECATE_EOF, as PyMySQL uses it."""

    header_size = 4
    _OK, _ERROR, _EOF = 0x00, 0xFF, 0xFE

    def __init__(self) -> None:
        super().__init__()
        self._expect: Callable[[int, bool], None] = self._handshake

    def end_of_packet(self, data: bytes, start: int) -> int:
        return start + 4 + int.from_bytes(data[start : start + 3], 'little')

    def packet(self, data: bytes, start: int, end: int) -> None:
        first = data[start + 4]
        self._expect(first, first == self._EOF and end - start < 13)

    def _handshake(self, first: int, _is_eof: bool) -> None:
        if first == self._OK:
            self._expect = self._response

    def _response(self, first: int, _is_eof: bool) -> None:
        self.statements += 1
        if first not in (self._OK, self._ERROR):
            self._expect = self._column

    def _column(self, _first: int, is_eof: bool) -> None:
        if is_eof:
            self._expect = self._row

    def _row(self, first: int, is_eof: bool) -> None:
        if is_eof or first == self._ERROR:
            self._expect = self._response
        else:
            self.rows += 1


class CountingProxy(tcp_proxy.Proxy):
    """Forwards connections to the database at ``url``, and counts what passes."""

    def __init__(self, url: sa.URL) -> None:
        backend = url.get_backend_name()
        super().__init__(url.host or '', url.port or tcp_proxy.PORTS[backend])
        parser = _PostgreSQLResponses if backend == 'postgresql' else _MySQLResponses
        self._responses: defaultdict[socket.socket, _Responses] = defaultdict(parser)

    def forward(self, data: bytes, source: socket.socket, target: socket.socket) -> None:
        """Send on what ``source`` said."""
        # First counted: whoever has received a response finds it in the counts.
        if source not in self._services:
            self._responses[source].feed(data)
        super().forward(data, source, target)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._partners) // 2

    def traffic(self) -> Traffic:
        """Return what has passed since the start."""
        responses = list(self._responses.values())
        return Traffic(sum(response.statements for response in responses), sum(response.rows for response in responses))


#: By driver, the parameters for connections without encryption, as the proxy reads what is sent.
_PLAIN = {
    'psycopg': {'sslmode': 'disable', 'gssencmode': 'disable'},
    'pymysql': {'ssl_disabled': 'true'},
    'mysqldb': {'ssl_mode': 'DISABLED'},
}


@contextlib.contextmanager
def counting(url: str) -> Iterator[tuple[CountingProxy, str]]:
    """A proxy before the database at ``url``, and the URL through it."""
    database = sa.make_url(url)
    proxy = CountingProxy(database)
    with proxy:
        through = database.set(host='127.0.0.1', port=proxy.port).update_query_dict(_PLAIN[database.get_driver_name()])
        yield proxy, through.render_as_string(hide_password=False)
