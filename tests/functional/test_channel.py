"""Connections to clients: time limits, bounds and errors, over real sockets in the process of the test."""

from __future__ import annotations

import contextlib
import functools
import json
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import waitress
from waitress import wasyncore

from placement.serving import channel
from placement.serving.channel import Channel, Clients

#: The time limit of clients in seconds, and a time longer than any test takes that does not wait for the limit.
SHORT, LONG = 0.3, 60.0
WHOLE = b'GET /traits HTTP/1.1\r\nHost: x\r\n\r\n'
HALF = b'PUT /traits/A HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf'


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer with the path; ``/long`` is answered with some megabytes."""
    body = b'x' * 8_000_000 if environ['PATH_INFO'] == '/long' else environ['PATH_INFO'].encode('latin-1')
    start_response('200 OK', [('Content-Length', str(len(body)))])
    return [body]


class Service:
    """A server whose loop the test runs step by step."""

    def __init__(self, request_read_timeout: float = LONG, keepalive_timeout: float = LONG, **options: Any) -> None:
        self.clients = Clients(100, request_read_timeout, keepalive_timeout)
        listener = socket.create_server(('127.0.0.1', 0))
        self.address = listener.getsockname()
        self._server = waitress.create_server(
            application,
            map=self.clients.sockets,
            sockets=[listener],
            threads=1,
            outbuf_high_watermark=sys.maxsize,
            connection_limit=sys.maxsize,
            channel_timeout=sys.maxsize,
            **options,
        )
        self._server.channel_class = functools.partial(Channel, self.clients)

    def turn(self) -> None:
        """Run the loop once, and check the time limits."""
        wasyncore.loop(0.02, use_poll=True, map=self.clients.sockets, count=1)
        self.clients.reap()

    def connect(self, said: bytes = b'', **options: int) -> socket.socket:
        """A new connection that the server has accepted."""
        connection = socket.socket()
        for name, value in options.items():
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        connection.connect(self.address)
        connection.sendall(said)
        connection.setblocking(False)
        before = time.monotonic()
        while not any(each.addr == connection.getsockname() for each in self.clients.channels):
            assert time.monotonic() - before < LONG
            self.turn()
        return connection

    def answer(self, connection: socket.socket, *, until: bytes | None = None) -> bytes:
        """What is received, up to ``until`` or until the connection is closed."""
        told = b''
        deadline = time.monotonic() + LONG
        while until is None or until not in told:
            assert time.monotonic() < deadline, told
            self.turn()
            with contextlib.suppress(BlockingIOError):
                part = connection.recv(65536)
                if not part:
                    return told
                told += part
        return told

    def stop(self) -> None:
        """Close everything."""
        self._server.task_dispatcher.shutdown()
        wasyncore.close_all(self.clients.sockets)


@pytest.fixture
def services() -> Iterator[Any]:
    """Make services that are stopped at the end."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Service:
            made = Service(**options)
            stack.callback(made.stop)
            return made

        yield make


def error_of(answer: bytes) -> tuple[int, str]:
    """Status and detail of an error document."""
    (error,) = json.loads(answer.partition(b'\r\n\r\n')[2])['errors']
    assert answer.startswith(f'HTTP/1.1 {error["status"]} '.encode())
    return error['status'], error['detail']


def test_pipelined_requests_are_answered_on_one_connection(services: Any) -> None:
    service = services()
    with service.connect(WHOLE.replace(b'/traits', b'/a') + WHOLE.replace(b'/traits', b'//b')) as connection:
        answer = service.answer(connection, until=b'//b')
        assert answer.count(b'HTTP/1.1 200 OK') == 2
        assert service.clients.channels != []


def test_an_incomplete_request_gets_408_after_the_time_limit(services: Any) -> None:
    service = services(request_read_timeout=SHORT)
    started = time.monotonic()
    with service.connect(HALF) as connection:
        assert error_of(service.answer(connection)) == (408, 'The request did not come whole in time.')
    assert time.monotonic() - started >= SHORT


def test_a_request_that_ends_early_gets_400(services: Any) -> None:
    service = services()
    with service.connect(HALF) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert error_of(service.answer(connection)) == (400, 'The request ended before it was whole.')


def test_a_refused_client_has_time_to_read_the_answer(services: Any) -> None:
    """Its time limit has passed when limits are checked before the loop has sent the whole answer."""
    service = services(request_read_timeout=SHORT)
    with service.connect(HALF) as connection:
        (connected,) = service.clients.channels
        deadline = time.monotonic() + LONG
        while not connected.request:
            assert time.monotonic() < deadline
            service.turn()
        time.sleep(SHORT)
        service.clients.reap()
        while connected.requests:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        service.clients.reap()
        assert service.clients.channels == [connected]
        assert error_of(service.answer(connection))[0] == 408


