"""Health checks for load balancers: whether the process responds, and whether its database can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.reports import database_health
from placement.web.wsgi import WSGIApplication


class HealthCheck:
    """WSGI middleware that answers ``path`` (process responds) and ``path`` + ``/ready`` (process can serve requests).

    A process is ready when it reaches the database, the schema exists, and its provider cache is loaded.

    The response is 200 with ``OK`` as plain text; a process that is not ready answers 503 with the reason. Neither path
    needs a token, and requests for them are neither logged nor counted. Methods other than GET and HEAD, and all other
    paths, go to ``app``.

    :param path: absolute, below the mount prefix; empty for no health checks.
    :param provider_cache: None in a process that does not search.
    """

    def __init__(
        self, app: WSGIApplication, db: Database, path: str, provider_cache: ProviderCache | None = None
    ) -> None:
        self._app = app
        self._db = db
        self._provider_cache = provider_cache
        self._checks: dict[str, Callable[[], str | None]] = {}
        if path:
            self._checks = {path: lambda: None, f'{path}/ready': self._ready}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        check = self._checks.get(environ['PATH_INFO'])
        if check is None or environ['REQUEST_METHOD'] not in ('GET', 'HEAD'):
            return self._app(environ, start_response)
        problem = check()
        body = (problem or 'OK').encode() + b'\n'
        headers = [
            ('Content-Type', 'text/plain'),
            ('Content-Length', str(len(body))),
            ('Cache-Control', 'no-store'),
        ]
        start_response('503 Service Unavailable' if problem else '200 OK', headers)
        return [] if environ['REQUEST_METHOD'] == 'HEAD' else [body]

    def _ready(self) -> str | None:
        problem = database_health.trouble(self._db)
        if problem is None and self._provider_cache is not None and not self._provider_cache.is_loaded:
            # Loading failed when the process started, because the database was unavailable.
            self._provider_cache.load()
            return None if self._provider_cache.is_loaded else 'The provider cache cannot be loaded.'
        return problem
