"""PlacementWsgify: a function from request to response as a WSGI application that tells errors the contract's way."""

from __future__ import annotations

from typing import Any

import webob
import webob.dec
from webob import exc

from placement import errors


class PlacementWsgify(webob.dec.wsgify):
    """``webob.dec.wsgify`` whose WebOb exceptions become the error document of contract A 1.8."""

    def call_func(self, req: webob.Request, *args: Any, **kwargs: Any) -> webob.Response:
        """Call the function; what it raises of ``webob.exc`` is the response."""
        try:
            return super().call_func(req, *args, **kwargs)
        except exc.HTTPException as error:
            return errors.response_for(error, req.environ)


def answer(error: exc.HTTPException) -> PlacementWsgify:
    """Make a WSGI application that answers every request with ``error``."""

    def fail(_req: webob.Request) -> webob.Response:
        raise error

    return PlacementWsgify(fail)
