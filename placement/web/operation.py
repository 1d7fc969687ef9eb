"""An operation: one method of one path, with what is asked of a request before it is carried out.

The checks of an operation are made in the order in which it names them; `api-ref/operations.md` lists them all.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import microversion_parse
import webob
from webob import exc

from placement import exception
from placement.schemas import Schema, Windows
from placement.web import answers, context, error_document, microversion, query
from placement.web.answers import Answer
from placement.web.context import RequestContext

Handler = Callable[[webob.Request, RequestContext], webob.Response]

JSON = 'application/json'

#: A schema, or one for each window of microversions, newest first; None for no body.
Described = Schema | Windows | None
#: The answers that succeed, by status, or these for each window of microversions.
Gives = Mapping[int, Described] | tuple[tuple[tuple[int, int], Mapping[int, Described]], ...]


class Request(webob.Request):
    """A request whose body stays in memory. It is bounded, and WebOb does not close the file it would use instead."""

    request_body_tempfile_limit = sys.maxsize


# Checks -----------------------------------------------------------------------------------------------------


class Check(Protocol):
    """One condition on a request."""

    def __call__(self, req: webob.Request) -> None:
        """Return if the request meets the condition; raise the HTTP error that says it does not."""


@dataclasses.dataclass(frozen=True)
class Since:
    """The microversion is one in which the operation exists: ``first`` to ``last``, both included; no last is no end.

    Otherwise the answer has the status ``otherwise``.
    """

    first: str
    last: str | None = None
    otherwise: int = exc.HTTPNotFound.code

    def __call__(self, req: webob.Request) -> None:
        if not self.includes(microversion.wanted(req)):
            raise exc.status_map[self.otherwise]

    def includes(self, version: microversion_parse.Version) -> bool:
        """Whether the operation exists in ``version``."""
        return self._first <= version <= self._last

    @functools.cached_property
    def _first(self) -> microversion_parse.Version:
        return microversion.parse_version_string(self.first)

    @functools.cached_property
    def _last(self) -> microversion_parse.Version:
        return microversion.parse_version_string(self.last or microversion.max_version_string())


@dataclasses.dataclass(frozen=True)
class Reads:
    """The body is of ``media_type``; else 415. The handler judges whether it satisfies ``schema``."""

    media_type: str
    schema: Described = None

    def __call__(self, req: webob.Request) -> None:
        sent = req.environ.get('CONTENT_TYPE', '').partition(';')[0].strip() or None
        if sent != self.media_type:
            raise exc.HTTPUnsupportedMediaType(f'The media type {sent} is not supported, use {self.media_type}')


@dataclasses.dataclass(frozen=True)
class Accepts:
    """An answer of ``media_type`` is acceptable; else 406."""

    media_type: str

    def __call__(self, req: webob.Request) -> None:
        # The common cases need not be parsed.
        if req.environ.get('HTTP_ACCEPT') not in (self.media_type, None, '*/*') and not req.accept.acceptable_offers(
            [self.media_type]
        ):
            raise exc.HTTPNotAcceptable(f'Only {self.media_type} is provided')


@dataclasses.dataclass(frozen=True)
class Allowed:
    """The caller may do what the policy rule ``rule`` stands for; else 403."""

    rule: str

    def __call__(self, req: webob.Request) -> None:
        req.environ[context.ENVIRON_KEY].can(self.rule)


# Operations -------------------------------------------------------------------------------------------------


class Operation:
    """A handler as a WSGI application that makes ``checks`` first and tells failures as HTTP errors.

    :param failures: how this operation tells failures where it differs from the general rules; the first match counts.
        Their texts may mention the variables of the path.
    :param query: what the query string may hold; None for anything, which is not looked at.
    :param gives: the answers when all is well.
    """

    def __init__(
        self,
        handler: Handler,
        checks: Iterable[Check],
        failures: Iterable[Answer] = (),
        query: Described = None,
        gives: Gives | None = None,
    ) -> None:
        self.handler = handler
        self.checks = tuple(checks)
        self.failures = tuple(failures)
        self.query = query
        self.gives = gives or {}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request."""
        try:
            response = self._answer(Request(environ))
        except exc.HTTPException as error:
            response = error_document.response_for(error, environ)
        return response(environ, start_response)

    def _answer(self, req: webob.Request) -> webob.Response:
        for check in self.checks:
            check(req)
        try:
            return self.handler(req, req.environ[context.ENVIRON_KEY])
        except (exception.PlacementError, query.BadQuery) as error:
            told = answers.http_error(error, self.failures, req.environ['wsgiorg.routing_args'][1])
            if told is None:
                raise
            raise told from error

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Itself, as ``Versions`` has those it stands for."""
        return (self,)

    @property
    def window(self) -> Since:
        """The microversions in which the operation exists."""
        return next((check for check in self.checks if isinstance(check, Since)), Since('1.0'))


class Versions:
    """A WSGI application that stands for several operations, of which each exists in microversions of its own.

    :param operations: oldest first. A request outside of all windows gets the error of the last one.
    :raises ValueError: two windows overlap.
    """

    def __init__(self, *operations: Operation) -> None:
        for version in map(microversion.parse_version_string, microversion.VERSIONS):
            if sum(one.window.includes(version) for one in operations) > 1:
                raise ValueError(f'Two operations exist in {version}.')
        self.operations = operations

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Have the operation of the wanted microversion answer."""
        version = environ[microversion.ENVIRON_KEY]
        chosen = next((one for one in self.operations if one.window.includes(version)), self.operations[-1])
        return chosen(environ, start_response)


def operation(
    *checks: Check, failures: Iterable[Answer] = (), query: Described = None, gives: Gives | None = None
) -> Callable[[Handler], Operation]:
    """Decorate a handler, which is called with the request and its context when all ``checks`` have passed.

    The other parameters are those of ``Operation``. What ``Reads``, ``query`` and ``gives`` say of bodies is for the
    OpenAPI document (``placement.openapi``), which tests hold against the service.
    """

    def decorate(handler: Handler) -> Operation:
        return Operation(handler, checks, failures, query, gives)

    return decorate
