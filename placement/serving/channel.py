"""A connection of waitress to a client, with the limits, timeouts and error responses that waitress lacks."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import socket
import time
from typing import Any

import webob
from oslo_log import log
from oslo_middleware import request_id
from waitress import task, utilities
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError, TransferEncodingNotImplemented
from waitress.server import BaseWSGIServer
from webob import exc

from placement.serving.socket_map import SocketMap
from placement.web import body_limits, request_log, wsgi

LOG = log.getLogger(__name__)

#: How long an idle connection stays open after the stop of the process, as its client may be sending a request.
_IDLE_SECONDS_AT_STOP = 2.0
#: How long a client has to close the connection after an error response to a request that could not be read.
_DRAIN_SECONDS = 2.0
#: Above this size of the unsent responses on a connection it is closed after the current response. Further requests
#: that the client has pipelined are not processed then.
_MAX_CONNECTION_UNSENT_BYTES = 1024 * 1024
#: The limit of the unsent responses on all connections of one process.
_MAX_PROCESS_UNSENT_BYTES = 128 * 1024 * 1024
#: The limit of one call that sends the rest of a response after the first call.
_MAX_SEND_BYTES = 256 * 1024
#: When there are too many connections, one in so many of the waiting ones is closed.
_EVICTION_DIVISOR = 20


_NOT_ASCII = re.compile(rb'[\x80-\xff]')


class _Timeout(utilities.Error):
    code = 408
    reason = 'Request Timeout'


class _NotFound(utilities.Error):
    code = 404
    reason = 'Not Found'


class _Parser(HTTPRequestParser):
    """The parser of one request."""

    #: The HTTP version of the response if the request ends before its version is known.
    version = '1.1'

    def parse_header(self, header_plus: bytes) -> None:
        """Parse the request line and the headers.

        :raises ParsingError: they are malformed.
        """
        line, end, headers = header_plus.partition(b'\r\n')
        # curl sends a URL as it was typed, which is not always ASCII, and waitress accepts only ASCII.
        line = _NOT_ASCII.sub(lambda byte: b'%%%02X' % ord(byte[0]), line)
        try:
            super().parse_header(line + end + headers)
        except TransferEncodingNotImplemented as error:
            # The text that the application sends under other WSGI servers.
            raise ParsingError('transfer-encoding header must be chunked, and nothing else') from error
        except (ParsingError, ValueError) as error:
            # waitress does not catch ValueError: a URL with an unclosed IPv6 address, or a number of 5000 digits.
            if not body_limits.CONTENT_LENGTH.fullmatch(self.headers.get('CONTENT_LENGTH', '0')):
                raise ParsingError('content-length header must be an integer') from error
            raise ParsingError(str(error)) from error
        if self.chunked and 'CONTENT_LENGTH' in self.headers:
            raise ParsingError('There must not be both transfer-encoding and content-length.')
        if self.adj.url_prefix and not f'{self.path}/'.startswith(f'{self.adj.url_prefix}/'):
            self.error = _NotFound('')


class _Task(task.WSGITask):
    """Passes a request to the application and sends the response."""

    def get_environment(self) -> dict[str, Any]:
        """Return the WSGI environment of the request."""
        environ = super().get_environment()
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
            or channel.clients.stopped
            or channel.total_outbufs_len > _MAX_CONNECTION_UNSENT_BYTES
        )


class _ErrorTask(task.ErrorTask):
    """Sends an error response to a request that cannot be passed to the application, and logs the request."""

    def execute(self) -> None:
        """Send an error document of the API (api-ref/errors.md) and close the connection."""
        parsed = vars(self.request)
        request = webob.Request.blank('/', accept='application/json', method=parsed.get('command', '-'))
        request.environ.update(
            PATH_INFO=parsed.get('path', ''),
            QUERY_STRING=parsed.get('query', ''),
            REMOTE_ADDR=self.channel.addr[0],
        )
        error = exc.status_map[self.request.error.code](self.request.error.body)
        response = request.get_response(request_id.RequestId(request_log.RequestLog(wsgi.for_error(error))))
        self.status = response.status
        self.response_headers.extend(response.headerlist)
        self.content_length = len(response.body)
        self.channel.error_sent = True
        self.channel.response_started()
        self.set_close_on_finish()
        self.write(response.body)


@dataclasses.dataclass
class Clients:
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
    #: When the process began to stop, as ``time.monotonic``; 0 before that.
    stopped: float = 0.0
    _evicted: int = 0

    def accept_from(self, server: BaseWSGIServer) -> None:
        """Let a server of waitress make its connections ``Channel``, which are kept within the limits."""
        server.channel_class = functools.partial(Channel, self)
        # waitress would wake the loop after each response.
        server.pull_trigger = lambda: None

    @property
    def channels(self) -> list[Channel]:
        """The connections to clients."""
        return [each for each in self.sockets.values() if isinstance(each, Channel)]

    def evict_idle(self) -> None:
        """If there are too many connections, close several that have waited longest, because finding them is slow."""
        if len(self.sockets) <= self.max_connections:
            return
        waiting = self._waiting()
        for channel in waiting[: 1 + len(waiting) // _EVICTION_DIVISOR]:
            self._evict(channel)

    def _waiting(self) -> list[Channel]:
        """Return the connections without a complete request to process, the one that has waited longest first."""
        return sorted((each for each in self.channels if not each.requests), key=lambda channel: channel.since)

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

    def __init__(self, clients: Clients, *args: Any, **kwargs: Any) -> None:
        self.clients = clients
        clients.evict_idle()
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

        A listener that accepts nothing does so because all threads were busy, and this one soon is not.
        """
        if self.connected and (self.clients.sockets.is_outdated(self) or not self.server.accepting):
            self.server.trigger.pull_trigger(functools.partial(self.clients.sockets.update, self))

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
            timed_out = time.time() - self.last_activity > self.clients.request_read_timeout
        elif self._draining:
            timed_out = waited > _DRAIN_SECONDS
        elif self.request is not None:
            if waited > self.clients.request_read_timeout:
                self._send_error(self.request, _Timeout('The request did not arrive completely in time.'))
            return
        elif self.clients.stopped:
            timed_out = time.monotonic() - max(self.clients.stopped, self.since) > _IDLE_SECONDS_AT_STOP
        else:
            timed_out = waited > (
                self.clients.keepalive_timeout if self._responded else self.clients.request_read_timeout
            )
        if timed_out:
            self.close()
