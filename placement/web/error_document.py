"""Error responses: the error codes, and the error document in JSON, HTML or plain text (api-ref/errors.md)."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import orjson
import webob
from oslo_middleware import request_id
from webob import acceptparse, exc

from placement.web import microversion

DEFAULT = 'placement.undefined_code'
CONCURRENT_UPDATE = 'placement.concurrent_update'
INVENTORY_INUSE = 'placement.inventory.inuse'
DUPLICATE_NAME = 'placement.duplicate_name'
PROVIDER_NOT_FOUND = 'placement.resource_provider.not_found'
PROVIDER_IN_USE = 'placement.resource_provider.inuse'
PROVIDER_CANNOT_DELETE_PARENT = 'placement.resource_provider.cannot_delete_parent'
QUERY_DUPLICATE_KEY = 'placement.query.duplicate_key'
QUERY_BAD_VALUE = 'placement.query.bad_value'
QUERY_MISSING_VALUE = 'placement.query.missing_value'

#: Maximum number of characters of a detail text. The reason may quote input, which may be a megabyte long.
_MAX_DETAIL = 8192
_SHORTENED = ' [...] '

_PAGE = (
    '<!DOCTYPE html>\n<html>\n <head>\n  <title>{status}</title>\n </head>\n'
    ' <body>\n  <h1>{status}</h1>\n  <p>{detail}</p>\n </body>\n</html>\n'
)


def respond(error: exc.HTTPException, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Respond to a request with ``error``. This is a WSGI application with an additional argument."""
    return response_for(error, environ)(environ, start_response)


def response_for(error: exc.HTTPException, environ: Mapping[str, Any]) -> webob.Response:
    """Make the response for ``error``.

    :param error: its ``detail`` is the reason, its ``comment`` the error code (None for the default). Its headers, such
        as ``Allow``, are also sent. A mapping in an attribute ``members`` is added to the JSON object.
    :param environ: the environment of the request. Its Accept header selects JSON, HTML or plain text.
    :returns: the response, without a body for HEAD.
    """
    detail, media_type = _detail(error, environ), _preferred(environ.get('HTTP_ACCEPT'))
    if media_type == 'application/json':
        body = _document(error, detail, environ)
    elif media_type == 'text/html':
        page = _PAGE.format(status=html.escape(error.status), detail=html.escape(detail).replace('\n', '<br>\n'))
        body, media_type = page.encode(), 'text/html; charset=UTF-8'
    else:
        body, media_type = f'{error.status}\n\n{detail}\n'.encode(), 'text/plain; charset=UTF-8'
    headers = [('Content-Length', str(len(body))), ('Content-Type', media_type)]
    if environ['REQUEST_METHOD'] == 'HEAD':
        body, headers = b'', [('Content-Length', '0')]
    skipped = ('content-type', 'content-length')
    headers += [(name, value) for name, value in error.headerlist if name.lower() not in skipped]
    return webob.Response(status=error.status, headerlist=headers, app_iter=[body])


def _document(error: exc.HTTPException, detail: str, environ: Mapping[str, Any]) -> bytes:
    content = {
        'status': error.code,
        'title': error.title,
        'detail': detail,
        'request_id': environ.get(request_id.ENV_REQUEST_ID, ''),
        **getattr(error, 'members', {}),
    }
    version = environ.get(microversion.ENVIRON_KEY)
    if version is not None and version >= (1, 23):
        content['code'] = error.comment or DEFAULT
    return orjson.dumps({'errors': [content]})


def _detail(error: exc.HTTPException, environ: Mapping[str, Any]) -> str:
    """Return the detail as WebOb writes it: the sentence for the status, an empty line, a space and the reason."""
    general = error.explanation
    if error.code == exc.HTTPMethodNotAllowed.code:
        general = f'The method {environ["REQUEST_METHOD"]} is not allowed for this resource.'
    # Clients print only the last line of a detail, so the reason has to be one line. Input may contain line ends.
    reason = (error.detail or '').replace('\r', '\\r').replace('\n', '\\n')
    detail = f'{general}\n\n {reason}' if reason else general
    # UTF-8 cannot encode surrogates. They come from headers, or from servers that decode paths in other ways.
    detail = detail.encode(errors='replace').decode()
    if len(detail) <= _MAX_DETAIL:
        return detail
    half = (_MAX_DETAIL - len(_SHORTENED)) // 2
    return detail[:half] + _SHORTENED + detail[-half:]


def _preferred(accept: str | None) -> str | None:
    if accept is None or accept == '*/*':
        return 'application/json'
    header = acceptparse.create_accept_header(accept)
    if isinstance(header, acceptparse.AcceptInvalidHeader):
        return 'application/json'
    offers = header.acceptable_offers(['text/html', 'application/json'])
    return offers[0][0] if offers else None
