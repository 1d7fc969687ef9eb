"""The API as an OpenAPI 3.1 document, one for each microversion, made from the declarations of its operations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import microversion_parse

from placement import handler, schemas
from placement.web import microversion
from placement.web.operation import Allowed, Described, Operation, Reads

Document = dict[str, Any]

_JSON = 'application/json'
_DIALECT = 'http://json-schema.org/draft-07/schema#'
#: What is said of statuses that any operation may have, and of those that depend on its declaration.
_FAILURES = {
    400: 'The request makes no sense.',
    401: 'There is no valid token.',
    403: 'The policy does not allow it.',
    404: 'There is no such thing.',
    406: 'The microversion, or the media type of the answer, is none of those served.',
    409: 'It is in use, or something changed meanwhile.',
    413: 'The body is too long.',
    415: 'The body is not of the media type that is read.',
    503: 'The database or the identity service is away; try again.',
}
_VARIABLES: dict[str, schemas.Schema] = {
    'uuid': {'type': 'string', 'format': 'uuid'},
    'consumer_uuid': {'type': 'string', 'format': 'uuid'},
}


def document(version: microversion_parse.Version) -> Document:
    """The document of one microversion.

    :param version: one of ``microversion.VERSIONS``.
    """
    paths = {path: dict(_operations(path, version)) for path in handler.ROUTE_DECLARATIONS}
    return {
        'openapi': '3.1.0',
        'jsonSchemaDialect': _DIALECT,
        'info': {
            'title': 'Placement',
            'version': str(version),
            'description': f'The Placement API at microversion {version}. Rules: api-ref/.',
            'license': {'name': 'Apache 2.0', 'identifier': 'Apache-2.0'},
        },
        'paths': {path: operations for path, operations in paths.items() if operations},
        'components': {
            'securitySchemes': {'token': {'type': 'apiKey', 'in': 'header', 'name': 'X-Auth-Token'}},
            'parameters': {'Microversion': _microversion(version)},
            'schemas': {'Error': _error(version)},
            'responses': {f'Failure{status}': _failure(text) for status, text in _FAILURES.items()},
        },
    }


def _operations(path: str, version: microversion_parse.Version) -> Iterator[tuple[str, Document]]:
    """Method and description of each operation of a path that exists in ``version``."""
    for method, declared in handler.ROUTE_DECLARATIONS[path].items():
        for one in declared.operations:
            if one.window.includes(version):
                yield method.lower(), _operation(path, method, one, version)


def _operation(path: str, method: str, one: Operation, version: microversion_parse.Version) -> Document:
    protected = any(isinstance(check, Allowed) for check in one.checks)
    described: Document = {
        'operationId': one.handler.__name__,
        'summary': (one.handler.__doc__ or '').partition('\n')[0],
        'parameters': [{'$ref': '#/components/parameters/Microversion'}, *_variables(path), *_query(one, version)],
        'responses': {
            **{str(status): _success(schema, version) for status, schema in _gives(one, version)},
            **{str(code): {'$ref': f'#/components/responses/Failure{code}'} for code in _failures(path, method, one)},
        },
        'security': [{'token': []}] if protected else [],
    }
    for check in one.checks:
        if isinstance(check, Reads):
            schema = _in_force(check.schema, version)
            described['requestBody'] = {'required': True, 'content': {check.media_type: {'schema': schema}}}
    return described


def _variables(path: str) -> Iterator[Document]:
    for part in path.split('/'):
        if part.startswith('{'):
            name = part.strip('{}')
            schema = _VARIABLES.get(name, {'type': 'string', 'minLength': 1})
            yield {'name': name, 'in': 'path', 'required': True, 'schema': schema}


def _query(one: Operation, version: microversion_parse.Version) -> Iterator[Document]:
    """The parameters of the query string; those whose names are patterns are the members of one object."""
    schema = _in_force(one.query, version)
    if schema is None:
        return
    if 'patternProperties' in schema:
        yield {'name': 'query', 'in': 'query', 'style': 'form', 'explode': True, 'schema': schema}
    for name, member in schema.get('properties', {}).items():
        yield {'name': name, 'in': 'query', 'required': name in schema.get('required', ()), 'schema': member}


def _gives(one: Operation, version: microversion_parse.Version) -> Iterable[tuple[int, Described]]:
    gives = one.gives
    if isinstance(gives, tuple):
        gives = next(given for since, given in gives if version >= since)
    return gives.items()


def _failures(path: str, method: str, one: Operation) -> Iterator[int]:
    """The statuses with which an operation may fail."""
    yield 400
    if any(isinstance(check, Allowed) for check in one.checks):
        yield from (401, 403)
    if '{' in path:
        yield 404
    # Every operation may be asked for a microversion that is not served.
    yield 406
    if method != 'GET':
        yield from (409, 413)
    if any(isinstance(check, Reads) for check in one.checks):
        yield 415
    yield 503


def _success(schema: Described, version: microversion_parse.Version) -> Document:
    body = _in_force(schema, version)
    if body is None:
        return {'description': 'Done; there is no body.'}
    return {'description': 'Done.', 'content': {_JSON: {'schema': body}}}


def _failure(text: str) -> Document:
    as_text = {'schema': {'type': 'string'}}
    content = {_JSON: {'schema': {'$ref': '#/components/schemas/Error'}}, 'text/html': as_text, 'text/plain': as_text}
    return {'description': text, 'content': content}


def _error(version: microversion_parse.Version) -> schemas.Schema:
    """The document of api-ref/errors.md."""
    text = {'type': 'string'}
    members: dict[str, Any] = {'status': {'type': 'integer'}, 'title': text, 'detail': text, 'request_id': text}
    if version >= (1, 23):
        members['code'] = text
    # An answer from before the microversion was known has no code; one to an unknown microversion has two more.
    required = ['status', 'title', 'detail', 'request_id']
    one = {'type': 'object', 'properties': members, 'required': required}
    errors = {'type': 'array', 'items': one, 'minItems': 1, 'maxItems': 1}
    return {'type': 'object', 'properties': {'errors': errors}, 'required': ['errors'], 'additionalProperties': False}


def _microversion(version: microversion_parse.Version) -> Document:
    schema = {'type': 'string', 'enum': [f'placement {version}']}
    return {'name': microversion.HEADER, 'in': 'header', 'required': True, 'schema': schema}


def _in_force(described: Described, version: microversion_parse.Version) -> schemas.Schema | None:
    """The schema of a microversion, as any reader of JSON Schema understands it."""
    schema = schemas.for_version(described, version) if isinstance(described, tuple) else described
    return None if schema is None else _portable(schema)


def _portable(value: Any) -> Any:
    r"""``value`` with the patterns of ECMA-262, which ends with ``$`` what Python ends with ``\Z``."""
    if isinstance(value, dict):
        return {_portable(key): _portable(member) for key, member in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    return value.replace(r'\Z', '$') if isinstance(value, str) else value
