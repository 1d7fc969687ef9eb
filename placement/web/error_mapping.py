"""The mapping of exceptions to HTTP errors: status, error code and text (api-ref/errors.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webob import exc

from placement import exception
from placement.web import error_document, query


class ErrorMapping(NamedTuple):
    """The HTTP error for one class of exceptions.

    ``when`` is the class; subclasses match too. ``status`` is the class of the WebOb error and ``code`` the value of
    ``errors[0].code``; where they are None, the first matching rule of ``_GENERAL`` that has one decides. ``text`` is a
    format string: ``{error}`` is the exception's message, other fields are its data and the values given to ``mapped``.
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


@contextlib.contextmanager
def mapped(*special: ErrorMapping, **values: str) -> Iterator[None]:
    """Turn each ``PlacementError`` raised in the block into an HTTP error.

    :param special: rules that come before the general ones; the first match counts.
    :param values: fields of the texts of ``special`` that are not in the exception's data.
    :raises webob.exc.HTTPError: when a rule matches; otherwise the exception itself is raised.
    """
    try:
        yield
    except exception.PlacementError as error:
        if (mapped_error := http_error(error, special, values)) is None:
            raise
        raise mapped_error from error


def http_error(
    error: exception.PlacementError | query.BadQuery, special: Iterable[ErrorMapping], values: Mapping[str, str]
) -> exc.HTTPError | None:
    """Return the HTTP error for an exception: 400 for a malformed query string, else as the rules say.

    :param special: rules that come before the general ones. The first matching rule gives the text; the first with a
        status gives the status, the first with a code gives the code.
    :param values: fields of the texts of ``special`` that are not in the exception's data.
    :returns: None when no rule matches.
    """
    if isinstance(error, query.BadQuery):
        return exc.HTTPBadRequest(str(error), comment=error.code)
    rules = [rule for rule in (*special, *_GENERAL) if isinstance(error, rule.when)]
    status = next((rule.status for rule in rules if rule.status), None)
    if status is None:
        return None
    code = next((rule.code for rule in rules if rule.code), error_document.DEFAULT)
    fields: dict[str, Any] = {**error.data, **values, 'error': error}
    return status(rules[0].text.format(**fields), comment=code)
