"""Turns exceptions that no operation handles into error documents. Runs inside authentication."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from oslo_db import exception as db_exc
from oslo_log import log
from webob import exc
from webob import request as webob_request

from placement import exception
from placement.web import microversion, wsgi
from placement.web.wsgi import WSGIApplication

LOG = log.getLogger(__name__)

#: Seconds after which a client may retry when the database is unavailable.
_RETRY_AFTER = '2'


class FaultHandler:
    """WSGI middleware that turns exceptions into error responses.

    The text of an unexpected one is logged and not sent, because it may contain SQL or secrets.
    """

    def __init__(self, application: WSGIApplication) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on; answer 403, 503, 400 or 500 when that raises an exception."""
        try:
            return self._application(environ, start_response)
        except Exception as error:
            answer = wsgi.for_error(_http_error(error))
        version = environ.get(microversion.ENVIRON_KEY)
        if version is None:
            return answer(environ, start_response)

        # The exception went past MicroversionMiddleware, which otherwise adds the headers of the microversion.
        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            return start_response(status, microversion.stamp(headers, version), exc_info)

        return answer(environ, start)


def _http_error(error: Exception) -> exc.HTTPException:
    if isinstance(error, exception.PolicyNotAuthorized):
        return exc.HTTPForbidden(str(error))
    if isinstance(error, exception.DatabaseUnavailable | db_exc.DBConnectionError):
        LOG.error('The database is not available: %s', str(error.__cause__ or error).partition('\n')[0])
        return exc.HTTPServiceUnavailable(exception.DatabaseUnavailable.template, {'Retry-After': _RETRY_AFTER})
    if isinstance(error, webob_request.DisconnectionError):
        return exc.HTTPBadRequest('The request body is shorter than its content-length header says.')
    LOG.exception('Unexpected error')
    return exc.HTTPInternalServerError(
        'An unexpected error occurred. The log of the service has details under this request id.'
    )
