"""The middleware that negotiates the microversion, and responds to all exceptions with error documents."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import WSGIApplication

import microversion_parse
from oslo_log import log
from webob import exc

from placement import exception
from placement.web import error_responses, microversion

LOG = log.getLogger(__name__)

#: Seconds after which a client may retry when the database is unavailable.
_RETRY_AFTER = '2'


class FaultHandler:
    """WSGI middleware that negotiates the microversion, and makes error documents of all exceptions.

    Every response to a negotiated microversion names it in its headers. The text of an unexpected exception is logged
    but not sent, because it may contain SQL or secrets.

    :param newest: the newest microversion that is served.
    """

    def __init__(self, application: WSGIApplication, newest: str) -> None:
        self._application = application
        self._newest = newest

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on with ``environ['placement.microversion']``. Respond to any exception that this raises."""
        version: microversion_parse.Version | None = None

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            stamped = headers if version is None else microversion.stamp(headers, version)
            return start_response(status, stamped, exc_info)

        try:
            version = microversion.negotiate(environ.get('HTTP_OPENSTACK_API_VERSION'), self._newest)
            environ[microversion.ENVIRON_KEY] = version
            return self._application(environ, start)
        except exc.HTTPException as error:
            if isinstance(error, microversion.UnacceptableVersion):
                LOG.info('The microversion of the request is not served: %s.', error.advice)
            # The traceback of the error refers to this call. A variable that kept the error until the end of the call
            # would make a cycle, so respond here, not below (see ``Operation.__call__``).
            return error_responses.respond(error, environ, start)
        except exception.PolicyNotAuthorized as error:
            http_error: exc.HTTPException = exc.HTTPForbidden(str(error))
        except exception.DatabaseUnavailable as error:
            # Logged by ``db.availability``. The reason may name hosts and accounts.
            http_error = exc.HTTPServiceUnavailable(str(error), {'Retry-After': _RETRY_AFTER})
        except Exception:
            LOG.exception('Unexpected error')
            http_error = exc.HTTPInternalServerError(
                'An unexpected error occurred. The log of the service has details under this request id.'
            )
        return error_responses.respond(http_error, environ, start)
