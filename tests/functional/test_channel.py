"""Connections to clients: time limits, bounds and errors, over real sockets in the process of the test."""

from __future__ import annotations

import contextlib
import json
import resource
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import waitress

from placement.serving import channel
from placement.serving.channel import Clients

#: The time limit of clients in seconds, and a time longer than any test takes that does not wait for the limit.
SHORT, LONG = 0.3, 60.0
WHOLE = b'GET /traits HTTP/1.1\r\nHost: x\r\n\r\n'
HALF = b'PUT /traits/A HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf'


#: When the application answers requests of ``/wait``, and whether it has received one.
RELEASED, RECEIVED = threading.Event(), threading.Event()


def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
    """Answer with the path; ``/long`` is answered with some megabytes, and ``/parts`` with as many before it waits."""
    if environ['PATH_INFO'] == '/wait':
        RECEIVED.set()
        assert RELEASED.wait(LONG)
    if environ['PATH_INFO'] == '/parts':
        start_response('200 OK', [('Content-Length', '8000001')])
        return two_parts()
    body = b'x' * 8_000_000 if environ['PATH_INFO'] == '/long' else environ['PATH_INFO'].encode('latin-1')
    start_response('200 OK', [('Content-Length', str(len(body)))])
    return [body]


def two_parts() -> Iterator[bytes]:
    """A part of an answer, and the last byte when it is released."""
    yield b'x' * 8_000_000
    assert RELEASED.wait(LONG)
    yield b'x'


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
        self.clients.accept_from(self._server)

    def turn(self) -> None:
        """Run the loop once, and check the time limits."""
        self.clients.sockets.run_once(0.02)
        self.clients.reap()

    @contextlib.contextmanager
    def looping(self) -> Iterator[None]:
        """Run the loop in a thread, without a time limit: only an event on a socket ends its wait."""
        stopped = threading.Event()

        def run() -> None:
            while not stopped.is_set():
                self.clients.sockets.run_once(LONG)

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
        before = time.monotonic()
        while not any(each.addr == connection.getsockname() for each in self.clients.channels):
            assert time.monotonic() - before < LONG
            self.turn()
        return connection

    def answer(self, connection: socket.socket, *, until: bytes | None = None) -> bytes:
        """What is received, up to ``until`` or until the connection is closed."""
        received = b''
        deadline = time.monotonic() + LONG
        while until is None or until not in received:
            assert time.monotonic() < deadline, received
            self.turn()
            with contextlib.suppress(BlockingIOError):
                part = connection.recv(65536)
                if not part:
                    return received
                received += part
        return received

    def stop(self) -> None:
        """Close everything."""
        self._server.task_dispatcher.shutdown()
        self.clients.sockets.close()


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


def test_the_loop_costs_the_same_with_idle_connections(services: Any) -> None:
    idle = 2000
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, 3 * idle), hard), hard))
    service = services()
    service.clients.max_connections = 2 * idle
    with contextlib.ExitStack() as stack:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        connection = stack.enter_context(service.connect())
        alone = calls_of_requests(service, connection)
        for _ in range(idle):
            other = stack.enter_context(socket.create_connection(service.address))
            other.sendall(WHOLE)
            service.clients.sockets.run_once(LONG)
        while not all(each.last_activity > each.creation_time for each in service.clients.channels):
            service.turn()
        assert len(service.clients.channels) == idle + 1
        # The number of turns depends on the thread that processes the request.
        assert calls_of_requests(service, connection) < 3 * alone


