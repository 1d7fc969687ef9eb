"""The middleware that negotiates the microversion."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from webob import exc

from placement.web import microversion, wsgi_wrapper
from placement.web.wsgi_types import WSGIApplication


class MicroversionMiddleware:
    """WSGI middleware that negotiates the microversion of a request and names it in the headers of the response.

    :param newest: the newest microversion that is served.
    """

    def __init__(self, application: WSGIApplication, newest: str) -> None:
        self._application = application
        self._newest = newest

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on with ``environ['placement.microversion']``, or answer 400 or 406."""
        try:
            version = microversion.negotiate(environ.get('HTTP_OPENSTACK_API_VERSION'), self._newest)
        except exc.HTTPException as error:
            return wsgi_wrapper.for_error(error)(environ, start_response)
        environ[microversion.ENVIRON_KEY] = version

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            return start_response(status, microversion.stamp(headers, version), exc_info)

        return self._application(environ, start)
