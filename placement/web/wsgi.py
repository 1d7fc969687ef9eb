"""The base of WSGI applications: their type, and a decorator that turns exceptions into error documents."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

import webob
import webob.dec
from webob import exc

from placement.web import error_document

#: Takes the environment and ``start_response``, returns the body.
WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Request(webob.Request):
    """A request whose body stays in memory: its size is limited, and WebOb would not close a temporary file."""

    request_body_tempfile_limit = sys.maxsize


class PlacementWsgify(webob.dec.wsgify):
    """``webob.dec.wsgify`` whose WebOb exceptions become error documents (api-ref/errors.md)."""

    RequestClass = Request

    def call_func(self, req: webob.Request, *args: Any, **kwargs: Any) -> webob.Response:
        """Call the function; an exception of ``webob.exc`` becomes the response."""
        try:
            return super().call_func(req, *args, **kwargs)
        except exc.HTTPException as error:
            return error_document.response_for(error, req.environ)


def for_error(error: exc.HTTPException) -> PlacementWsgify:
    """Make a WSGI application that responds to every request with ``error``."""

    def fail(_req: webob.Request) -> webob.Response:
        raise error

    return PlacementWsgify(fail)