def calls_of_requests(service: Service, connection: socket.socket) -> int:
    """The function calls of the loop for some requests on a connection."""
    count = 0

    def counting(_frame: Any, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {'call', 'c_call'}

    for _ in range(20):
        connection.sendall(WHOLE)
        answer = b''
        while b'/traits' not in answer:
            sys.setprofile(counting)
            service.clients.sockets.run_once(0.02)
            sys.setprofile(None)
            with contextlib.suppress(BlockingIOError):
                answer += connection.recv(65536)
    return count


@pytest.mark.parametrize('closes', [b'', b'Connection: close\r\n'], ids=['kept', 'closed'])
def test_a_request_that_comes_during_another_one_is_answered_at_once(services: Any, closes: bytes) -> None:
    """The loop ignores the connection during the first request, and has to be woken after it."""
    RELEASED.clear()
    RECEIVED.clear()
    service = services()
    with service.looping(), socket.create_connection(service.address, timeout=LONG / 2) as connection:
        connection.sendall(WHOLE.replace(b'/traits', b'/wait'))
        assert RECEIVED.wait(LONG)
        connection.sendall(WHOLE.replace(b'\r\n\r\n', b'\r\n' + closes + b'\r\n'))
        # Time for the loop to see that something has come.
        time.sleep(0.1)
        RELEASED.set()
        answer = b''
        while b'/traits' not in answer:
            answer += connection.recv(65536)
        assert answer.count(b'HTTP/1.1 200 OK') == 2
        if closes:
            assert connection.recv(1) == b''


def test_the_rest_of_a_long_answer_is_sent_when_the_client_reads(services: Any) -> None:
    service = services()
    with service.looping(), socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(LONG / 2)
        connection.connect(service.address)
        for _ in range(2):
            connection.sendall(b'GET /long HTTP/1.1\r\nHost: x\r\n\r\n')
            receive(connection, 8_000_000)


def test_a_part_of_an_answer_is_sent_whole_before_the_next_part_is_made(services: Any) -> None:
    RELEASED.clear()
    service = services(outbuf_overflow=100_000_000)
    with service.looping(), socket.create_connection(service.address, timeout=LONG / 2) as connection:
        connection.sendall(b'GET /parts HTTP/1.1\r\nHost: x\r\n\r\n')
        receive(connection, 8_000_000)
        RELEASED.set()
        receive(connection, 1)


def receive(connection: socket.socket, length: int) -> None:
    """Receive at least so many bytes."""
    while length > 0:
        received = len(connection.recv(1_000_000))
        assert received
        length -= received


def test_an_incomplete_request_gets_408_after_the_time_limit(services: Any) -> None:
    service = services(request_read_timeout=SHORT)
    started = time.monotonic()
    with service.connect(HALF) as connection:
        assert error_of(service.answer(connection)) == (408, 'The request did not arrive completely in time.')
    assert time.monotonic() - started >= SHORT


def test_a_request_that_ends_early_gets_400(services: Any) -> None:
    service = services()
    with service.connect(HALF) as connection:
        connection.shutdown(socket.SHUT_WR)
        assert error_of(service.answer(connection)) == (400, 'The request ended before it was complete.')


def test_a_rejected_client_has_time_to_read_the_answer(services: Any) -> None:
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


def test_bytes_after_a_rejected_request_are_discarded(services: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.parametrize(('data', 'time_is_up'), [(b'', 'request_read_timeout'), (WHOLE, 'keepalive_timeout')])
def test_an_idle_connection_is_closed_after_its_time_limit(services: Any, data: bytes, time_is_up: str) -> None:
    service = services(**{time_is_up: SHORT})
    with service.connect(data) as connection:
        started = time.monotonic()
        assert service.answer(connection).endswith(b'/traits' if data else b'')
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


def test_closed_connections_leave_no_temporary_files(services: Any) -> None:
    """Of a response that is not sent, and a body that has not arrived, both too large for memory."""
    service = services(inbuf_overflow=100)
    half = HALF.replace(b'10', b'1000') + b'x' * 500
    long = b'GET /long HTTP/1.1\r\nHost: x\r\n\r\n'
    with service.connect(long, SO_RCVBUF=4096), service.connect(half):
        writing, reading = service.clients.channels
        deadline = time.monotonic() + LONG
        while writing.requests or not reading.request:
            assert time.monotonic() < deadline
            service.turn()
        files = [writing.outbufs[-1].getfile(), reading.request.body_rcv.getfile()]
        assert [file.closed for file in files] == [False, False]
        service.stop()
    assert [file.closed for file in files] == [True, True]


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
    with service.connect() as active, service.connect() as idle:
        service.clients.stopped = time.monotonic()
        active.sendall(WHOLE)
        assert b'Connection: close' in service.answer(active)
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
