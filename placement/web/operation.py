"""An operation: the handler of one method of one path, with the checks that a request must pass first; the dispatcher.

The checks are made in the order in which the operation lists them; `api-ref/operations.md` has a table of all.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import microversion_parse
import routes
from oslo_log import log
from webob import Request, Response, exc

from placement import exception
from placement.schemas import Schema, Version, Windows
from placement.validation import Validator, for_version
from placement.web import error_responses, http, microversion
from placement.web.authentication import ENVIRON_KEY, RequestContext
from placement.web.error_responses import ErrorMapping

LOG = log.getLogger(__name__)

#: Called with the request, its context, the body or the query string if the operation reads one, and the variables of
#: the path by name.
Handler = Callable[..., Response]

#: A condition on a request: raises an HTTP error if the request does not satisfy it.
RequestCheck = Callable[[Request], None]

JSON = 'application/json'

#: A schema, or one for each window of microversions; None for no body.
Described = Schema | Windows | None
#: The body schemas of successful responses by status, or such a mapping for each window, newest first.
Responses = Mapping[int, Described] | tuple[tuple[tuple[int, int], Mapping[int, Described]], ...]


@dataclasses.dataclass(frozen=True)
class Microversions:
    """The operation exists from microversion ``first`` to ``last``, or from ``first`` on if ``last`` is missing.

    At other microversions the response has the status ``otherwise``.
    """

    first: Version
    last: Version | None = None
    otherwise: int = exc.HTTPNotFound.code

    def __call__(self, req: Request) -> None:
        if not self.includes(microversion.requested(req)):
            raise exc.status_map[self.otherwise]

    def includes(self, version: Version) -> bool:
        """Return whether the operation exists in ``version``."""
        return self.first <= version and (self.last is None or version <= self.last)


@dataclasses.dataclass(frozen=True)
class JsonBody:
    """The Content-Type of the request has to be ``application/json`` (or 415). ``schema`` validates the body."""

    schema: Described = None

    def __call__(self, req: Request) -> None:
        sent = req.environ.get('CONTENT_TYPE', '').partition(';')[0].strip() or None
        if sent != JSON:
            raise exc.HTTPUnsupportedMediaType(f'The media type {sent} is not supported, use {JSON}')


def accepts_json(req: Request) -> None:
    """Check that the Accept header of the request allows JSON (or 406)."""
    # Parsing the header takes time, so common values are compared first. An empty list excludes nothing.
    is_common = req.environ.get('HTTP_ACCEPT') in (JSON, None, '*/*')
    if not is_common and req.accept.parsed and not req.accept.acceptable_offers([JSON]):
        raise exc.HTTPNotAcceptable(f'Only {JSON} is provided')


@dataclasses.dataclass(frozen=True)
class RequiresPolicy:
    """The policy rule ``rule`` has to allow the operation (or 403).

    ``target`` reads the attributes of the rule's target from the request. None stands for the caller's own project and
    user. ``default`` is what the rule says unless the policy file overrides it.
    """

    rule: str
    target: Callable[[Request], Mapping[str, Any]] | None = None
    default: str = 'rule:admin_or_service_api'

    def __call__(self, req: Request) -> None:
        caller: RequestContext = req.environ[ENVIRON_KEY]
        attributes = {'project_id': caller.project_id, 'user_id': caller.user_id}
        if not caller.policy.allows(self.rule, attributes if self.target is None else self.target(req), caller):
            raise exception.PolicyNotAuthorized(action=self.rule)


def _validators(described: Described) -> tuple[tuple[Version, Validator], ...]:
    """Return a validator for each window; none if there is no schema."""
    windows = (((1, 0), described),) if isinstance(described, dict) else described or ()
    return tuple((since, Validator(schema)) for since, schema in windows)


class _Request(Request):
    """A request whose body stays in memory. Its size is limited, and WebOb would not close a temporary file."""

    request_body_tempfile_limit = sys.maxsize


class Operation:
    """A WSGI application that makes the checks, calls the handler, and turns exceptions into HTTP errors.

    :param checks: the checks in their order. The first one that fails determines the response.
    :param failures: rules for the exceptions of this operation. They come before the general rules, and the first match
        counts. Their texts may contain the variables of the path.
    :param query: the schema of the query string; None if the operation does not read it.
    :param query_parser: reads and validates the query string for the handler, at a microversion. By default the handler
        gets a MultiDict that satisfies ``query``.
    :param path_error: raises the error about the variables of the path, if there is one. It is called if the body is
        invalid, so that the error about the path is reported first. If the body is valid, the handler itself finds this
        error.
    :param responses: the schemas of the successful responses, for the OpenAPI document.
    """

    def __init__(
        self,
        handler: Handler,
        checks: Iterable[RequestCheck],
        failures: Iterable[ErrorMapping] = (),
        query: Described = None,
        responses: Responses | None = None,
        query_parser: Callable[[str, microversion_parse.Version], Any] | None = None,
        path_error: Callable[[RequestContext, Mapping[str, str]], None] | None = None,
    ) -> None:
        self.handler = handler
        self.checks = tuple(checks)
        self.failures = tuple(failures)
        self.query = query
        self.responses = responses or {}
        #: The first line of the handler's docstring, for the OpenAPI document and the sample of the policy file.
        self.summary = (handler.__doc__ or '').partition('\n')[0]
        self.policy = next((check for check in self.checks if isinstance(check, RequiresPolicy)), None)
        self.body = next((check.schema for check in self.checks if isinstance(check, JsonBody)), None)
        self._query, self._body = _validators(query), _validators(self.body)
        self._query_parser = query_parser
        self._path_error = path_error

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        req, variables = _Request(environ), environ['wsgiorg.routing_args'][1]
        try:
            for check in self.checks:
                check(req)
            response = self.handler(req, environ[ENVIRON_KEY], *self._read(req, variables), **variables)
        except exception.PlacementError as error:
            http_error = error_responses.http_error(error, self.failures, variables)
            if http_error is None:
                raise
            if http_error.code == exc.HTTPConflict.code:
                # It may have thousands of names of the body.
                LOG.info('Conflict: %.2048s', error.for_operators)
            try:
                raise http_error from error
            finally:
                # The error refers to this call by its traceback. If this variable also kept the error, the request
                # would stay in memory until the garbage collector finds the cycle.
                del http_error
        return response(environ, start_response)

    def _read(self, req: Request, variables: Mapping[str, str]) -> tuple[Any, ...]:
        """Return the validated body or query string, if the operation reads one."""
        version = microversion.requested(req)
        if self._query_parser is not None:
            return (self._query_parser(req.environ.get('QUERY_STRING', ''), version),)
        if self._query:
            return (http.query_params(req, for_version(self._query, version)),)
        if not self._body:
            return ()
        try:
            body = req.body
        except OSError as error:  # Of WebOb, if the body has ended, or of the WSGI server, if the connection broke.
            raise exc.HTTPBadRequest('The request body is shorter than its content-length header says.') from error
        try:
            return (http.validated_json(body, for_version(self._body, version)),)
        except exc.HTTPBadRequest:
            if self._path_error is not None:
                self._path_error(req.environ[ENVIRON_KEY], variables)
            raise

    @property
    def operations(self) -> tuple[Operation, ...]:
        """This operation alone. ``ByMicroversion`` has the same attribute with several."""
        return (self,)

    @property
    def window(self) -> Microversions:
        """The microversions in which the operation exists."""
        return next((check for check in self.checks if isinstance(check, Microversions)), Microversions((1, 0)))


class ByMicroversion:
    """A WSGI application that chooses between operations on the same path and method by microversion.

    :param operations: the operations, oldest first. If none exists at a microversion, the last one responds.
    :raises ValueError: two operations exist at the same microversion.
    """

    def __init__(self, *operations: Operation) -> None:
        for version in map(microversion.parse_version_string, microversion.VERSIONS):
            if sum(operation.window.includes(version) for operation in operations) > 1:
                raise ValueError(f'Two operations exist in {version}.')
        self.operations = operations

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request to the operation that exists at its microversion."""
        version = environ[microversion.ENVIRON_KEY]
        existing = (operation for operation in self.operations if operation.window.includes(version))
        return next(existing, self.operations[-1])(environ, start_response)


