"""The one place where what went wrong becomes an HTTP error with status, code and text (contract A 2)."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import webob
from webob import exc

from placement import exception
from placement.web import error_document, query

Handler = Callable[[webob.Request], webob.Response]


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

    :param special: how this endpoint differs from the general rules; the first match counts.
    :param values: what the texts of ``special`` mention beyond the exception's own data.
    :raises webob.exc.HTTPError: for every ``PlacementError`` that a rule covers; others pass.
    :raises webob.exc.HTTPBadRequest: for ``query.BadQuery``, whose message is the contract's already.
    """
    try:
        yield
    except query.BadQuery as error:
        raise exc.HTTPBadRequest(str(error)) from error
    except exception.PlacementError as error:
        if (answer := _http_error(error, special, values)) is None:
            raise
        raise answer from error


def answered(*special: Answer) -> Callable[[Handler], Handler]:
    """Decorate a handler so that its failures are ``mapped``; the values are the variables of its path."""

    def decorate(handler: Handler) -> Handler:
        @functools.wraps(handler)
        def answering(req: webob.Request) -> webob.Response:
            try:
                return handler(req)
            except (exception.PlacementError, query.BadQuery):
                with mapped(*special, **req.environ['wsgiorg.routing_args'][1]):
                    raise

        return answering

    return decorate


def _http_error(
    error: exception.PlacementError, special: tuple[Answer, ...], values: dict[str, str]
) -> exc.HTTPError | None:
    rules = [rule for rule in (*special, *_GENERAL) if isinstance(error, rule.when)]
    status = next((rule.status for rule in rules if rule.status), None)
    if status is None:
        return None
    code = next((rule.code for rule in rules if rule.code), error_document.DEFAULT)
    fields: dict[str, Any] = {**error.data, **values, 'error': error}
    return status(rules[0].text.format(**fields), comment=code)
