"""The mapping of exceptions to HTTP errors (api-ref/errors.md): rules of single operations, and general rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from wsgiref.types import WSGIApplication

import microversion_parse
from oslo_log import log
from webob import exc
from webob import request as webob_request

from placement import exception
from placement.web import error_document, microversion

LOG = log.getLogger(__name__)

#: Seconds after which a client may retry when the database is unavailable.
_RETRY_AFTER = '2'


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


#: For a query string whose ``resources`` name a class that does not exist.
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
    ErrorMapping(exception.DuplicateQueryKey, code=error_document.QUERY_DUPLICATE_KEY),
    ErrorMapping(exception.BadQueryValue, code=error_document.QUERY_BAD_VALUE),
    ErrorMapping(exception.MissingQueryValue, code=error_document.QUERY_MISSING_VALUE),
    ErrorMapping(exception.BadQuery, status=exc.HTTPBadRequest),
    ErrorMapping(exception.ConcurrentUpdate, status=exc.HTTPConflict, code=error_document.CONCURRENT_UPDATE),
    ErrorMapping(exception.DuplicateProviderName, status=exc.HTTPConflict, code=error_document.DUPLICATE_NAME),
    ErrorMapping(exception.DuplicateProviderUuid, status=exc.HTTPConflict, code=error_document.DUPLICATE_NAME),
    ErrorMapping(
        exception.CannotDeleteParentProvider, status=exc.HTTPConflict, code=error_document.PROVIDER_CANNOT_DELETE_PARENT
    ),
    ErrorMapping(exception.ResourceProviderInUse, status=exc.HTTPConflict, code=error_document.PROVIDER_IN_USE),
    ErrorMapping(exception.InventoryInUse, status=exc.HTTPConflict, code=error_document.INVENTORY_INUSE),
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
    code = next((rule.code for rule in rules if rule.code), error_document.DEFAULT)
    fields: dict[str, Any] = {**error.data, **values, 'error': error}
    return status(rules[0].text.format(**fields), comment=code)


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
            stamped = headers if version is None else microversion.stamp(headers, version)
            return start_response(status, stamped, exc_info)

        try:
            version = microversion.negotiate(environ.get('HTTP_OPENSTACK_API_VERSION'), self._newest)
            environ[microversion.ENVIRON_KEY] = version
            return self._application(environ, start)
        except exc.HTTPException as error:
            http_error = error
        except exception.PolicyNotAuthorized as error:
            http_error = exc.HTTPForbidden(str(error))
        except exception.DatabaseUnavailable as error:
            # Logged by ``db.availability``. The reason may name hosts and accounts.
            http_error = exc.HTTPServiceUnavailable(str(error), {'Retry-After': _RETRY_AFTER})
        except webob_request.DisconnectionError:
            http_error = exc.HTTPBadRequest('The request body is shorter than its content-length header says.')
        except Exception:
            LOG.exception('Unexpected error')
            http_error = exc.HTTPInternalServerError(
                'An unexpected error occurred. The log of the service has details under this request id.'
            )
        return error_document.respond(http_error, environ, start)
