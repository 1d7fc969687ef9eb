"""The type of a WSGI application, for annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

#: Takes the environment and ``start_response``, returns the body.
WSGIApplication = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
