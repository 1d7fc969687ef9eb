"""A connection of waitress to a client, with the limits, timeouts and error responses that waitress lacks.

The methods that it overrides are not documented. They were read in waitress 3.0.2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import logging
import re
import socket
import sys
import termios
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import WSGIApplication

import waitress
import webob
from oslo_log import log
from waitress import receiver, rfc7230, task, utilities
from waitress.channel import ClientDisconnected, HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError, TransferEncodingNotImplemented
from waitress.server import BaseWSGIServer
from webob import exc

from placement import units
from placement.serving.socket_map import SocketMap
from placement.serving.threads import Threads
from placement.web import error_responses, http, request_log
from placement.web.health_check import SERVER_PROBLEM

LOG = log.getLogger(__name__)

#: How long an idle connection stays open when the process stops, because its client may be sending a request.
_IDLE_SECONDS_AT_STOP = 2.0
#: How much time a client has to close the connection after an error response to an unreadable request.
_DRAIN_SECONDS = 2.0
#: A connection with more bytes of unsent responses is closed after the current response, without processing the
#: requests that the client has pipelined.
_MAX_CONNECTION_UNSENT_BYTES = 1024 * 1024
#: Maximum size of the unsent responses on all connections of one process.
_MAX_PROCESS_UNSENT_BYTES = 128 * 1024 * 1024
#: Maximum size of the part of a response that one call sends, except for the first call.
_MAX_SEND_BYTES = 256 * 1024
#: If there are too many connections, one plus a twentieth of those that wait for their clients are closed.
_EVICTION_DIVISOR = 20

_NOT_ASCII = re.compile(rb'[\x80-\xff]')

# waitress ends its expressions with ``$``, which also matches before a line feed: ``0\n`` would be the last chunk.
receiver.ONLY_HEXDIG_RE = re.compile(rfc7230.ONLY_HEXDIG_RE.pattern[:-1] + rb'\Z')
receiver.CHUNK_EXT_RE = re.compile(rfc7230.CHUNK_EXT_RE.pattern[:-1] + rb'\Z')


class _Timeout(utilities.Error):
    code = 408
    reason = 'Request Timeout'


class _NotFound(utilities.Error):
    code = 404
    reason = 'Not Found'


class _Parser(HTTPRequestParser):
    #: The values for a request that ends before it is parsed. ``version`` is the version of the response.
    command, path, query, version = '-', '', '', '1.1'

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the request line and the headers.

        :raises ParsingError: they are malformed, or the end of the request is ambiguous (RFC 9112, 6.3). A proxy could
            see another end, so a client could hide a request in the body of another request.
        """
        line, end, headers = header_plus.partition(b'\r\n')
        # waitress accepts only ASCII, but curl sends a URL as it was typed.
        line = _NOT_ASCII.sub(lambda byte: b'%%%02X' % ord(byte[0]), line)
        fields = [field.partition(b':') for field in headers.split(b'\r\n')]
        encodings = [value.strip(b' \t').lower() for name, _, value in fields if name.lower() == b'transfer-encoding']
        problem = None
        try:
            super().parse_header(line + end + headers)
        except (ParsingError, TransferEncodingNotImplemented, ValueError) as error:
            # waitress does not catch ValueError, which an unclosed IPv6 address or a number of 5000 digits causes.
            problem = str(error)
        # Under other WSGI servers, the application sends the first and the last of these texts.
        if encodings not in ([], [b'chunked']):
            problem = 'transfer-encoding header must be chunked, and nothing else'
        elif encodings and self.version != '1.1':
            problem = 'There must not be a transfer-encoding header unless the version is HTTP/1.1.'
        elif encodings and 'CONTENT_LENGTH' in self.headers:
            problem = 'There must not be both transfer-encoding and content-length.'
        elif any(name.startswith((b' ', b'\t')) for name, _, _ in fields):
            problem = 'A header must not be continued on another line.'
        elif not http.CONTENT_LENGTH.fullmatch(self.headers.get('CONTENT_LENGTH', '0')):
            problem = 'content-length header must be an integer'
        if problem is not None:
            # Without this, waitress would tell the client to send a body.
            self.expect_continue = False
            raise ParsingError(problem)
        if self.adj.url_prefix and not f'{self.path}/'.startswith(f'{self.adj.url_prefix}/'):
            self.error = _NotFound('')


