"""The mapping of exceptions to HTTP errors (api-ref/errors.md): rules of single operations, and general rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from webob import exc

from placement import exception
from placement.web import error_document


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