def test_bytes_after_a_refused_request_are_discarded(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the connection at once would reset it, and the client would not read the answer."""
    monkeypatch.setattr(channel, '_DRAIN_SECONDS', LONG)
    service = services(request_read_timeout=SHORT)
    with service.connect(HALF) as connection:
        assert error_of(service.answer(connection))[0] == 408
        service.clients.request_read_timeout = LONG
        connection.sendall(WHOLE * 1000)
        for _ in range(5):
            service.turn()
        assert len(service.clients.channels) == 1
        monkeypatch.setattr(channel, '_DRAIN_SECONDS', 0.0)
        deadline = time.monotonic() + LONG
        while service.clients.channels:
            assert time.monotonic() < deadline
            service.turn()


@pytest.mark.parametrize(('said', 'time_is_up'), [(b'', 'request_read_timeout'), (WHOLE, 'keepalive_timeout')])
def test_an_idle_connection_is_closed_after_its_time_limit(services: Any, said: bytes, time_is_up: str) -> None:
    service = services(**{time_is_up: SHORT})
    with service.connect(said) as connection:
        started = time.monotonic()
        assert service.answer(connection).endswith(b'/traits' if said else b'')
        assert SHORT / 2 < time.monotonic() - started < LONG / 2


def test_beyond_max_connections_the_longest_idle_connection_is_closed(services: Any) -> None:
    service = services()
    # Two of the sockets are the listener and its trigger.
    service.clients.max_connections = len(service.clients.sockets) + 2
    with contextlib.ExitStack() as stack:
        first, second, third, fourth = (stack.enter_context(service.connect()) for _ in range(4))
        assert service.answer(first) == b''
        for connection in (second, third, fourth):
            connection.sendall(WHOLE)
            assert service.answer(connection, until=b'/traits').startswith(b'HTTP/1.1 200 ')


def test_a_client_that_does_not_read_its_answer_is_closed(services: Any) -> None:
    service = services(request_read_timeout=SHORT)
    with service.connect(b'GET /long HTTP/1.1\r\nHost: x\r\n\r\n', SO_RCVBUF=4096):
        deadline = time.monotonic() + LONG
        while service.clients.channels:
            assert time.monotonic() < deadline
            service.turn()


def test_a_connection_with_too_much_unread_answer_is_closed(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, '_MAX_PROCESS_UNSENT_BYTES', 5_000_000)
    service = services()
    with service.connect(b'GET /long HTTP/1.1\r\nHost: x\r\n\r\n', SO_RCVBUF=4096), service.connect() as idle:
        deadline = time.monotonic() + LONG
        while len(service.clients.channels) > 1:
            assert time.monotonic() < deadline
            service.turn()
        assert service.clients.channels[0].addr == idle.getsockname()


def test_no_more_connections_are_closed_than_the_limit_of_unread_answers_needs(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services(outbuf_overflow=100_000_000)
    long = b'GET /long HTTP/1.1\r\nHost: x\r\n\r\n'
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(service.connect(long, SO_RCVBUF=4096)) for _ in range(3)]
        deadline = time.monotonic() + LONG
        while any(each.requests or not each.total_outbufs_len for each in service.clients.channels):
            assert time.monotonic() < deadline
            service.turn()
        unread = [each.total_outbufs_len for each in service.clients.channels]
        assert len(unread) == 3
        # The one that has waited longest is too much.
        monkeypatch.setattr(channel, '_MAX_PROCESS_UNSENT_BYTES', sum(unread) - 1)
        service.turn()
        left = {each.addr for each in service.clients.channels}
        assert left == {connection.getsockname() for connection in connections[1:]}


def test_pipelined_requests_are_not_processed_while_much_is_unread(services: Any) -> None:
    service = services(outbuf_overflow=100_000_000)
    long = b'GET /long HTTP/1.1\r\nHost: x\r\n\r\n'
    with service.connect(long * 4, SO_RCVBUF=262144) as connection:
        answers = service.answer(connection)
    # The second is begun when the first one waits to be sent.
    assert answers.count(b'HTTP/1.1 200 OK') == 2
    assert answers.count(b'Connection: close') == 1


def test_a_long_answer_is_received_whole(services: Any) -> None:
    service = services()
    with service.connect(b'GET /long HTTP/1.0\r\n\r\n') as connection:
        assert len(service.answer(connection).partition(b'\r\n\r\n')[2]) == 8_000_000


def test_after_a_stop_answers_close_their_connections(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, '_IDLE_SECONDS_AT_STOP', SHORT)
    service = services()
    with service.connect() as asking, service.connect() as idle:
        service.clients.stopped = time.monotonic()
        asking.sendall(WHOLE)
        assert b'Connection: close' in service.answer(asking)
        assert service.answer(idle) == b''


def test_a_url_may_have_bytes_that_should_be_percent_encoded(services: Any) -> None:
    service = services()
    with service.connect('GET /traits/é HTTP/1.1\r\nHost: x\r\n\r\n'.encode()) as connection:
        assert service.answer(connection, until=b'/traits').endswith('\r\n\r\n/traits/é'.encode())


@pytest.mark.parametrize(
    ('lines', 'detail'),
    [
        (b'Transfer-Encoding: gzip\r\n', 'transfer-encoding header must be chunked, and nothing else'),
        (b'Content-Length: five\r\n', 'content-length header must be an integer'),
        (b'Content-Length: -1\r\n', 'content-length header must be an integer'),
        (b'Content-Length: ' + b'9' * 5000 + b'\r\n', 'content-length header must be an integer'),
        (
            b'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n',
            'There must not be both transfer-encoding and content-length.',
        ),
    ],
)
def test_an_invalid_request_head_gets_an_error_document(services: Any, lines: bytes, detail: str) -> None:
    service = services()
    with service.connect(b'POST /traits HTTP/1.1\r\nHost: x\r\n' + lines + b'\r\n') as connection:
        assert error_of(service.answer(connection)) == (400, detail)


def test_paths_outside_of_the_prefix_are_404(services: Any) -> None:
    service = services(url_prefix='/placement')
    with service.connect(b'GET /placement/traits HTTP/1.1\r\nHost: x\r\n\r\n') as connection:
        assert service.answer(connection, until=b'/traits').endswith(b'\r\n\r\n/traits')
        connection.sendall(b'GET /placements HTTP/1.1\r\nHost: x\r\n\r\n')
        assert error_of(service.answer(connection)) == (404, 'The resource could not be found.')
