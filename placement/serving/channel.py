"""A connection of waitress to a client, with the limits, timeouts and error responses that waitress lacks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import socket
import sys
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

from placement.serving.socket_map import SocketMap
from placement.serving.threads import Threads
from placement.web import body_limits, context, error_document, request_log
from placement.web.health import SERVER_PROBLEM

LOG = log.getLogger(__name__)

#: How long an idle connection stays open after the stop of the process, as its client may be sending a request.
_IDLE_SECONDS_AT_STOP = 2.0
#: How long a client has to close the connection after an error response to a request that could not be read.
_DRAIN_SECONDS = 2.0
#: A connection with more than this of unsent responses is closed after the current response. Further requests that the
#: client has pipelined are not processed then.
_MAX_CONNECTION_UNSENT_BYTES = 1024 * 1024
#: The limit of the unsent responses on all connections of one process.
_MAX_PROCESS_UNSENT_BYTES = 128 * 1024 * 1024
#: The limit of each call that sends a part of a response, except for the first call.
_MAX_SEND_BYTES = 256 * 1024
#: When there are too many connections, the number of waiting ones divided by this, plus one, is closed.
_EVICTION_DIVISOR = 20


_NOT_ASCII = re.compile(rb'[\x80-\xff]')

# The expressions of waitress end with ``$``, which also matches before a line feed: ``0\n`` would be the last chunk.
receiver.ONLY_HEXDIG_RE = re.compile(rfc7230.ONLY_HEXDIG_RE.pattern[:-1] + rb'\Z')
receiver.CHUNK_EXT_RE = re.compile(rfc7230.CHUNK_EXT_RE.pattern[:-1] + rb'\Z')


class _Timeout(utilities.Error):
    code = 408
    reason = 'Request Timeout'


class _NotFound(utilities.Error):
    code = 404
    reason = 'Not Found'


class _Parser(HTTPRequestParser):
    """The parser of one request."""

    #: The values for a request that ends before it is parsed. ``version`` is that of the response.
    command, path, query, version = '-', '', '', '1.1'

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the request line and the headers.

        :raises ParsingError: they are malformed, or the end of the request is ambiguous (RFC 9112, 6.3): a proxy could
            find another one, so that a client could hide a request in the body of another.
        """
        line, end, headers = header_plus.partition(b'\r\n')
        # curl sends a URL as it was typed, which is not always ASCII, and waitress accepts only ASCII.
        line = _NOT_ASCII.sub(lambda byte: b'%%%02X' % ord(byte[0]), line)
        fields = [field.partition(b':') for field in headers.split(b'\r\n')]
        encodings = [value.strip(b' \t').lower() for name, _, value in fields if name.lower() == b'transfer-encoding']
        problem = None
        try:
            super().parse_header(line + end + headers)
        except (ParsingError, TransferEncodingNotImplemented, ValueError) as error:
            # waitress does not catch ValueError: a URL with an unclosed IPv6 address, or a number of 5000 digits.
            problem = str(error)
        # The first and the last text are those that the application sends under other WSGI servers.
        if encodings not in ([], [b'chunked']):
            problem = 'transfer-encoding header must be chunked, and nothing else'
        elif encodings and self.version != '1.1':
            problem = 'There must not be a transfer-encoding header unless the version is HTTP/1.1.'
        elif encodings and 'CONTENT_LENGTH' in self.headers:
            problem = 'There must not be both transfer-encoding and content-length.'
        elif any(name.startswith((b' ', b'\t')) for name, _, _ in fields):
            problem = 'A header must not be continued on another line.'
        elif not body_limits.CONTENT_LENGTH.fullmatch(self.headers.get('CONTENT_LENGTH', '0')):
            problem = 'content-length header must be an integer'
        if problem is not None:
            # Otherwise the client would be told to send a body.
            self.expect_continue = False
            raise ParsingError(problem)
        if self.adj.url_prefix and not f'{self.path}/'.startswith(f'{self.adj.url_prefix}/'):
            self.error = _NotFound('')


