"""The HTTP server for the metrics, on an address of its own and not on the port of the API."""

from __future__ import annotations

import os
import socket
import socketserver
from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import make_wsgi_app

from placement.db.api import Database
from placement.web.health import HealthCheck
from placement.web.wsgi import WSGIApplication

METRICS_PATH = '/metrics'
HEALTH_PATH = '/healthcheck'
PAGE_PATH = '/page'


def application(db: Database, registry: CollectorRegistry, page: WSGIApplication | None = None) -> WSGIApplication:
    """Return the application for ``/metrics``, ``/healthcheck`` and ``/healthcheck/ready``; 404 for anything else.

    :param registry: what ``/metrics`` shows.
    :param page: served below ``/page``, when it is given.
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

    return HealthCheck(route, db, HEALTH_PATH)


class _Handler(WSGIRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Log nothing, as there is a scrape every few seconds."""


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    daemon_threads = True
    timeout = 1


class _ServerV6(_Server):
    address_family = socket.AF_INET6


def serve(app: WSGIApplication, bind: str, between: Callable[[], None] = lambda: None) -> None:
    """Serve ``app`` on ``bind`` (``host:port`` or ``[v6]:port``) until the parent process has ended.

    :param between: called between requests, at least every second.
    :raises OSError: the address cannot be listened on.
    """
    parent = os.getppid()
    host, _, port = bind.rpartition(':')
    kind = _ServerV6 if ':' in host else _Server
    with kind((host.strip('[]'), int(port)), _Handler) as server:
        server.set_app(app)
        while os.getppid() == parent:
            server.handle_request()
            between()
