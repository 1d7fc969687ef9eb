"""Counts requests by declared path, method, status and microversion."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from wsgiref.types import WSGIApplication

if TYPE_CHECKING:
    from placement.observability.metrics import Metrics

METHODS = frozenset({'GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'})
NONE = 'none'


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
            self._metrics.request_finished(*_labels(environ), status=status, seconds=time.perf_counter() - started)


def _labels(environ: dict[str, Any]) -> tuple[str, str, str]:
    method = environ['REQUEST_METHOD']
    version = environ.get('placement.microversion')
    return (
        environ.get('placement.route', NONE),
        method if method in METHODS else NONE,
        NONE if version is None else str(version),
    )
