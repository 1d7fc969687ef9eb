"""Connections: time limits, bounds and errors, over real sockets in the process of the test."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from placement.serving import channel
from placement.serving.channel import ConnectionTable
from tests.support import error_details
from tests.support.waiting import wait_until

#: The time limit of clients in seconds, and a time longer than any test takes that does not wait for the limit.
SHORT, LONG = 0.3, 60.0
WHOLE = b'GET /traits HTTP/1.1\r\nHost: x\r\n\r\n'
#: Its response is too large to be sent before the client reads.
LARGE = WHOLE.replace(b'/traits', b'/long')
HALF = b'PUT /traits/A HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf'


#: When the application answers requests of ``/wait``, and whether it has received one.
RELEASED, RECEIVED = threading.Event(), threading.Event()


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer with the path; ``/long`` is answered with some megabytes, ``/parts...`` with as many before it waits."""
    if environ['PATH_INFO'] == '/wait':
        RECEIVED.set()
        assert RELEASED.wait(LONG)
    if environ['PATH_INFO'].startswith('/parts'):
        start_response('200 OK', [('Content-Length', '8000001')])
        return two_parts()
    body = b'x' * 8_000_000 if environ['PATH_INFO'] == '/long' else environ['PATH_INFO'].encode('latin-1')
    start_response('200 OK', [('Content-Length', str(len(body)))])
    return [body]


def two_parts() -> Iterator[bytes]:
    """A part of an response, and the last byte when it is released."""
    yield b'x' * 8_000_000
    assert RELEASED.wait(LONG)
    yield b'x'


class Service:
    """A server whose loop the test runs step by step."""

    def __init__(self, request_read_timeout: float = LONG, keepalive_timeout: float = LONG, **options: Any) -> None:
        self.connections = ConnectionTable(100, request_read_timeout, keepalive_timeout)
        listener = socket.create_server(('127.0.0.1', 0))
        self.address = listener.getsockname()
        self._server = self.connections.listen(application, [listener], threads=1, **options)

    def turn(self) -> None:
        """Run the loop once, and check the time limits."""
        self.connections.sockets.run_once(0.02)
        self.connections.reap()

    def turn_until(self, condition: Callable[[], object]) -> None:
        """Run the loop until a condition is true."""

        def is_true_after_a_turn() -> object:
            self.turn()
            return condition()

        wait_until(is_true_after_a_turn, pause=0)

    @contextlib.contextmanager
    def looping(self) -> Iterator[None]:
        """Run the loop in a thread, without a time limit: only an event on a socket ends its wait."""
        stopped = threading.Event()

        def run() -> None:
            while not stopped.is_set():
                self.connections.sockets.run_once(LONG)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            stopped.set()
            self._server.trigger.pull_trigger()
            thread.join()

    def connect(self, data: bytes = b'', **options: int) -> socket.socket:
        """A new connection that the server has accepted."""
        connection = socket.socket()
        for name, value in options.items():
            connection.setsockopt(socket.SOL_SOCKET, getattr(socket, name), value)
        connection.connect(self.address)
        connection.sendall(data)
        connection.setblocking(False)
        self.turn_until(lambda: any(peer.addr == connection.getsockname() for peer in self.connections.channels))
        return connection

    def read_response(self, connection: socket.socket, *, until: bytes | None = None) -> bytes:
        """What is received, up to ``until`` or until the connection is closed."""
        # Bytes would be copied for each part.
        received = bytearray()
        deadline = time.monotonic() + LONG
        while until is None or until not in received:
            assert time.monotonic() < deadline, received
            self.turn()
            with contextlib.suppress(BlockingIOError):
                part = connection.recv(1_000_000)
                if not part:
                    break
                received += part
        return bytes(received)

    def finish(self) -> None:
        """Wait until the thread has processed all requests."""
        dispatcher = self._server.task_dispatcher
        wait_until(lambda: not dispatcher.active_count and not dispatcher.queue)

    def stop(self) -> None:
        """Close everything."""
        self._server.task_dispatcher.shutdown()
        self.connections.sockets.close()


