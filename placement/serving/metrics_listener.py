"""The HTTP server for the metrics, on a separate address."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import WSGIApplication

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from placement.serving.channel import ConnectionTable
from placement.web.health import READY, HealthCheck

METRICS_PATH = '/metrics'
HEALTH_PATH = '/healthcheck'
PAGE_PATH = '/page'

#: The limits for connections, like the limits of ``[server]`` for the API.
_MAX_CONNECTIONS, _REQUEST_READ_TIMEOUT, _KEEPALIVE_TIMEOUT = 100, 5.0, 75.0
_THREADS = 8


def application(
    check: Callable[[], str | None], registry: CollectorRegistry, page: WSGIApplication | None = None
) -> WSGIApplication:
    """Return the application for ``/metrics``, ``/healthcheck`` and ``/healthcheck/ready``; 404 for anything else.

    :param check: returns a sentence that says why the database cannot be used, or None.
    :param registry: the registry that ``/metrics`` shows.
    :param page: the application for the paths below ``/page``; None for no page.
    """
    metrics: WSGIApplication = make_wsgi_app(registry)

    def route(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ['PATH_INFO'] == METRICS_PATH:
            return metrics(environ, start_response)
        if page is not None and f'{environ["PATH_INFO"]}/'.startswith(f'{PAGE_PATH}/'):
            environ['SCRIPT_NAME'] += PAGE_PATH
            environ['PATH_INFO'] = environ['PATH_INFO'].removeprefix(PAGE_PATH)
            return page(environ, start_response)
        body = b'Not found. Try /metrics, /healthcheck or /healthcheck/ready.\n'
        start_response('404 Not Found', [('Content-Type', 'text/plain'), ('Content-Length', str(len(body)))])
        return [body]

    return HealthCheck(route, HEALTH_PATH, check)


def serve(app: WSGIApplication, bind: str) -> None:
    """Serve ``app`` on ``bind`` (``host:port`` or ``[v6]:port``) until the parent process has ended.

    :raises OSError: the address cannot be listened on.
    """
    parent = os.getppid()
    host, _, port = bind.rpartition(':')
    family = socket.AF_INET6 if ':' in host else socket.AF_INET
    connections = ConnectionTable(_MAX_CONNECTIONS, _REQUEST_READ_TIMEOUT, _KEEPALIVE_TIMEOUT)
    # waitress warns whenever a request waits for a thread.
    logging.getLogger('waitress.queue').setLevel(logging.ERROR)
    with socket.create_server((host.strip('[]'), int(port)), family=family) as listener:
        server = connections.listen(app, [listener], _THREADS, (HEALTH_PATH, HEALTH_PATH + READY))
        while os.getppid() == parent:
            connections.sockets.run_once(1.0)
            connections.reap()
            server.task_dispatcher.watch()
