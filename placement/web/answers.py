"""How failures are told: which exception becomes which HTTP error, with status, code and text (api-ref/errors.md)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from webob import exc

from placement import exception
from placement.web import error_document, query


class Answer(NamedTuple):
    """How one kind of failure is told.

    ``when`` is the exception, subclasses included. ``status`` is the WebOb error, ``code`` the value of
    ``errors[0].code``; None takes what ``_GENERAL`` says. ``text`` is a format string: ``{error}`` is the
    exception's message, other fields are its data and the values handed to ``mapped``.
    """

    when: type[exception.PlacementError]
    text: str = '{error}'
    status: type[exc.HTTPError] | None = None
    code: str | None = None


#: How a query is answered whose ``resources`` name a class that does not exist.
UNKNOWN_CLASS_IN_QUERY = Answer(
    exception.ResourceClassNotFound, 'Invalid resource class in resources parameter: {error}', exc.HTTPBadRequest
)

# The first match counts, so what is specific stands before what is general.
_GENERAL = (
    Answer(exception.ParentProviderNotFound, status=exc.HTTPBadRequest),
    Answer(exception.AllocationProviderNotFound, status=exc.HTTPBadRequest),
    Answer(exception.InventoryRecordNotFound, status=exc.HTTPBadRequest),
    Answer(exception.NotFound, status=exc.HTTPNotFound),
    Answer(exception.Invalid, status=exc.HTTPBadRequest),
    Answer(exception.ConcurrentUpdate, status=exc.HTTPConflict, code=error_document.CONCURRENT_UPDATE),
    Answer(exception.DuplicateProviderName, status=exc.HTTPConflict, code=error_document.DUPLICATE_NAME),
    Answer(exception.DuplicateProviderUuid, status=exc.HTTPConflict, code=error_document.DUPLICATE_NAME),
    Answer(
        exception.CannotDeleteParentProvider, status=exc.HTTPConflict, code=error_document.PROVIDER_CANNOT_DELETE_PARENT
    ),
    Answer(exception.ResourceProviderInUse, status=exc.HTTPConflict, code=error_document.PROVIDER_IN_USE),
    Answer(exception.InventoryInUse, status=exc.HTTPConflict, code=error_document.INVENTORY_INUSE),
    Answer(exception.Conflict, status=exc.HTTPConflict),
)


@contextlib.contextmanager
def mapped(*special: Answer, **values: str) -> Iterator[None]:
    """Turn the failures of the block into HTTP errors.

    :param special: how they are told where that differs from the general rules; the first match counts.
    :param values: what the texts of ``special`` mention beyond the exception's own data.
    :raises webob.exc.HTTPError: for every ``PlacementError`` that a rule covers; others pass.
    """
    try:
        yield
    except exception.PlacementError as error:
        if (told := http_error(error, special, values)) is None:
            raise
        raise told from error


def http_error(
    error: exception.PlacementError | query.BadQuery, special: Iterable[Answer], values: Mapping[str, str]
) -> exc.HTTPError | None:
    """The HTTP error that tells ``error``: 400 for a query that is no query, else what the first rules that fit say.

    :returns: None when no rule covers it.
    """
    if isinstance(error, query.BadQuery):
        return exc.HTTPBadRequest(str(error))
    rules = [rule for rule in (*special, *_GENERAL) if isinstance(error, rule.when)]
    status = next((rule.status for rule in rules if rule.status), None)
    if status is None:
        return None
    code = next((rule.code for rule in rules if rule.code), error_document.DEFAULT)
    fields: dict[str, Any] = {**error.data, **values, 'error': error}
    return status(rules[0].text.format(**fields), comment=code)
