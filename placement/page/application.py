"""The WSGI application of the page: finds the view for a path. It allows only GET and HEAD."""

from __future__ import annotations

import functools
import importlib.resources
import re
from collections.abc import Callable, Iterable
from typing import Any

import webob
from oslo_db import exception as db_exc
from oslo_log import log
from sqlalchemy import exc as sa_exc

from placement import exception
from placement.db.api import SchemaMissing
from placement.page import consumers, health, overview, trees, why
from placement.page.hosts import LOOPBACK_NAMES
from placement.page.parameters import BadInput, Missing, Parameters
from placement.page.rendering import Renderer, View
from placement.page.sources import Sources

LOG = log.getLogger(__name__)

#: Headers of every response. Browsers may show it with our style sheet and send its forms back here, nothing else.
_HEADERS = {
    'Content-Security-Policy': (
        "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none';"
        " frame-ancestors 'none'"
    ),
    'X-Content-Type-Options': 'nosniff',
    'Referrer-Policy': 'no-referrer',
    'Cross-Origin-Resource-Policy': 'same-origin',
    'Cache-Control': 'no-store',
}
_FILES = {'/page.css': 'text/css', '/icon.svg': 'image/svg+xml'}

Make = Callable[..., View]

_VIEWS: tuple[tuple[re.Pattern[str], Make], ...] = (
    (re.compile('/'), overview.view),
    (re.compile('/trees'), trees.list_view),
    (re.compile('/trees/(?P<uuid>[^/]+)'), trees.view),
    (re.compile('/consumers'), consumers.list_view),
    (re.compile('/consumers/(?P<uuid>[^/]+)'), consumers.view),
    (re.compile('/why'), why.view),
    (re.compile('/health'), health.view),
)


class Page:
    """The application.

    :param sources: where the views get their data.
    :param hosts: the host names, as in the header ``Host`` without a port, that requests may use; None for all. Others
        are rejected, since a foreign web site could make its own name resolve to this address (DNS rebinding), and its
        scripts could then read the page.
    """

    def __init__(self, sources: Sources, hosts: frozenset[str] | None = LOOPBACK_NAMES) -> None:
        self._sources = sources
        self._hosts = hosts

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Process one request."""
        request = webob.Request(environ)
        response = self._rejection(request) or self._process(request)
        response.headers.update(_HEADERS)
        body: Iterable[bytes] = response(environ, start_response)
        return body

    def _rejection(self, request: webob.Request) -> webob.Response | None:
        """Return the response to a request with a host or method that is not allowed, None for other requests."""
        if self._hosts is not None and _host_name(request.environ.get('HTTP_HOST', '')) not in self._hosts:
            return _plain(421, 'The page is available only under the name of this machine, such as localhost.')
        if request.method not in ('GET', 'HEAD'):
            rejected = _plain(405, 'The page is read-only: it allows GET and HEAD.')
            rejected.allow = ('GET', 'HEAD')
            return rejected
        return None

    def _process(self, request: webob.Request) -> webob.Response:
        path = request.environ.get('PATH_INFO', '').encode('latin-1').decode('utf-8', 'replace') or '/'
        if path in _FILES:
            return _file(path)
        parameters, renderer = None, Renderer(request.script_name, '', {})
        try:
            parameters = Parameters(request.environ.get('QUERY_STRING', ''))
            renderer = Renderer(request.script_name, path, parameters.values)
            view = self._view(path, parameters)
            return _response(view.status, view, renderer, parameters.wants_json)
        except Exception as error:
            status, view = _failure(error)
            return _response(
                status, view, renderer, parameters is not None and parameters.values.get('format') == 'json'
            )

    def _view(self, path: str, parameters: Parameters) -> View:
        for pattern, make in _VIEWS:
            match = pattern.fullmatch(path)
            if match:
                return make(self._sources, parameters, **match.groupdict())
        raise Missing(reason='There is no such page.')


def _response(status: int, view: View, renderer: Renderer, as_json: bool) -> webob.Response:
    if as_json:
        return webob.Response(status=status, body=renderer.json(view), content_type='application/json')
    return webob.Response(status=status, body=renderer.html(view), content_type='text/html', charset='UTF-8')


@functools.cache
def _bytes(path: str) -> bytes:
    return importlib.resources.files('placement.page').joinpath(f'static{path}').read_bytes()


def _file(path: str) -> webob.Response:
    return webob.Response(body=_bytes(path), content_type=_FILES[path], charset='UTF-8')


def _host_name(host: str) -> str:
    """Return the header ``Host`` without the port."""
    return re.sub(r':[0-9]*$', '', host).lower()


def _plain(status: int, text: str) -> webob.Response:
    return webob.Response(status=status, text=f'{text}\n', content_type='text/plain', charset='UTF-8')


def _failure(error: Exception) -> tuple[int, View]:
    """Return the status and the view for an exception."""
    if isinstance(error, (BadInput, exception.ResourceClassNotFound, exception.TraitNotFound)):
        return 400, _error_view('Invalid request', str(error))
    if isinstance(error, SchemaMissing):
        return 503, _error_view('The database does not have the tables of this service', error.for_operators)
    if isinstance(error, exception.DatabaseUnavailable):
        return 503, _error_view('The database is unavailable', 'Reload this page when it is available again.')
    if isinstance(error, exception.NotFound):
        return 404, _error_view('Not found', str(error))
    LOG.error('The page failed', exc_info=error)
    if isinstance(error, (db_exc.DBError, sa_exc.SQLAlchemyError)):
        return 503, _error_view('The database cannot be read', 'The log of this program has the reason.')
    return 500, _error_view('This page failed', 'The log of this program has the reason.')


def _error_view(title: str, detail: str) -> View:
    return View('error.html', title, {'error': {'title': title, 'detail': detail}})
