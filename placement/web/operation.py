"""An operation: the handler of one method of one path, with the checks that a request must pass first.

The checks are made in the order in which the operation lists them; `api-ref/operations.md` has a table of them all.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import microversion_parse
import webob
from webob import exc

from placement import exception
from placement.schemas import Schema, Windows
from placement.web import context, error_document, error_mapping, microversion, query
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.wsgi import Request

Handler = Callable[[webob.Request, RequestContext], webob.Response]

JSON = 'application/json'

#: A schema, or one for each window of microversions, newest first; None for no body.
Described = Schema | Windows | None
#: The body schemas of successful responses by status; or one such mapping for each window, newest first.
Responses = Mapping[int, Described] | tuple[tuple[tuple[int, int], Mapping[int, Described]], ...]


# Checks -----------------------------------------------------------------------------------------------------


class Check(Protocol):
    """One condition on a request."""

    def __call__(self, req: webob.Request) -> None:
        """Return if the request satisfies the condition; raise the HTTP error that says it does not."""


@dataclasses.dataclass(frozen=True)
class SinceVersion:
    """The operation exists from microversion ``first`` to ``last``, both included; without ``last`` it has no end.

    At other microversions the response has the status ``otherwise``.
    """

    first: str
    last: str | None = None
    otherwise: int = exc.HTTPNotFound.code

    def __call__(self, req: webob.Request) -> None:
        if not self.includes(microversion.wanted(req)):
            raise exc.status_map[self.otherwise]

    def includes(self, version: microversion_parse.Version) -> bool:
        """Return whether the operation exists in ``version``."""
        return self._first <= version and (self._last is None or version <= self._last)

    def is_since(self, version: microversion_parse.Version) -> bool:
        """Return whether the operation came with ``version`` or before."""
        return self._first <= version

    @functools.cached_property
    def _first(self) -> microversion_parse.Version:
        return microversion.parse_version_string(self.first)

    @functools.cached_property
    def _last(self) -> microversion_parse.Version | None:
        return None if self.last is None else microversion.parse_version_string(self.last)


@dataclasses.dataclass(frozen=True)
class Produces:
    """The Content-Type of the request is ``media_type``; else 415. The handler validates the body with ``schema``."""

    media_type: str
    schema: Described = None

    def __call__(self, req: webob.Request) -> None:
        sent = req.environ.get('CONTENT_TYPE', '').partition(';')[0].strip() or None
        if sent != self.media_type:
            raise exc.HTTPUnsupportedMediaType(f'The media type {sent} is not supported, use {self.media_type}')


@dataclasses.dataclass(frozen=True)
class Consumes:
    """The Accept header of the request allows ``media_type``; else 406."""

    media_type: str

    def __call__(self, req: webob.Request) -> None:
        # Parsing the header takes time, so it is avoided for the common values.
        if req.environ.get('HTTP_ACCEPT') not in (self.media_type, None, '*/*') and not req.accept.acceptable_offers(
            [self.media_type]
        ):
            raise exc.HTTPNotAcceptable(f'Only {self.media_type} is provided')


@dataclasses.dataclass(frozen=True)
class RequiresPolicy:
    """The policy rule ``rule`` allows the caller the operation; else 403.

    ``target`` reads the attributes of the rule's target from the request; None for the caller's own project and user.
    """

    rule: str
    target: Callable[[webob.Request], Mapping[str, Any]] | None = None

    def __call__(self, req: webob.Request) -> None:
        req.environ[context.ENVIRON_KEY].can(self.rule, None if self.target is None else self.target(req))


# Operations -------------------------------------------------------------------------------------------------


class Operation:
    """A WSGI application that makes the checks, calls the handler, and turns exceptions into HTTP errors.

    :param checks: made in this order; the first that fails decides the response.
    :param failures: rules for the exceptions of this operation that come before the general ones; the first match
        counts. Their texts may mention the variables of the path.
    :param query: the schema of the query string, for the OpenAPI document; None when the operation does not read it.
    :param responses: the schemas of the successful responses, for the OpenAPI document.
    """

    def __init__(
        self,
        handler: Handler,
        checks: Iterable[Check],
        failures: Iterable[ErrorMapping] = (),
        query: Described = None,
        responses: Responses | None = None,
    ) -> None:
        self.handler = handler
        self.checks = tuple(checks)
        self.failures = tuple(failures)
        self.query = query
        self.responses = responses or {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Process a request."""
        try:
            response = self._process(Request(environ))
        except exc.HTTPException as error:
            response = error_document.response_for(error, environ)
        return response(environ, start_response)

    def _process(self, req: webob.Request) -> webob.Response:
        for check in self.checks:
            check(req)
        try:
            return self.handler(req, req.environ[context.ENVIRON_KEY])
        except (exception.PlacementError, query.BadQuery) as error:
            http_error = error_mapping.http_error(error, self.failures, req.environ['wsgiorg.routing_args'][1])
            if http_error is None:
                raise
            raise http_error from error

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Only this operation; ``Versions`` has the same attribute with several."""
        return (self,)

    @property
    def window(self) -> SinceVersion:
        """The microversions in which the operation exists."""
        return next((check for check in self.checks if isinstance(check, SinceVersion)), SinceVersion('1.0'))


class Versions:
    """A WSGI application that chooses between operations on the same path and method by microversion.

    :param operations: oldest first. At a microversion at which none exists, the last one gives the error.
    :raises ValueError: two of them exist at the same microversion.
    """

    def __init__(self, *operations: Operation) -> None:
        for version in map(microversion.parse_version_string, microversion.VERSIONS):
            if sum(one.window.includes(version) for one in operations) > 1:
                raise ValueError(f'Two operations exist in {version}.')
        self.operations = operations

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request to the operation that exists at its microversion."""
        version = environ[microversion.ENVIRON_KEY]
        chosen = next((one for one in self.operations if one.window.includes(version)), self.operations[-1])
        return chosen(environ, start_response)


def operation(
    *checks: Check, failures: Iterable[ErrorMapping] = (), query: Described = None, responses: Responses | None = None
) -> Callable[[Handler], Operation]:
    """Decorate a handler, which is called with the request and its context when all ``checks`` have passed.

    The other parameters are those of ``Operation``. The schemas in ``Produces``, ``query`` and ``responses`` are for
    the OpenAPI document (``placement.openapi``); tests compare it with what the service does.
    """

    def decorate(handler: Handler) -> Operation:
        return Operation(handler, checks, failures, query, responses)

    return decorate
