"""The WSGI application of the page: finds the view for a path. It allows only GET and HEAD."""

from __future__ import annotations

import importlib.resources
import ipaddress
import re
from collections.abc import Callable, Mapping

import webob
import webob.dec
from oslo_log import log

from placement import exception
from placement.db.errors import DATABASE_ERRORS, SchemaMissing
from placement.db.health import CheckFailed
from placement.ops.page import consumer_views, health_view, overview, plan_view, rendering, tree_views, why_view
from placement.ops.page.view import Parameters, Sources, View

LOG = log.getLogger(__name__)

#: The host names of a page that listens on a loopback address.
LOOPBACK_NAMES = frozenset({'localhost', '127.0.0.1', '[::1]'})
#: Headers of every response. They allow browsers only to load our style sheet and to send forms back to the page.
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

_VIEWS: tuple[tuple[re.Pattern[str], Callable[..., View]], ...] = (
    (re.compile('/'), overview.overview_view),
    (re.compile('/trees'), tree_views.trees_view),
    (re.compile('/trees/(?P<uuid>[^/]+)'), tree_views.tree_view),
    (re.compile('/consumers'), consumer_views.consumers_view),
    (re.compile('/consumers/(?P<uuid>[^/]+)'), consumer_views.consumer_view),
    (re.compile('/why'), why_view.why_view),
    (re.compile('/plan'), plan_view.plan_view),
    (re.compile('/health'), health_view.health_view),
)


class PageNotFound(exception.NotFound):
    template = 'There is no such page.'


class Page:
    """The application.

    :param sources: where the views get their data.
    :param hosts: the host names that the header ``Host`` may have, without the port; None for all. Without this check,
        another web site could make its own name resolve to this address (DNS rebinding) and read the page by a script.
    """

    def __init__(self, sources: Sources, hosts: frozenset[str] | None = LOOPBACK_NAMES) -> None:
        self._sources = sources
        self._hosts = hosts

    @webob.dec.wsgify
    def __call__(self, request: webob.Request) -> webob.Response:
        path = request.environ.get('PATH_INFO', '').encode('latin-1').decode('utf-8', 'replace') or '/'
        host_name = re.sub(r':[0-9]*$', '', request.environ.get('HTTP_HOST', '')).lower()
        if self._hosts is not None and host_name not in self._hosts:
            response = _plain(421, 'The page is available only under the name of this machine, such as localhost.')
        elif request.method not in ('GET', 'HEAD'):
            response = _plain(405, 'The page is read-only: it allows GET and HEAD.')
            response.allow = ('GET', 'HEAD')
        elif path in _FILES:
            file = importlib.resources.files('placement.ops.page').joinpath(f'static{path}')
            response = webob.Response(body=file.read_bytes(), content_type=_FILES[path], charset='UTF-8')
        else:
            response = self._respond(request, path)
        response.headers.update(_HEADERS)
        return response

    def _respond(self, request: webob.Request, path: str) -> webob.Response:
        """Return the view for a path, or a view of the error."""
        # If the query string cannot be read, the view of the error has no link to itself.
        own_path = ''
        values: Mapping[str, str] = {}
        try:
            parameters = Parameters(request)
            own_path, values = path, parameters.values
            parameters.choice('format', ('html', 'json'))
            self._sources.check.result()
            view = self._view(path, parameters)
        except Exception as error:
            view = _failure(error)
        if values.get('format', '').strip() == 'json':
            return webob.Response(status=view.status, body=rendering.json(view), content_type='application/json')
        text = rendering.html(view, request, own_path, values, self._sources.names)
        return webob.Response(status=view.status, text=text, content_type='text/html', charset='UTF-8')

    def _view(self, path: str, parameters: Parameters) -> View:
        for pattern, make_view in _VIEWS:
            if match := pattern.fullmatch(path):
                return make_view(self._sources, parameters, **match.groupdict())
        raise PageNotFound


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``, a name or an address without brackets."""
    if host == 'localhost':
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_names(host: str) -> frozenset[str] | None:
    """Return the host names to accept if the page listens on ``host``; None (all) if other machines can reach it."""
    return LOOPBACK_NAMES | {f'[{host}]' if ':' in host else host} if is_loopback(host) else None


def _plain(status: int, text: str) -> webob.Response:
    return webob.Response(status=status, text=f'{text}\n', content_type='text/plain', charset='UTF-8')


def _failure(error: Exception) -> View:
    """Return the view for an exception."""
    status, title, detail = 500, 'This page failed', 'The log of this program has the reason.'
    if isinstance(error, (exception.BadQuery, exception.ResourceClassNotFound, exception.TraitNotFound)):
        status, title, detail = 400, 'Invalid request', str(error)
    elif isinstance(error, SchemaMissing):
        status, title, detail = 503, 'The database does not have the tables of this service', error.for_operators
    elif isinstance(error, CheckFailed):
        status, title, detail = 503, 'The database does not answer', f'This page waits for the database. {error}'
    elif isinstance(error, exception.DatabaseUnavailable):
        status, title, detail = 503, 'The database is unavailable', 'Reload this page when it is available again.'
    elif isinstance(error, exception.NotFound):
        status, title, detail = 404, 'Not found', str(error)
    else:
        LOG.error('The page failed', exc_info=error)
        if isinstance(error, DATABASE_ERRORS):
            status, title = 503, 'The database cannot be read'
    return View('error.html', title, {'error': {'title': title, 'detail': detail}}, status=status)
