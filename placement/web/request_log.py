"""The request log, with a line and an id for each request, and the metrics of requests."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib import parse
from wsgiref.types import WSGIApplication

from oslo_context import context
from oslo_log import log
from oslo_middleware import request_id

from placement.observability import KEYSTONE
from placement.web import microversion

if TYPE_CHECKING:
    from placement.observability.metrics import Metrics

#: The name under which logging configurations of every Placement service know this logger.
LOG = log.getLogger('placement.requestlog')

#: Maximum number of characters of a path or query that are logged.
_MAX_LENGTH = 2048
#: Characters other than letters and digits that are logged unchanged. All others, such as newlines, are encoded.
_URL_CHARACTERS = "/:@!$&'()*+,;=?%~-._"

#: The methods that the metrics distinguish, and the label for any other method, path or microversion.
_METHODS = frozenset({'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'})
_NONE = 'none'

#: Keys of the WSGI environment. Authentication sets the seconds of the token's validation, and a search the number of
#: its candidates.
KEYSTONE_SECONDS_KEY = 'placement.keystone_seconds'
CANDIDATES_KEY = 'placement.candidates'


class RequestIds:
    """WSGI middleware that gives each request an id for its response, and a context with only ids for log lines.

    Without the context, a thread would keep the one of the previous request, with its user.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        # Not by the middleware of oslo.middleware: it makes a WebOb request and response, which takes half of the time
        # of a small request.
        sent = re.match(request_id.ID_FORMAT, environ.get('HTTP_X_OPENSTACK_REQUEST_ID', ''))
        ids = context.RequestContext(global_request_id=sent and sent[0])
        environ |= {request_id.ENV_REQUEST_ID: ids.request_id, request_id.GLOBAL_REQ_ID: ids.global_request_id}

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            id_header = (request_id.HTTP_RESP_HEADER_REQUEST_ID, ids.request_id)
            return start_response(status, [*headers, id_header], exc_info)

        return self._application(environ, start)


class RequestLog:
    """WSGI middleware that logs each processed request at INFO, without headers and bodies.

    The time includes authentication. With Keystone, the line also has the time that the validation of the token took.
    The line of a search has the number of its candidates.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on, then log it."""
        if not LOG.isEnabledFor(log.INFO):
            return self._application(environ, start_response)
        started = time.perf_counter()
        # This is done before the call, because the application may change the environment.
        path = (environ.get('SCRIPT_NAME', '') + environ.get('PATH_INFO', '')).encode('latin-1', 'replace')
        query = environ.get('QUERY_STRING', '')
        url = quote(parse.quote(path) + (f'?{query}' if query else ''))
        response: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            response.update(status=status, headers=headers)
            return start_response(status, headers, exc_info)

        body = self._application(environ, start)
        _log(environ, url, response, time.perf_counter() - started)
        return body


def _log(environ: Mapping[str, Any], url: str, response: Mapping[str, Any], seconds: float) -> None:
    length = next((value for name, value in response['headers'] if name.lower() == 'content-length'), '-')
    candidates = f' candidates: {environ[CANDIDATES_KEY]}' if CANDIDATES_KEY in environ else ''
    keystone = f' {KEYSTONE}: {environ[KEYSTONE_SECONDS_KEY]:.6f}' if KEYSTONE_SECONDS_KEY in environ else ''
    LOG.info(
        '%(remote)s "%(method)s %(url)s" status: %(status)s len: %(length)s microversion: %(version)s time: %(time).6f'
        '%(keystone)s%(candidates)s',
        {
            # If the headers of proxies are used, clients can set this text.
            'remote': quote(environ.get('REMOTE_ADDR', '-')),
            'method': quote(environ['REQUEST_METHOD']),
            'url': url,
            'status': response['status'].split(' ', 1)[0],
            'length': length,
            # A microversion that is not served is shown as it was asked for.
            'version': environ.get(microversion.ENVIRON_KEY)
            or quote(microversion.text_in(environ.get('HTTP_OPENSTACK_API_VERSION')) or '-'),
            'time': seconds,
            'keystone': keystone,
            'candidates': candidates,
        },
    )


def quote(text: str) -> str:
    """Shorten text of a request to 2048 characters, and percent-encode it for a log line."""
    quoted = parse.quote(text[:_MAX_LENGTH].encode('latin-1', 'replace'), safe=_URL_CHARACTERS)
    return quoted if len(text) <= _MAX_LENGTH else f'{quoted}...'


class RequestMetrics:
    """WSGI middleware that reports each request to ``metrics``, even if other middleware responds to it.

    Clients can send any path and method, and each new label value would start a time series. So the label is the
    matching declared path (``placement.route``, set by the dispatcher), or ``none`` for unknown ones.
    """

    def __init__(self, app: WSGIApplication, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        started = time.perf_counter()
        self._metrics.request_started()
        statuses: list[str] = []

        def start(status: str, *rest: Any) -> Any:
            statuses.append(status)
            return start_response(status, *rest)

        try:
            return self._app(environ, start)
        finally:
            # When the application raised an exception, the server answers with 500.
            status = int(statuses[-1].split(' ', 1)[0]) if statuses else 500
            method = environ['REQUEST_METHOD']
            self._metrics.request_finished(
                environ.get('placement.route', _NONE),
                method if method in _METHODS else _NONE,
                str(environ.get(microversion.ENVIRON_KEY, _NONE)),
                status,
                time.perf_counter() - started,
            )