#: The operations by path and method.
Declarations = Mapping[str, Mapping[str, Operation | ByMicroversion]]


class Dispatcher:
    """WSGI application that passes each request to its operation (api-ref/rules.md#paths-and-methods).

    It stores the declared path in ``environ['placement.route']`` and the variables of the path, decoded, in
    ``environ['wsgiorg.routing_args']``.
    """

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations
        self._mapper = routes.Mapper(controller_scan=None, explicit=True)
        for path in declarations:
            # By default a variable does not match a newline at the end.
            self._mapper.connect(None, path.replace('}', ':[^/]+}'), route=path)
        self._mapper.create_regs([])

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on.

        :raises HTTPNotFound: the path is not declared, or has an encoded slash, which is indistinguishable from a
            separator once decoded.
        :raises HTTPMethodNotAllowed: the path is declared, but not with this method.
        """
        raw = environ.get('RAW_URI') or environ.get('REQUEST_URI') or ''
        if '%2f' in raw.partition('?')[0].lower():
            raise exc.HTTPNotFound
        # No stored name contains the replacement character, so a path with NUL or invalid UTF-8 finds nothing.
        path = environ.get('PATH_INFO', '').encode('latin-1', 'replace').decode(errors='replace')
        path = path.replace('\0', '\N{REPLACEMENT CHARACTER}') or '/'
        variables = self._mapper.match(path)
        # Routes also accepts a trailing slash or newline. The route filled in with its variables must equal the path.
        if not variables or (route := variables.pop('route')).format(**variables) != path:
            raise exc.HTTPNotFound
        environ['placement.route'] = route
        methods = self._declarations[route]
        if environ['REQUEST_METHOD'] not in methods:
            raise exc.HTTPMethodNotAllowed(headers={'Allow': ', '.join(methods)})
        environ['wsgiorg.routing_args'] = ((), variables)
        return methods[environ['REQUEST_METHOD']](environ, start_response)


def operation(*checks: RequestCheck, **declarations: Any) -> Callable[[Handler], Operation]:
    """Make an operation of a ``Handler``, which is called after the ``checks``.

    :param declarations: the other parameters of ``Operation``. The OpenAPI document (``placement.openapi``) shows the
        schemas in ``JsonBody``, ``query`` and ``responses``.
    """
    return functools.partial(Operation, checks=checks, **declarations)
