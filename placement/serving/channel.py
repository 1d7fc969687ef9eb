"""A connection of waitress to a client, with the limits and timeouts that waitress lacks.

The methods that it overrides are not documented. They were read in waitress 3.0.2.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import logging
import socket
import sys
import termios
import time
from collections.abc import Iterable
from typing import Any
from wsgiref.types import WSGIApplication

import waitress
from oslo_log import log
from waitress import utilities
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer

from placement import units
from placement.serving.socket_map import SocketMap
from placement.serving.tasks import ErrorTask, Parser, RequestTimeout, Task
from placement.serving.threads import Threads

LOG = log.getLogger(__name__)

#: How long an idle connection stays open when the process stops, because its client may be sending a request.
_IDLE_SECONDS_AT_STOP = 2.0
#: How much time a client has to close the connection after an error response to an unreadable request.
_DRAIN_SECONDS = 2.0
#: Maximum size of the unsent responses on all connections of one process.
_MAX_PROCESS_UNSENT_BYTES = 128 * 1024 * 1024
#: Maximum size of the part of a response that one call sends, except for the first call.
_MAX_SEND_BYTES = 256 * 1024
#: If there are too many connections, one plus a twentieth of those that wait for their clients are closed.
_EVICTION_DIVISOR = 20


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

    request: Parser | None
    sendbuf_len: int

    task_class = Task
    error_task_class = ErrorTask
    parser_class = Parser

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

    def _send_error(self, part: Parser, error: utilities.Error) -> None:
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
                self._send_error(self.request, RequestTimeout('The request did not arrive completely in time.'))
            return
        elif self.connections.stopped_at:
            timed_out = time.monotonic() - max(self.connections.stopped_at, self.since) > _IDLE_SECONDS_AT_STOP
        else:
            timed_out = waited > (
                self.connections.keepalive_timeout if self._responded else self.connections.request_read_timeout
            )
        if timed_out:
            self.close()