@pytest.fixture
def services() -> Iterator[Any]:
    """Make services that are stopped at the end."""
    RELEASED.clear()
    RECEIVED.clear()
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Service:
            service = Service(**options)
            stack.callback(service.stop)
            return service

        yield make


@pytest.fixture
def service(services: Any) -> Service:
    """A service with long time limits."""
    return services()


def error_of(response: bytes) -> tuple[int, str]:
    """Status and reason of an error document."""
    (error,) = json.loads(response.partition(b'\r\n\r\n')[2])['errors']
    assert response.startswith(f'HTTP/1.1 {error["status"]} '.encode())
    return error['status'], error_details.reason(error)


def test_pipelined_requests_are_answered_on_one_connection(service: Service) -> None:
    with service.connect(WHOLE.replace(b'/traits', b'/a') + WHOLE.replace(b'/traits', b'//b')) as connection:
        response = service.read_response(connection, until=b'//b')
        assert response.count(b'HTTP/1.1 200 OK') == 2
        assert service.connections.channels != []


@pytest.mark.parametrize('closes', [b'', b'Connection: close\r\n'], ids=['kept', 'closed'])
def test_a_request_that_comes_during_another_one_is_answered_at_once(service: Service, closes: bytes) -> None:
    """The loop ignores the connection during the first request, and has to be woken after it."""
    with service.looping(), socket.create_connection(service.address, timeout=LONG / 2) as connection:
        connection.sendall(WHOLE.replace(b'/traits', b'/wait'))
        assert RECEIVED.wait(LONG)
        connection.sendall(WHOLE.replace(b'\r\n\r\n', b'\r\n' + closes + b'\r\n'))
        # Time for the loop to see that something has come.
        time.sleep(0.1)
        RELEASED.set()
        response = b''
        while b'/traits' not in response:
            response += connection.recv(65536)
        assert response.count(b'HTTP/1.1 200 OK') == 2
        if closes:
            assert connection.recv(1) == b''


def test_the_rest_of_a_long_answer_is_sent_when_the_client_reads(service: Service) -> None:
    with service.looping(), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(LONG / 2)
        connection.connect(service.address)
        for _ in range(2):
            connection.sendall(LARGE)
            receive(connection, 8_000_000)


def test_a_part_of_an_answer_is_sent_whole_before_the_next_part_is_made(services: Any) -> None:
    service = services(outbuf_overflow=100_000_000)
    with service.looping(), socket.create_connection(service.address, timeout=LONG / 2) as connection:
        connection.sendall(b'GET /parts HTTP/1.1\r\nHost: x\r\n\r\n')
        receive(connection, 8_000_000)
        RELEASED.set()
        receive(connection, 1)


def receive(connection: socket.socket, length: int) -> None:
    """Receive at least ``length`` bytes."""
    while length > 0:
        received = len(connection.recv(1_000_000))
        assert received
        length -= received


def test_an_incomplete_request_gets_408_after_the_time_limit(services: Any) -> None:
    service = services(request_read_timeout=SHORT)
    started = time.monotonic()
    with service.connect(HALF) as connection:
        assert error_of(service.read_response(connection)) == (408, 'The request did not arrive completely in time.')
    assert time.monotonic() - started >= SHORT


def test_a_request_that_ends_early_gets_400(service: Service) -> None:
    with service.connect(HALF) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert error_of(service.read_response(connection)) == (400, 'The request ended before it was complete.')


def test_a_rejected_client_has_time_to_read_the_answer(services: Any) -> None:
    """Its time limit has passed when limits are checked before the loop has sent the whole response."""
    service = services(request_read_timeout=SHORT)
    with service.connect(HALF) as connection:
        (connected,) = service.connections.channels
        service.turn_until(lambda: connected.request)
        # The time limit itself.
        time.sleep(SHORT)
        service.connections.reap()
        wait_until(lambda: not connected.requests)
        service.connections.reap()
        assert service.connections.channels == [connected]
        assert error_of(service.read_response(connection))[0] == 408


