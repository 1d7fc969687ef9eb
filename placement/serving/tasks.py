"""The requests of a connection of waitress, and its responses, with the checks and error documents that waitress lacks.

The methods that it overrides are not documented. They were read in waitress 3.0.2.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import webob
from oslo_log import log
from waitress import receiver, rfc7230, task, utilities
from waitress.channel import ClientDisconnected
from waitress.parser import HTTPRequestParser, ParsingError, TransferEncodingNotImplemented
from webob import exc

from placement.web import error_responses, http, request_log
from placement.web.health_check import SERVER_PROBLEM

LOG = log.getLogger(__name__)

#: A connection with more bytes of unsent responses is closed after the current response, without processing the
#: requests that the client has pipelined.
_MAX_CONNECTION_UNSENT_BYTES = 1024 * 1024

_NOT_ASCII = re.compile(rb'[\x80-\xff]')

# waitress ends its expressions with ``$``, which also matches before a line feed: ``0\n`` would be the last chunk.
receiver.ONLY_HEXDIG_RE = re.compile(rfc7230.ONLY_HEXDIG_RE.pattern[:-1] + rb'\Z')
receiver.CHUNK_EXT_RE = re.compile(rfc7230.CHUNK_EXT_RE.pattern[:-1] + rb'\Z')


class RequestTimeout(utilities.Error):
    code = 408
    reason = 'Request Timeout'


class _NotFound(utilities.Error):
    code = 404
    reason = 'Not Found'


class Parser(HTTPRequestParser):
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
        if problem is not None or self.content_length >= self.adj.max_request_body_size:
            # Without this, waitress would tell the client to send the body of a request that it rejects.
            self.expect_continue = False
        if problem is not None:
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


class Task(_Response, task.WSGITask):
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


class ErrorTask(_Response, task.ErrorTask):
    """Sends an error response to a request that the application cannot get, and logs the request."""

    def execute(self) -> None:
        """Send an error document of the API (api-ref/errors.md) and close the connection."""
        parsed = self.request
        request = webob.Request.blank('/', accept='application/json', method=parsed.command)
        request.environ.update(PATH_INFO=parsed.path, QUERY_STRING=parsed.query, REMOTE_ADDR=self.channel.addr[0])
        error = exc.status_map[parsed.error.code](parsed.error.body)
        respond = functools.partial(error_responses.respond, error)
        response = request.get_response(request_log.RequestIds(request_log.RequestLog(respond)))
        self.status = response.status
        self.response_headers.extend(response.headerlist)
        self.content_length = len(response.body)
        self.channel.error_sent = True
        self.channel.response_started()
        self.set_close_on_finish()
        self.write(response.body)
