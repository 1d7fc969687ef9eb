"""Health checks for load balancers: whether the process responds, and whether its database can be used."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any
from wsgiref.types import WSGIApplication

from placement.cache.refresh import ProviderCache
from placement.db import health as database_health
from placement.db.api import Database

#: Key of the WSGI environment with the reason why a server cannot process requests; None if it can.
SERVER_PROBLEM = 'placement.server_problem'
#: The methods of health checks.
METHODS = frozenset({'GET', 'HEAD'})
#: The suffix of the readiness check, after the path of the health checks.
READY = '/ready'


class HealthCheck:
    """WSGI middleware that serves ``path`` (process responds) and ``path`` + ``/ready`` (process can serve requests).

    A process is ready if it reaches the database, the schema exists, its provider cache is loaded, and the threads of
    its server do not all wait.

    The response is 200 with ``OK`` as plain text. If the process is not ready, it is 503 with the reason. If the
    database is read-only, it is 200 with a note, because reads and searches continue. Neither path needs a token, and
    requests for them are neither logged nor counted. Methods other than GET and HEAD, and all other paths, go to
    ``app``.

    :param path: an absolute path below the mount prefix.
    :param check: returns a sentence that says why the database cannot be used; None if it can.
    :param is_read_only: returns whether the database is known to be read-only.
    """

    def __init__(
        self,
        app: WSGIApplication,
        path: str,
        check: Callable[[], str | None],
        is_read_only: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app = app
        self._is_read_only = is_read_only
        self._path = path
        self._check = check

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, problem, is_read_only = environ['PATH_INFO'], None, False
        if path not in (self._path, self._path + READY) or environ['REQUEST_METHOD'] not in METHODS:
            return self._app(environ, start_response)
        if path == self._path + READY:
            problem = environ.get(SERVER_PROBLEM) or self._check()
            is_read_only = self._is_read_only()
        body = (problem or ('The database is read-only.' if is_read_only else 'OK')).encode() + b'\n'
        headers = [('Content-Type', 'text/plain'), ('Content-Length', str(len(body))), ('Cache-Control', 'no-store')]
        start_response('503 Service Unavailable' if problem else '200 OK', headers)
        return [] if environ['REQUEST_METHOD'] == 'HEAD' else [body]


def database_check(db: Database, provider_cache: ProviderCache) -> str | None:
    """Return why a process cannot use the database; None if it can. Load its provider cache if it is not loaded."""
    problem = database_health.find_problem(db)
    if problem is None and not provider_cache.is_loaded:
        # Loading failed when the process started, because the database was unavailable.
        provider_cache.load()
        return None if provider_cache.is_loaded else 'The provider cache cannot be loaded.'
    return problem