class _Response(task.Task):
    """The common part of all responses, including responses to unreadable requests."""

    def service(self) -> None:
        """Process the request. Log if its client does not wait for the response."""
        try:
            super().service()
        except ClientDisconnected:
            # waitress would log the path unchanged, and it may contain a newline.
            method, path = request_log.quote(self.request.command), request_log.quote(self.request.path)
            LOG.info('The client closed its connection before the response to "%s %s" was sent', method, path)
            self.close_on_finish = True

    def set_close_on_finish(self) -> None:
        # Without this, waitress would confirm to an HTTP/1.0 client that the connection stays open.
        self.request.headers['CONNECTION'] = 'close'
        super().set_close_on_finish()


class _Task(_Response, task.WSGITask):
    """Passes a request to the application and sends the response."""

    def get_environment(self) -> dict[str, Any]:
        environ = super().get_environment()
        environ[SERVER_PROBLEM] = self.channel.server.task_dispatcher.problem
        # waitress replaces several slashes at the beginning of the path by one.
        environ['PATH_INFO'] = self.request.path.removeprefix(environ['SCRIPT_NAME'])
        if self.channel.addr[1] is None:
            # This is a Unix socket. Links have the host of the Host header and not the server name.
            environ.update(REMOTE_ADDR='', REMOTE_PORT='', SERVER_NAME='localhost', SERVER_PORT='80')
        return environ

    def build_response_header(self) -> bytes:
        """Return the status line and headers, with ``Connection: close`` if this is the last response."""
        self.channel.response_started()
        if self._must_close:
            self.set_close_on_finish()
        return super().build_response_header()

    def set_close_on_finish(self) -> None:
        """Close the connection after this response.

        waitress also calls this if the response has no body. That alone is no reason to close the connection.
        """
        if self.has_body or self._must_close or self.version == '1.0':
            super().set_close_on_finish()

    @property
    def _must_close(self) -> bool:
        channel = self.channel
        return (
            self.request.connection_close
            or channel.connections.stopped_at
            or channel.total_outbufs_len > _MAX_CONNECTION_UNSENT_BYTES
        )


class _ErrorTask(_Response, task.ErrorTask):
    """Sends an error response to a request that the application cannot get, and logs the request."""

    def execute(self) -> None:
        """Send an error document of the API (api-ref/errors.md) and close the connection."""
        parsed = self.request
        request = webob.Request.blank('/', accept='application/json', method=parsed.command)
        request.environ.update(PATH_INFO=parsed.path, QUERY_STRING=parsed.query, REMOTE_ADDR=self.channel.addr[0])
        error = exc.status_map[parsed.error.code](parsed.error.body)
        respond = functools.partial(error_responses.respond, error)
        response = request.get_response(request_log.with_request_id(request_log.RequestLog(respond)))
        self.status = response.status
        self.response_headers.extend(response.headerlist)
        self.content_length = len(response.body)
        self.channel.error_sent = True
        self.channel.response_started()
        self.set_close_on_finish()
        self.write(response.body)


