"""What waitress does for a client, with the bounds and answers that it does not have by itself."""

from __future__ import annotations

import contextlib
import dataclasses
import socket
import time
from typing import Any

import webob
from oslo_log import log
from oslo_middleware import request_id
from waitress import task, utilities
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError, TransferEncodingNotImplemented
from webob import exc

from placement.web import body_limits, request_log, wsgi_wrapper

LOG = log.getLogger(__name__)

#: Seconds that an idle connection is kept open after the stop: its client may be sending a request already.
_LINGER = 2.0
#: Seconds that a client has to close a connection on which it was refused.
_DRAIN = 2.0
#: Bytes of answers that a client has not taken, beyond which it gets no more of those it asked for at once.
_MAX_UNSENT = 1024 * 1024
#: Bytes of answers that one process keeps for its clients.
_MAX_HELD = 128 * 1024 * 1024
#: Bytes that are sent at once of what a client did not take at first.
_CHUNK = 256 * 1024
#: One in so many connections is closed when there are too many.
_PART = 20


class _Timeout(utilities.Error):
    code = 408
    reason = 'Request Timeout'


class _NotFound(utilities.Error):
    code = 404
    reason = 'Not Found'


class _Parser(HTTPRequestParser):
    """Reads one request."""

    #: In which a request is answered that breaks off before it says so.
    version = '1.1'

    def parse_header(self, header_plus: bytes) -> None:
        """Read all before the body.

        :raises ParsingError: it makes no sense.
        """
        try:
            super().parse_header(header_plus)
        except TransferEncodingNotImplemented as error:
            # As the application says it under other servers.
            raise ParsingError('transfer-encoding header must be chunked, and nothing else') from error
        except (ParsingError, ValueError) as error:
            # waitress does not expect a ValueError, of a URL that breaks off within an address or of 5000 digits.
            if not body_limits.INTEGER.fullmatch(self.headers.get('CONTENT_LENGTH', '0')):
                raise ParsingError('content-length header must be an integer') from error
            raise ParsingError(str(error)) from error
        if self.chunked and 'CONTENT_LENGTH' in self.headers:
            raise ParsingError('There must not be both transfer-encoding and content-length.')
        if self.adj.url_prefix and not f'{self.path}/'.startswith(f'{self.adj.url_prefix}/'):
            self.error = _NotFound('')


class _Task(task.WSGITask):
    """Has the application answer a request."""

    def get_environment(self) -> dict[str, Any]:
        """Make the environment of the request."""
        environ = super().get_environment()
        # waitress makes one slash of several.
        environ['PATH_INFO'] = self.request.path.removeprefix(environ['SCRIPT_NAME'])
        if self.channel.addr[1] is None:
            # A Unix socket. Links are made of the header Host.
            environ.update(REMOTE_ADDR='', REMOTE_PORT='', SERVER_NAME='localhost', SERVER_PORT='80')
        return environ

    def build_response_header(self) -> bytes:
        """Make all before the body, and close the connection afterwards if no more answers can be sent on it."""
        self.channel.note_answer()
        if self._must_close:
            self.set_close_on_finish()
        return super().build_response_header()

    def set_close_on_finish(self) -> None:
        """Close the connection after this answer; waitress also wants that when there is no body, which is no need."""
        if self.has_body or self._must_close or self.version == '1.0':
            super().set_close_on_finish()

    @property
    def _must_close(self) -> bool:
        channel = self.channel
        return self.request.connection_close or channel.clients.stopped or channel.total_outbufs_len > _MAX_UNSENT


class _Refusal(task.ErrorTask):
    """Answers, and logs, a request that the application cannot be given."""

    def execute(self) -> None:
        """Answer with an error of the API's form."""
        known = vars(self.request)
        asked = webob.Request.blank('/', accept='application/json', method=known.get('command', '-'))
        asked.environ.update(
            PATH_INFO=known.get('path', ''),
            QUERY_STRING=known.get('query', ''),
            REMOTE_ADDR=self.channel.addr[0],
        )
        error = exc.status_map[self.request.error.code](self.request.error.body)
        answer = asked.get_response(request_id.RequestId(request_log.RequestLog(wsgi_wrapper.answer(error))))
        self.status = answer.status
        self.response_headers.extend(answer.headerlist)
        self.content_length = len(answer.body)
        self.channel.refused = True
        self.channel.note_answer()
        self.set_close_on_finish()
        self.write(answer.body)


