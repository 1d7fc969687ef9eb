"""Error responses (api-ref/errors.md): the HTTP error for an exception, and its document in JSON, HTML or text.

``FaultHandler`` responds to all exceptions. Those of operations are HTTP errors then (``web.operation``).
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from wsgiref.types import WSGIApplication

import microversion_parse
import orjson
import webob
from oslo_log import log
from oslo_middleware import request_id
from webob import acceptparse, exc

from placement import exception
from placement.web import microversion

LOG = log.getLogger(__name__)

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

#: Seconds after which a client may retry when the database is unavailable.
_RETRY_AFTER = '2'

#: Maximum number of characters of a detail text. The reason may quote input, which may be a megabyte long.
_MAX_DETAIL = 8192
_SHORTENED = ' [...] '

_PAGE = (
    '<!DOCTYPE html>\n<html>\n <head>\n  <title>{status}</title>\n </head>\n'
    ' <body>\n  <h1>{status}</h1>\n  <p>{detail}</p>\n </body>\n</html>\n'
)


# From exceptions to HTTP errors --------------------------------------------------------------------------


class ErrorMapping(NamedTuple):
    """The HTTP error for one class of exceptions.

    ``when`` is the class; subclasses also match. ``status`` is the class of the WebOb error, and ``code`` the value of
    ``errors[0].code``. If one of them is None, it comes from the next matching rule that has it.
    ``text`` is a format string: ``{error}`` is the exception's message; other fields are its data and the variables of
    the path.
    """

    when: type[exception.PlacementError]
    text: str = '{error}'
    status: type[exc.HTTPError] | None = None
    code: str | None = None


#: For a query string whose ``resources`` name a class that does not exist. Clients know the phrase. A class in another
#: parameter needs a subclass of the exception, and a phrase of its own before this one.
UNKNOWN_CLASS_IN_QUERY = ErrorMapping(
    exception.ResourceClassNotFound, 'Invalid resource class in resources parameter: {error}', exc.HTTPBadRequest
)

# The first match counts, so subclasses come before their base classes.
_GENERAL = (
    ErrorMapping(exception.ParentProviderNotFound, status=exc.HTTPBadRequest),
    ErrorMapping(exception.AllocationProviderNotFound, status=exc.HTTPBadRequest),
    ErrorMapping(exception.InventoryRecordNotFound, status=exc.HTTPBadRequest),
    ErrorMapping(exception.NotFound, status=exc.HTTPNotFound),
    ErrorMapping(exception.Invalid, status=exc.HTTPBadRequest),
    ErrorMapping(exception.DuplicateQueryKey, code=QUERY_DUPLICATE_KEY),
    ErrorMapping(exception.BadQueryValue, code=QUERY_BAD_VALUE),
    ErrorMapping(exception.MissingQueryValue, code=QUERY_MISSING_VALUE),
    ErrorMapping(exception.BadQuery, status=exc.HTTPBadRequest),
    ErrorMapping(exception.ConcurrentUpdate, status=exc.HTTPConflict, code=CONCURRENT_UPDATE),
    ErrorMapping(exception.DuplicateProviderName, status=exc.HTTPConflict, code=DUPLICATE_NAME),
    ErrorMapping(exception.DuplicateProviderUuid, status=exc.HTTPConflict, code=DUPLICATE_NAME),
    ErrorMapping(exception.CannotDeleteParentProvider, status=exc.HTTPConflict, code=PROVIDER_CANNOT_DELETE_PARENT),
    ErrorMapping(exception.ResourceProviderInUse, status=exc.HTTPConflict, code=PROVIDER_IN_USE),
    ErrorMapping(exception.InventoryInUse, status=exc.HTTPConflict, code=INVENTORY_INUSE),
    ErrorMapping(exception.Conflict, status=exc.HTTPConflict),
)


def http_error(
    error: exception.PlacementError, special: Iterable[ErrorMapping], values: Mapping[str, str]
) -> exc.HTTPError | None:
    """Return the HTTP error for an exception; None if no rule matches.

    :param special: rules that come before the general rules. The text, the status and the code each come from the first
        matching rule that has one.
    :param values: the fields in texts of ``special`` that are not in the exception's data.
    """
    rules = [rule for rule in (*special, *_GENERAL) if isinstance(error, rule.when)]
    status = next((rule.status for rule in rules if rule.status), None)
    if status is None:
        return None
    code = next((rule.code for rule in rules if rule.code), DEFAULT)
    fields: dict[str, Any] = {**error.data, **values, 'error': error}
    return status(rules[0].text.format(**fields), comment=code)


# From HTTP errors to error documents ----------------------------------------------------------------------


def respond(error: exc.HTTPException, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Respond to a request with ``error``. This is a WSGI application with an additional argument.

    :param error: its ``detail`` is the reason, its ``comment`` the error code (None for the default). Its headers, such
        as ``Allow``, are also sent. A mapping in an attribute ``members`` is added to the JSON object.
    :param environ: the environment of the request. Its Accept header selects JSON, HTML or plain text. The response to
        HEAD has no body.
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
    response = webob.Response(status=error.status, headerlist=headers, app_iter=[body])
    return response(environ, start_response)


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
    # A malformed or empty header counts as missing.
    if not header.parsed:
        return 'application/json'
    offers = header.acceptable_offers(['text/html', 'application/json'])
    return offers[0][0] if offers else None


# All exceptions -------------------------------------------------------------------------------------------


class FaultHandler:
    """WSGI middleware that negotiates the microversion, and makes error documents of all exceptions.

    Every response to a negotiated microversion names it in its headers. The text of an unexpected exception is logged
    but not sent, because it may contain SQL or secrets.

    :param newest: the newest microversion that is served.
    """

    def __init__(self, application: WSGIApplication, newest: str) -> None:
        self._application = application
        self._newest = newest

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on with ``environ['placement.microversion']``. Respond to any exception that this raises."""
        version: microversion_parse.Version | None = None

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            if version is not None:
                name = microversion.HEADER
                headers = [*headers, (name, f'{microversion.SERVICE_TYPE} {version}'), ('Vary', name.lower())]
            return start_response(status, headers, exc_info)

        try:
            version = microversion.negotiate(environ.get('HTTP_OPENSTACK_API_VERSION'), self._newest)
            environ[microversion.ENVIRON_KEY] = version
            return self._application(environ, start)
        except exc.HTTPException as error:
            if isinstance(error, microversion.UnacceptableVersion):
                LOG.info('The microversion of the request is not served: %s.', error.advice)
            # The traceback of the error refers to this call. A variable that kept the error until the end of the call
            # would make a cycle, so respond here, not below (see ``Operation.__call__``).
            return respond(error, environ, start)
        except exception.PolicyNotAuthorized as error:
            http_error: exc.HTTPException = exc.HTTPForbidden(str(error))
        except exception.DatabaseUnavailable as error:
            # Logged by ``db.availability``. The reason may name hosts and accounts.
            http_error = exc.HTTPServiceUnavailable(str(error), {'Retry-After': _RETRY_AFTER})
        except Exception:
            LOG.exception('Unexpected error')
            http_error = exc.HTTPInternalServerError(
                'An unexpected error occurred. The log of the service has details under this request id.'
            )
        return respond(http_error, environ, start)