class _Response(task.Task):
    """What all responses have in common, also those to requests that could not be read."""

    def service(self) -> None:
        """Process the request, and log if its client does not wait for the response."""
        try:
            super().service()
        except ClientDisconnected:
            # waitress would log the path as the client sent it, which may contain a newline.
            method, path = request_log.quote(self.request.command), request_log.quote(self.request.path)
            LOG.info('The client closed its connection before the response to "%s %s" was sent', method, path)
            self.close_on_finish = True

    def set_close_on_finish(self) -> None:
        """Close the connection after this response."""
        # Otherwise waitress would tell an HTTP/1.0 client that asks to keep the connection that it is kept.
        self.request.headers['CONNECTION'] = 'close'
        super().set_close_on_finish()


class _Task(_Response, task.WSGITask):
    """Passes a request to the application and sends the response."""

    def get_environment(self) -> dict[str, Any]:
        """Return the WSGI environment of the request."""
        environ = super().get_environment()
        environ[SERVER_PROBLEM] = self.channel.server.task_dispatcher.problem
        # waitress reduces several slashes at the start of the path to one.
        environ['PATH_INFO'] = self.request.path.removeprefix(environ['SCRIPT_NAME'])
        if self.channel.addr[1] is None:
            # A Unix socket. The server name is not used in links, which are made from the Host header.
            environ.update(REMOTE_ADDR='', REMOTE_PORT='', SERVER_NAME='localhost', SERVER_PORT='80')
        return environ

    def build_response_header(self) -> bytes:
        """Return the status line and headers, with ``Connection: close`` if this response is the last one."""
        self.channel.response_started()
        if self._must_close:
            self.set_close_on_finish()
        return super().build_response_header()

    def set_close_on_finish(self) -> None:
        """Close the connection after this response, but not just because it has no body, as waitress would."""
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
    """Sends an error response to a request that cannot be passed to the application, and logs the request."""

    def execute(self) -> None:
        """Send an error document of the API (api-ref/errors.md) and close the connection."""
        parsed = self.request
        request = webob.Request.blank('/', accept='application/json', method=parsed.command)
        request.environ.update(PATH_INFO=parsed.path, QUERY_STRING=parsed.query, REMOTE_ADDR=self.channel.addr[0])
        error = exc.status_map[parsed.error.code](parsed.error.body)
        respond = functools.partial(error_document.respond, error)
        response = request.get_response(context.with_request_id(request_log.RequestLog(respond)))
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

    :param max_connections: limit of open connections. To accept another one, those that have waited longest are closed.
    :param request_read_timeout: seconds in which a request must arrive completely, and seconds after which a connection
        is closed whose client receives nothing of a response.
    :param keepalive_timeout: seconds that a connection may be idle after a response.
    :param sockets: the map of file descriptors that waitress uses: connections, listeners and others.
    """

    max_connections: int
    request_read_timeout: float
    keepalive_timeout: float
    sockets: SocketMap = dataclasses.field(default_factory=SocketMap)
    #: When the process began to stop, as ``time.monotonic``; None before that.
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
        """Make a server of waitress whose connections are kept within the limits. Its dispatcher is a ``Threads``.

        :param threads: the number of threads that process requests.
        :param health_paths: requests for these paths do not wait for such a thread.
        :param options: more settings of waitress.
        """
        server = waitress.create_server(
            application,
            _dispatcher=Threads(threads, health_paths),
            map=self.sockets,
            sockets=listeners,
            ident='',
            # oslo.middleware decides whether the headers of proxies are used.
            clear_untrusted_proxy_headers=False,
            # Connections that clients close early are not logged.
            log_socket_errors=False,
            # No limits of waitress, with which a thread would wait for a client: this object has all limits.
            outbuf_high_watermark=sys.maxsize,
            connection_limit=sys.maxsize,
            channel_timeout=sys.maxsize,
            **options,
        )
        for listening in self.servers:
            listening.channel_class = functools.partial(Channel, self)
            # waitress would wake the loop after each response.
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
        """If there are too many connections, close several that have waited longest, because finding them is slow."""
        if len(self.sockets) <= self.max_connections:
            return
        waiting = self._waiting()
        for channel in waiting[: 1 + len(waiting) // _EVICTION_DIVISOR]:
            self._evict(channel)

    def _waiting(self) -> list[Channel]:
        """Return the connections without a complete request to process, the one that has waited longest first."""
        return sorted((channel for channel in self.channels if not channel.requests), key=lambda channel: channel.since)

    def _evict(self, channel: Channel) -> None:
        channel.close()
        self._evicted += 1

    def reap(self) -> None:
        """Close the connections that have timed out, and some with unsent responses if these need too much memory."""
        channels = self.channels
        unsent = sum(channel.total_outbufs_len for channel in channels)
        for channel in self._waiting() if unsent > _MAX_PROCESS_UNSENT_BYTES else ():
            if unsent > _MAX_PROCESS_UNSENT_BYTES and channel.total_outbufs_len:
                unsent -= channel.total_outbufs_len
                self._evict(channel)
        if self._evicted:
            LOG.warning('Closed %d idle or slow connections because a limit was reached', self._evicted)
            self._evicted = 0
        for channel in channels:
            # A connection with a complete request waits for this process and not for its client.
            if channel.connected and not channel.requests:
                channel.close_if_timed_out()


class Channel(HTTPChannel):
    """A connection to a client. The requests on it are processed one after the other, each in a thread of waitress."""

    #: Set by waitress, also in the thread that processes a request, when the connection shall be closed.
    will_close: bool

    request: _Parser | None
    sendbuf_len: int

    task_class = _Task
    error_task_class = _ErrorTask
    parser_class = _Parser

    def __init__(self, connections: ConnectionTable, *args: Any, **kwargs: Any) -> None:
        self.connections = connections
        connections.evict_idle()
        #: Start of the current wait: the time when the client connected or began a request, or a response began.
        self.since = time.monotonic()
        #: Whether an error response was sent to a request that could not be read.
        self.error_sent = False
        self._responded = False
        # Whether received data is discarded until the client closes the connection. If the connection were closed
        # while data comes in, TCP would reset it, and the client could lose the response.
        self._draining = False
        super().__init__(*args, **kwargs)
        # waitress copies this many bytes for each call that sends, even if the client receives only a few.
        self.sendbuf_len = min(self.sendbuf_len, _MAX_SEND_BYTES)

    def response_started(self) -> None:
        """Start the timeout for the client, because a response is being sent."""
        self.since = time.monotonic()
        self._responded = True

    def write_soon(self, data: Any) -> int:
        """Send as much as the socket accepts now and buffer the rest; waitress would first buffer everything."""
        sent = 0
        with self.outbuf_lock:
            if data and self.connected and not self.total_outbufs_len:
                # The error occurs again when the rest is sent, and is handled there.
                with contextlib.suppress(OSError):
                    sent = self.send(data, do_close=False)
        buffered = super().write_soon(memoryview(data)[sent:] if sent else data)
        if buffered:
            self._wake_loop()
        return sent + buffered

    def service(self) -> None:
        """Process the first of the requests, in a thread."""
        super().service()
        self._wake_loop()

    def _wake_loop(self) -> None:
        """Wake the loop if the work of this thread requires it, and let it check this connection.

        A listener accepts nothing while all threads are busy, and this thread is about to be free.
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
        """Send an error response to a request of which only a part has arrived."""
        part.error = error
        self.requests.append(part)
        self.request = None
        self.server.add_task(self)

    def handle_close(self) -> None:
        """Close the connection; after a request that could not be read, first only for sending.

        The client then has time to read the error response (``_DRAIN_SECONDS``).
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
        """Close the connection now, and the temporary files of received and of unsent data."""
        if self.request is not None:
            self.request.close()
        super().handle_close()

    def close_if_timed_out(self) -> None:
        """Close the connection if its timeout is over; an incomplete request is answered with 408 first."""
        waited = time.monotonic() - self.since
        if self.total_outbufs_len:
            # waitress sets ``last_activity`` whenever something was sent.
            timed_out = time.time() - self.last_activity > self.connections.request_read_timeout
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