@dataclasses.dataclass
class Clients:
    """What the clients of one process may take.

    :param max_connections: beyond these, a new connection takes the place of those that have waited longest.
    :param client_timeout: seconds for a request to come whole, and seconds without taking anything of an answer.
    :param keepalive_timeout: seconds that a connection may be idle after an answer.
    :param sockets: what waitress watches; connections and others.
    """

    max_connections: int
    client_timeout: float
    keepalive_timeout: float
    sockets: dict[int, Any] = dataclasses.field(default_factory=dict)
    #: When no more requests were wanted.
    stopped: float = 0.0
    _evicted: int = 0

    @property
    def channels(self) -> list[Channel]:
        """All connections."""
        return [each for each in self.sockets.values() if isinstance(each, Channel)]

    def make_room(self) -> None:
        """If there are too many connections, close those that have waited longest; several, as looking takes time."""
        if len(self.sockets) <= self.max_connections:
            return
        waiting = self._waiting()
        for channel in waiting[: 1 + len(waiting) // _PART]:
            self._evict(channel)

    def _waiting(self) -> list[Channel]:
        """The connections that wait for their clients, and not the other way round; the longest first."""
        return sorted((each for each in self.channels if not each.requests), key=lambda channel: channel.since)

    def _evict(self, channel: Channel) -> None:
        channel.give_up()
        self._evicted += 1

    def sweep(self) -> None:
        """Close the connections of which the time is up."""
        held = sum(channel.total_outbufs_len for channel in self.channels)
        for channel in self._waiting():
            if held > _MAX_HELD and channel.total_outbufs_len:
                held -= channel.total_outbufs_len
                self._evict(channel)
        if self._evicted:
            LOG.warning('Closed %d connections that had waited longest, to make room for others', self._evicted)
            self._evicted = 0
        for channel in self.channels:
            # Those with a request that is there whole wait for us.
            if not channel.requests:
                channel.check_time()


class Channel(HTTPChannel):
    """A connection to a client. Only one thread at a time does something with it."""

    #: Set by waitress, also from the thread that answers, when all is sent that there is to send.
    will_close: bool

    request: _Parser | None
    sendbuf_len: int

    task_class = _Task
    error_task_class = _Refusal
    parser_class = _Parser

    def __init__(self, clients: Clients, *args: Any, **kwargs: Any) -> None:
        self.clients = clients
        clients.make_room()
        #: When the client was last done with something: it connected, began a request, or was given an answer.
        self.since = time.monotonic()
        #: Whether it was told that its request is none.
        self.refused = False
        self._answered = False
        # What it still sends is thrown away, since closing the connection at once would throw away the answer.
        self._drains = False
        super().__init__(*args, **kwargs)
        # waitress copies so much for each part that it sends, however little the client takes.
        self.sendbuf_len = min(self.sendbuf_len, _CHUNK)

    def note_answer(self) -> None:
        """From now on it is the client's turn."""
        self.since = time.monotonic()
        self._answered = True

    def write_soon(self, data: Any) -> int:
        """Send what the client takes now, and keep the rest; waitress would first keep all, in a file if it is long."""
        sent = 0
        with self.outbuf_lock:
            if data and self.connected and not self.total_outbufs_len:
                # An error shows again when the rest is sent.
                with contextlib.suppress(OSError):
                    sent = self.send(data, do_close=False)
        return sent + super().write_soon(memoryview(data)[sent:] if sent else data)

    def handle_read(self) -> None:
        """Take what has come."""
        try:
            data = self.socket.recv(self.adj.recv_bytes)
        except BlockingIOError:
            return
        except OSError:
            self.give_up()
            return
        if data and not self._drains:
            if self.request is None:
                self.since = time.monotonic()
            self.received(data)
        elif not data and self.request is not None:
            self._refuse(self.request, utilities.BadRequest('The request ended before it was whole.'))
        elif not data:
            self.give_up()

    def _refuse(self, part: _Parser, error: utilities.Error) -> None:
        """Have a request answered of which only a part has come."""
        part.error = error
        self.requests.append(part)
        self.request = None
        self.server.add_task(self)

    def handle_close(self) -> None:
        """Close the connection, if need be when its client has had time to read the answer."""
        if not self.refused:
            super().handle_close()
            return
        self.refused = self.will_close = False
        self._drains = True
        self.since = time.monotonic()
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def give_up(self) -> None:
        """Close the connection now."""
        super().handle_close()

    def check_time(self) -> None:
        """Close the connection if the client has had its time."""
        waited = time.monotonic() - self.since
        if self.total_outbufs_len:
            # waitress sets it whenever something was sent.
            is_over = time.time() - self.last_activity > self.clients.client_timeout
        elif self._drains:
            is_over = waited > _DRAIN
        elif self.request is not None:
            if waited > self.clients.client_timeout:
                self._refuse(self.request, _Timeout('The request did not come whole in time.'))
            return
        elif self.clients.stopped:
            is_over = time.monotonic() - max(self.clients.stopped, self.since) > _LINGER
        else:
            is_over = waited > (self.clients.keepalive_timeout if self._answered else self.clients.client_timeout)
        if is_over:
            self.give_up()