def test_bytes_after_a_rejected_request_are_discarded(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing the connection at once would reset it, and the client would not read the response."""
    monkeypatch.setattr(channel, '_DRAIN_SECONDS', LONG)
    service = services(request_read_timeout=SHORT)
    with service.connect(HALF) as connection:
        assert error_of(service.read_response(connection))[0] == 408
        service.connections.request_read_timeout = LONG
        connection.sendall(WHOLE * 1000)
        for _ in range(5):
            service.turn()
        assert len(service.connections.channels) == 1
        monkeypatch.setattr(channel, '_DRAIN_SECONDS', 0.0)
        service.turn_until(lambda: not service.connections.channels)


@pytest.mark.parametrize(('data', 'time_is_up'), [(b'', 'request_read_timeout'), (WHOLE, 'keepalive_timeout')])
def test_an_idle_connection_is_closed_after_its_time_limit(services: Any, data: bytes, time_is_up: str) -> None:
    service = services(**{time_is_up: SHORT})
    with service.connect(data) as connection:
        started = time.monotonic()
        assert service.read_response(connection).endswith(b'/traits' if data else b'')
        assert SHORT / 2 < time.monotonic() - started < LONG / 2


def test_a_request_that_is_being_processed_is_not_timed_out(service: Service) -> None:
    with service.connect(WHOLE.replace(b'/traits', b'/wait')) as connection:
        service.turn_until(RECEIVED.is_set)
        service.connections.request_read_timeout = service.connections.keepalive_timeout = 0.0
        service.connections.reap()
        assert service.connections.channels != []
        service.connections.request_read_timeout = service.connections.keepalive_timeout = LONG
        RELEASED.set()
        assert service.read_response(connection, until=b'/wait').startswith(b'HTTP/1.1 200 ')


def test_beyond_max_connections_the_longest_idle_connection_is_closed(service: Service) -> None:
    # Two of the sockets are the listener and its trigger.
    service.connections.max_connections = len(service.connections.sockets) + 2
    with contextlib.ExitStack() as stack:
        first, second, third, fourth = (stack.enter_context(service.connect()) for _ in range(4))
        assert service.read_response(first) == b''
        for connection in (second, third, fourth):
            connection.sendall(WHOLE)
            assert service.read_response(connection, until=b'/traits').startswith(b'HTTP/1.1 200 ')


def test_a_client_that_does_not_read_its_answer_is_closed(services: Any) -> None:
    service = services(request_read_timeout=SHORT)
    with service.connect(LARGE, SO_RCVBUF=4096):
        service.turn_until(lambda: not service.connections.channels)


def test_a_client_that_reads_slowly_is_not_closed(services: Any) -> None:
    """Although the kernel accepts nothing for longer than the time limit, because it has buffered megabytes."""
    service = services(request_read_timeout=0.5)
    with service.connect(LARGE, SO_RCVBUF=4096) as connection:
        (connected,) = service.connections.channels
        service.turn_until(lambda: connected.total_outbufs_len and not connected.requests)
        unsent, deadline = connected.total_outbufs_len, time.monotonic() + 1.5
        while time.monotonic() < deadline:
            with contextlib.suppress(BlockingIOError):
                assert connection.recv(4096)
            service.turn()
        assert service.connections.channels == [connected]
        assert connected.total_outbufs_len == unsent
        # It reads no more.
        service.turn_until(lambda: not service.connections.channels)


def test_a_step_of_the_clock_closes_no_connection(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = services(request_read_timeout=LONG)
    with service.connect(LARGE, SO_RCVBUF=4096), service.connect(WHOLE), service.connect(HALF):
        service.turn_until(lambda: any(channel.total_outbufs_len for channel in service.connections.channels))
        tomorrow = time.time() + 86400
        monkeypatch.setattr(time, 'time', lambda: tomorrow)
        for _ in range(3):
            service.turn()
        assert len(service.connections.channels) == 3


def test_closed_connections_leave_no_temporary_files(services: Any) -> None:
    """Of a response that is not sent, and a body that has not arrived, both too large for memory."""
    service = services(inbuf_overflow=100)
    half = HALF.replace(b'10', b'1000') + b'x' * 500
    with service.connect(LARGE, SO_RCVBUF=4096), service.connect(half):
        writing, reading = service.connections.channels
        service.turn_until(lambda: not writing.requests and reading.request)
        files = [writing.outbufs[-1].getfile(), reading.request.body_rcv.getfile()]
        assert [file.closed for file in files] == [False, False]
        service.stop()
    assert [file.closed for file in files] == [True, True]


def test_no_more_connections_are_closed_than_the_limit_of_unread_answers_needs(
    services: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = services(outbuf_overflow=100_000_000)
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(service.connect(LARGE, SO_RCVBUF=4096)) for _ in range(3)]
        service.turn_until(
            lambda: all(not peer.requests and peer.total_outbufs_len for peer in service.connections.channels)
        )
        assert len(service.connections.channels) == len(connections)
        # The threads may have begun the responses in any order.
        _oldest, *others = sorted(service.connections.channels, key=lambda peer: peer.since)
        # Without one of the connections, the rest is within the limit, even if the kernel still takes some of it.
        limit = sum(peer.total_outbufs_len for peer in others) + 1
        monkeypatch.setattr(channel, '_MAX_PROCESS_UNSENT_BYTES', limit)
        service.turn()
        assert {peer.addr for peer in service.connections.channels} == {peer.addr for peer in others}


def test_pipelined_requests_are_not_processed_while_much_is_unread(services: Any) -> None:
    service = services(outbuf_overflow=100_000_000)
    with service.connect(LARGE * 4, SO_RCVBUF=262144) as connection:
        responses = service.read_response(connection)
    # The second is begun when the first one waits to be sent.
    assert responses.count(b'HTTP/1.1 200 OK') == 2
    assert responses.count(b'Connection: close') == 1


def test_after_a_stop_answers_close_their_connections(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, '_IDLE_SECONDS_AT_STOP', SHORT)
    with service.connect() as active, service.connect() as idle:
        service.connections.stopped_at = time.monotonic()
        active.sendall(WHOLE)
        assert b'Connection: close' in service.read_response(active)
        assert service.read_response(idle) == b''


@pytest.mark.parametrize(
    ('lines', 'reason'),
    [
        (b'Transfer-Encoding: gzip\r\n', 'transfer-encoding header must be chunked, and nothing else'),
        (b'Content-Length: ' + b'9' * 5000 + b'\r\n', 'content-length header must be an integer'),
        (
            b'Content-Length: 5\r\nTransfer-Encoding: chunked\r\n',
            'There must not be both transfer-encoding and content-length.',
        ),
    ],
)
def test_an_invalid_request_head_gets_an_error_document(service: Service, lines: bytes, reason: str) -> None:
    with service.connect(b'POST /traits HTTP/1.1\r\nHost: x\r\n' + lines + b'\r\n') as connection:
        assert error_of(service.read_response(connection)) == (400, reason)


#: A request that stands inside the body of another one.
INNER = b'GET /inner HTTP/1.1\r\nHost: x\r\n\r\n'
CHUNKS = b'%x\r\n%s\r\n0\r\n\r\n' % (len(INNER), INNER)
CHUNKED, LENGTH = b'Transfer-Encoding: chunked\r\n', b'Content-Length: 4\r\n'


@pytest.mark.parametrize(
    ('version', 'fields', 'body'),
    [
        (b'1.0', b'Connection: keep-alive\r\n' + CHUNKED + LENGTH, CHUNKS),
        (b'1.0', b'Connection: keep-alive\r\n' + CHUNKED, CHUNKS),
        (b'1.2', b'Connection: keep-alive\r\n' + CHUNKED + LENGTH, CHUNKS),
        (b'2.0', CHUNKED, CHUNKS),
        (b'1.1', CHUNKED + LENGTH, CHUNKS),
        (b'1.1', b'Transfer-Encoding:\r\n' + LENGTH, CHUNKS),
        (b'1.1', b'Transfer-Encoding: ,\r\n' + LENGTH, CHUNKS),
        (b'1.1', b'Transfer-Encoding: identity\r\n' + LENGTH, CHUNKS),
        (b'1.1', b'Transfer-Encoding: gzip, chunked\r\n', CHUNKS),
        (b'1.1', b'Transfer-Encoding: chunked, chunked\r\n', CHUNKS),
        (b'1.1', CHUNKED + CHUNKED, CHUNKS),
        (b'1.1', b'Transfer-Encoding:\r\n chunked\r\n', CHUNKS),
        (b'1.1', b'X: y\r\n Transfer-Encoding: chunked\r\n' + LENGTH, CHUNKS),
        (b'1.1', b'Expect: 100-continue\r\n' + CHUNKED + LENGTH, b''),
        (b'1.1', CHUNKED, b'0\n\r\n\r\n' + INNER),
        (b'1.1', CHUNKED, b'1;a\n\r\nx\r\n0\r\n\r\n' + INNER),
    ],
    ids=range(16),
)
def test_a_request_whose_end_is_ambiguous_gets_400_and_ends_its_connection(
    services: Any, version: bytes, fields: bytes, body: bytes
) -> None:
    """RFC 9112, 6.1 and 6.3. Else a proxy that finds another end lets a client hide a request in a body.

    waitress itself rejects other such requests.
    """
    service = services(request_read_timeout=SHORT, keepalive_timeout=SHORT)
    with service.connect(b'POST /outer HTTP/' + version + b'\r\nHost: x\r\n' + fields + b'\r\n' + body) as connection:
        response = service.read_response(connection)
    assert response.partition(b' ')[2].startswith(b'400 ')
    assert response.count(b'\r\n\r\n') == 1
    assert response.lower().count(b'\r\nconnection: ') == response.count(b'\r\nConnection: close\r\n') == 1


@pytest.mark.parametrize(('length', 'status'), [(99, b'100 '), (100, b'413 '), (10**17, b'413 ')])
def test_a_body_that_is_too_long_is_not_asked_for(services: Any, length: int, status: bytes) -> None:
    service = services(max_request_body_size=100)
    head = b'POST /traits HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n' % length
    with service.connect(head) as connection:
        assert service.read_response(connection, until=b'\r\n\r\n').partition(b' ')[2].startswith(status)


def test_the_log_says_which_response_a_client_did_not_wait_for(services: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service = services(outbuf_overflow=100_000_000)
    with service.connect(b'GET /parts%0A2026 HTTP/1.1\r\nHost: x\r\n\r\n', SO_RCVBUF=4096) as connection:
        reset(service, connection)
        RELEASED.set()
        service.finish()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.INFO] == [
        'The client closed its connection before the response to "GET /parts%0A2026" was sent'
    ]


def reset(service: Service, connection: socket.socket) -> None:
    """Reset a connection that has unsent data, and wait until the server has closed it."""
    service.turn_until(lambda: any(peer.total_outbufs_len for peer in service.connections.channels))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 0))
    connection.close()
    service.turn_until(lambda: not service.connections.channels)


def test_a_url_may_have_bytes_that_should_be_percent_encoded(service: Service) -> None:
    with service.connect('GET /traits/é HTTP/1.1\r\nHost: x\r\n\r\n'.encode()) as connection:
        assert '\r\n\r\n/traits/é'.encode() in service.read_response(connection, until='é'.encode())


def test_paths_outside_of_the_prefix_are_404(services: Any) -> None:
    service = services(url_prefix='/placement')
    with service.connect(b'GET /placement/traits HTTP/1.1\r\nHost: x\r\n\r\n') as connection:
        assert service.read_response(connection, until=b'/traits').endswith(b'\r\n\r\n/traits')
        connection.sendall(b'GET /placements HTTP/1.1\r\nHost: x\r\n\r\n')
        assert error_of(service.read_response(connection)) == (404, 'The resource could not be found.')