@dataclasses.dataclass
class ConnectionTable:
    """Keeps the connections of one process within their limits.

    :param max_connections: maximum number of open connections. To accept another one, the connections that have waited
        longest are closed.
    :param request_read_timeout: maximum number of seconds until a request has arrived completely, and between two parts
        of a response that the client receives.
    :param keepalive_timeout: maximum number of seconds that a connection may be idle after a response.
    :param sockets: the map of file descriptors of waitress, with connections, listeners and others.
    """

    max_connections: int
    request_read_timeout: float
    keepalive_timeout: float
    sockets: SocketMap = dataclasses.field(default_factory=SocketMap)
    #: The ``time.monotonic`` at which the process began to stop; None before.
    stopped_at: float | None = None
    _evicted: int = 0

    def listen(
        self,
        application: WSGIApplication,
        listeners: list[socket.socket],
        threads: int,
        health_paths: Iterable[str] = (),
        **options: Any,
    ) -> Any:
        """Make a server of waitress with these limits for its connections. Its dispatcher is a ``Threads``.

        :param threads: the number of threads that process requests.
        :param health_paths: paths of requests that do not wait for these threads.
        :param options: more settings of waitress.
        """
        # waitress warns whenever a request waits for a thread.
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)
        server = waitress.create_server(
            application,
            _dispatcher=Threads(threads, health_paths),
            map=self.sockets,
            sockets=listeners,
            ident='',
            # oslo.middleware determines whether the headers of proxies are used.
            clear_untrusted_proxy_headers=False,
            # Do not log connections that clients close early.
            log_socket_errors=False,
            # This object has all limits. With limits of waitress, a thread would wait for a client.
            outbuf_high_watermark=sys.maxsize,
            connection_limit=sys.maxsize,
            channel_timeout=sys.maxsize,
            **options,
        )
        for listening in self.servers:
            listening.channel_class = functools.partial(Channel, self)
            # Prevent waitress from waking the loop after each response.
            listening.pull_trigger = lambda: None
        return server

    @property
    def servers(self) -> list[BaseWSGIServer]:
        """The servers of waitress, one for each listening socket."""
        return [dispatcher for dispatcher in self.sockets.values() if isinstance(dispatcher, BaseWSGIServer)]

    @property
    def channels(self) -> list[Channel]:
        """The open connections."""
        return [dispatcher for dispatcher in self.sockets.values() if isinstance(dispatcher, Channel)]

    def evict_idle(self) -> None:
        """If there are too many connections, close several of those that have waited longest.

        Closing only one would repeat the sort, which is slow, for each new connection.
        """
        if len(self.sockets) <= self.max_connections:
            return
        waiting = self._waiting()
        for channel in waiting[: 1 + len(waiting) // _EVICTION_DIVISOR]:
            self._evict(channel)

    def _waiting(self) -> list[Channel]:
        """Return the connections without a complete request, in descending order of the time that they have waited."""
        return sorted((channel for channel in self.channels if not channel.requests), key=lambda channel: channel.since)

    def _evict(self, channel: Channel) -> None:
        channel.close()
        self._evicted += 1

    def reap(self) -> None:
        """Close the connections that have timed out.

        While the unsent responses of all connections exceed their limit, also close connections that have some, in the
        order in which they began to wait.
        """
        channels = self.channels
        unsent = sum(channel.total_outbufs_len for channel in channels)
        for channel in self._waiting() if unsent > _MAX_PROCESS_UNSENT_BYTES else ():
            if unsent > _MAX_PROCESS_UNSENT_BYTES and channel.total_outbufs_len:
                unsent -= channel.total_outbufs_len
                self._evict(channel)
        if self._evicted:
            closed = units.plural(self._evicted, 'idle or slow connection')
            LOG.warning('Closed %s because a limit was reached', closed)
            self._evicted = 0
        for channel in channels:
            # A connection with a complete request does not wait for its client, but for this process.
            if channel.connected and not channel.requests:
                channel.close_if_timed_out()


class Channel(HTTPChannel):
    """A connection to a client. Its requests are processed one by one, each in a thread of waitress."""

    #: Whether to close the connection. waitress sets this, also in the thread that processes a request.
    will_close: bool

    request: _Parser | None
    sendbuf_len: int

    task_class = _Task
    error_task_class = _ErrorTask
    parser_class = _Parser

    def __init__(self, connections: ConnectionTable, *args: Any, **kwargs: Any) -> None:
        self.connections = connections
        connections.evict_idle()
        #: Start of the current wait: the time at which the client connected, a request or response began, a client had
        #: received more of a response, or discarding received data began.
        self.since = time.monotonic()
        #: The numbers of bytes that this process, and that the kernel, had not sent at the last check.
        self._unsent = (0, 0)
        #: Whether an error response to an unreadable request was sent.
        self.error_sent = False
        self._responded = False
        # Whether received data are discarded until the client closes the connection. Closing the connection while data
        # arrive would make TCP reset it, and the client could lose the response.
        self._draining = False
        super().__init__(*args, **kwargs)
        # waitress copies this number of bytes in each call that sends, even if the client receives only a few.
        self.sendbuf_len = min(self.sendbuf_len, _MAX_SEND_BYTES)

    def response_started(self) -> None:
        """Start the timeout for the client to receive a response."""
        self.since = time.monotonic()
        self._responded = True

    def write_soon(self, data: Any) -> int:
        """Send as much as the socket accepts now, and buffer the rest. waitress would first buffer everything."""
        sent = 0
        with self.outbuf_lock:
            if data and self.connected and not self.total_outbufs_len:
                # The error will occur again and be handled when the rest is sent.
                with contextlib.suppress(OSError):
                    sent = self.send(data, do_close=False)
        buffered = super().write_soon(memoryview(data)[sent:] if sent else data)
        if buffered:
            self._wake_loop()
        return sent + buffered

    def service(self) -> None:
        """Process the first request in a thread."""
        super().service()
        self._wake_loop()

    def _wake_loop(self) -> None:
        """Wake the loop if the work of this thread requires it, and let it check this connection.

        The loop also has to know that this thread will be free, because while all threads are busy, it pauses before it
        accepts connections.
        """
        if self.connected and (self.connections.sockets.is_outdated(self) or not self.server.accepting):
            self.server.trigger.pull_trigger(functools.partial(self.connections.sockets.update, self))

    def handle_read(self) -> None:
        """Receive data from the client."""
        try:
            data = self.socket.recv(self.adj.recv_bytes)
        except BlockingIOError:
            return
        except OSError:
            self.close()
            return
        if data and not self._draining:
            if self.request is None:
                self.since = time.monotonic()
            self.received(data)
        elif not data and self.request is not None:
            self._send_error(self.request, utilities.BadRequest('The request ended before it was complete.'))
        elif not data:
            self.close()

    def _send_error(self, part: _Parser, error: utilities.Error) -> None:
        """Send an error response to an incomplete request."""
        part.error = error
        self.requests.append(part)
        self.request = None
        self.server.add_task(self)

    def handle_close(self) -> None:
        """Close the connection. After an unreadable request, first close it only for sending.

        Then the client has time to read the error response (``_DRAIN_SECONDS``).
        """
        if not self.error_sent:
            super().handle_close()
            return
        self.error_sent = self.will_close = False
        self._draining = True
        self.since = time.monotonic()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection now, and the temporary files with received and unsent data."""
        if self.request is not None:
            self.request.close()
        super().handle_close()

    def _note_progress(self) -> None:
        """Start the timeout again if the client has received a part of the response since the last check.

        The kernel may buffer some megabytes, and accepts more only when a third of them is sent, so a slow client makes
        progress long before this process can send again. The peer acknowledges what it has received.
        """
        if not self.total_outbufs_len:
            return
        # On a socket, this is SIOCOUTQ: what the kernel has not sent, or the peer not acknowledged.
        queued = fcntl.ioctl(self.socket.fileno(), termios.TIOCOUTQ, bytes(4))
        unsent = self.total_outbufs_len, int.from_bytes(queued, sys.byteorder)
        if unsent != self._unsent:
            self._unsent, self.since = unsent, time.monotonic()

    def close_if_timed_out(self) -> None:
        """Close the connection if its timeout is over. First respond to an incomplete request with 408."""
        self._note_progress()
        waited = time.monotonic() - self.since
        if self.total_outbufs_len:
            timed_out = waited > self.connections.request_read_timeout
        elif self._draining:
            timed_out = waited > _DRAIN_SECONDS
        elif self.request is not None:
            if waited > self.connections.request_read_timeout:
                self._send_error(self.request, _Timeout('The request did not arrive completely in time.'))
            return
        elif self.connections.stopped_at:
            timed_out = time.monotonic() - max(self.connections.stopped_at, self.since) > _IDLE_SECONDS_AT_STOP
        else:
            timed_out = waited > (
                self.connections.keepalive_timeout if self._responded else self.connections.request_read_timeout
            )
        if timed_out:
            self.close()
