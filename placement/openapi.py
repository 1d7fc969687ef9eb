"""The API as an OpenAPI 3.1 document, one for each microversion, made from the declarations of its operations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import microversion_parse

from placement import handler, schemas
from placement.schemas import allocation_candidate
from placement.schemas import responses as response_schemas
from placement.validation import for_version
from placement.web import microversion
from placement.web.operation import Described, JsonBody, Operation

Document = dict[str, Any]

_JSON = 'application/json'
_DIALECT = 'http://json-schema.org/draft-07/schema#'
#: The description of each status with which an operation may fail.
_FAILURES = {
    400: 'The request is malformed or invalid.',
    401: 'The request has no valid token.',
    403: 'The policy does not allow the operation.',
    404: 'The resource in the path does not exist.',
    406: 'The microversion is not served, or the client does not accept application/json.',
    409: 'The resource is in use, or was changed concurrently.',
    413: 'The body is too long.',
    415: 'The body has a media type that the operation does not read.',
    503: 'The database or the identity service is unavailable; retry later.',
}
_VARIABLES: dict[str, schemas.Schema] = {
    'uuid': {'type': 'string', 'format': 'uuid'},
    'consumer_uuid': {'type': 'string', 'format': 'uuid'},
}
_TEXT: schemas.Schema = {'type': 'string', 'minLength': 1}
_MICROVERSION: Document = {
    'name': microversion.HEADER,
    'in': 'header',
    'required': True,
    'schema': {'$ref': '#/components/schemas/Microversion'},
}
#: Schemas that several others contain, by their names in the document.
_PARTS: dict[str, Described] = {
    'Links': response_schemas.LINKS,
    'ResourceClass': response_schemas.RESOURCE_CLASS,
    'ResourceProvider': response_schemas.PROVIDER,
}


def document(version: microversion_parse.Version) -> Document:
    """Build the OpenAPI document of one microversion.

    :param version: one of ``microversion.VERSIONS``, parsed.
    """
    paths = {
        path: {
            method.lower(): _operation(path, method, operation, version)
            for method, declared in methods.items()
            for operation in declared.operations
            if operation.window.includes(version)
        }
        for path, methods in handler.ROUTE_DECLARATIONS.items()
    }
    named: dict[str, schemas.Schema] = {
        'Error': _error(version),
        'Microversion': {'type': 'string', 'enum': [f'placement {version}']},
    }
    for operations in paths.values():
        for operation in operations.values():
            _name_schemas(operation, named)
    parts = {name: schema for name, part in _PARTS.items() if (schema := _for_version(part, version)) is not None}
    named |= parts
    as_text = {'schema': {'type': 'string'}}
    error_content = {
        _JSON: {'schema': {'$ref': '#/components/schemas/Error'}},
        'text/html': as_text,
        'text/plain': as_text,
    }
    return {
        'openapi': '3.1.0',
        'jsonSchemaDialect': _DIALECT,
        'info': {
            'title': 'Placement',
            'version': str(version),
            'description': f'The Placement API at microversion {version}. Rules: api-ref/.',
            'license': {'name': 'Apache 2.0', 'identifier': 'Apache-2.0'},
        },
        'tags': [{'name': tag} for tag in sorted({_tag(path) for path, operations in paths.items() if operations})],
        'paths': {path: operations for path, operations in paths.items() if operations},
        'components': {
            'securitySchemes': {'token': {'type': 'apiKey', 'in': 'header', 'name': 'X-Auth-Token'}},
            'parameters': {'Microversion': _MICROVERSION},
            'schemas': {
                name: _referring(schema, {part: parts[part] for part in parts if part != name})
                for name, schema in named.items()
            },
            'responses': {
                f'Failure{status}': {'description': text, 'content': error_content}
                for status, text in _FAILURES.items()
            },
        },
    }


def _operation(path: str, method: str, operation: Operation, version: microversion_parse.Version) -> Document:
    failures = _failures(path, method, operation)
    # PUT creates only custom traits and classes; GET finds any or none.
    is_custom = method == 'PUT' and path in ('/traits/{name}', '/resource_classes/{name}')
    variables = {
        name: _portable(schemas.CUSTOM_NAME, version) if is_custom else _VARIABLES.get(name, _TEXT)
        for name in re.findall('{(.+?)}', path)
    }
    description: Document = {
        # Generators of client code name their functions after it.
        'operationId': operation.handler.__name__,
        'tags': [_tag(path)],
        'summary': operation.summary,
        'parameters': [
            {'$ref': '#/components/parameters/Microversion'},
            *({'name': name, 'in': 'path', 'required': True, 'schema': form} for name, form in variables.items()),
            *_query(operation, version),
        ],
        'responses': {
            **dict(_responses(operation, version)),
            **{str(status): {'$ref': f'#/components/responses/Failure{status}'} for status in failures},
        },
        'security': [{'token': []}] if operation.policy else [],
    }
    for check in operation.checks:
        if isinstance(check, JsonBody):
            schema = _for_version(check.schema, version)
            description['requestBody'] = {'required': True, 'content': {_JSON: {'schema': schema}}}
    return description


def _tag(path: str) -> str:
    """Return the kind of resource that a path is about: its last part that is not a variable."""
    return next((part for part in reversed(path.split('/')) if part and part[0] != '{'), 'versions')


def _name_schemas(operation: Document, named: dict[str, schemas.Schema]) -> None:
    """Move the schemas of an operation's bodies to ``named``, and leave references to them in ``operation``."""
    name = ''.join(word.capitalize() for word in operation['operationId'].split('_'))
    bodies = {f'{name}Request': operation.get('requestBody', {})}
    bodies |= {f'{name}Response': body for status, body in operation['responses'].items() if status < '300'}
    for of_body, body in bodies.items():
        for media_type in body.get('content', {}).values():
            if schema := media_type['schema']:
                named[of_body] = schema
                media_type['schema'] = {'$ref': f'#/components/schemas/{of_body}'}


def _referring(value: Any, parts: Mapping[str, Any]) -> Any:
    """Return ``value`` with a reference in place of each schema that equals one of ``parts``."""
    for name, part in parts.items():
        if value == part:
            return {'$ref': f'#/components/schemas/{name}'}
    if isinstance(value, dict):
        return {key: _referring(member, parts) for key, member in value.items()}
    return [_referring(item, parts) for item in value] if isinstance(value, list) else value


def _query(operation: Operation, version: microversion_parse.Version) -> Iterator[Document]:
    """Yield the query parameters. Those of suffixed request groups are described together, as one object."""
    if operation.query is allocation_candidate.GET:
        for parameter in allocation_candidate.PARAMETERS:
            if version >= parameter.since:
                schema = _portable(parameter.schema, version)
                # A client that has only suffixed groups is rare, and generators need a parameter that is required.
                yield _query_parameter(parameter.name, schema, required=parameter.name == 'resources')
        if pattern := allocation_candidate.suffixed_keys(version):
            keys = {'type': 'string', 'pattern': pattern}
            groups = {'type': 'object', 'propertyNames': keys, 'additionalProperties': schemas.SYNTAX}
            yield {**_query_parameter('suffixed_groups', _portable(groups, version)), 'style': 'form', 'explode': True}
        return
    declared = _for_version(operation.query, version) or {}
    for name, member in declared.get('properties', {}).items():
        yield _query_parameter(name, member, required=name in declared.get('required', ()))


def _query_parameter(name: str, schema: schemas.Schema, *, required: bool = False) -> Document:
    return {'name': name, 'in': 'query', 'required': required, 'schema': schema}


def _responses(operation: Operation, version: microversion_parse.Version) -> Iterator[tuple[str, Document]]:
    """Yield the status and the description of each successful response."""
    responses = operation.responses
    if isinstance(responses, tuple):
        responses = next(of_window for since, of_window in responses if version >= since)
    for status, schema in responses.items():
        body = _for_version(schema, version)
        if body is None:
            yield str(status), {'description': 'Done; there is no body.'}
        else:
            yield str(status), {'description': 'Done.', 'content': {_JSON: {'schema': body}}}


def _failures(path: str, method: str, operation: Operation) -> Iterator[int]:
    """Yield the statuses with which an operation may fail."""
    yield 400
    if operation.policy:
        yield from (401, 403)
    if '{' in path:
        yield 404
    # Any request may name a microversion that is not served.
    yield 406
    if method != 'GET':
        yield from (409, 413)
    if any(isinstance(check, JsonBody) for check in operation.checks):
        yield 415
    yield 503


def _error(version: microversion_parse.Version) -> schemas.Schema:
    """Return the schema of the error document of api-ref/errors.md."""
    text = {'type': 'string'}
    members: dict[str, Any] = {'status': {'type': 'integer'}, 'title': text, 'detail': text, 'request_id': text}
    if version >= (1, 23):
        members['code'] = text
    # ``code`` is not required, because errors found before the microversion is negotiated have none. An error may have
    # more members: the 406 for an unknown microversion also has min_version and max_version.
    required = ['status', 'title', 'detail', 'request_id']
    error = {'type': 'object', 'properties': members, 'required': required}
    errors = {'type': 'array', 'items': error, 'minItems': 1, 'maxItems': 1}
    return {'type': 'object', 'properties': {'errors': errors}, 'required': ['errors'], 'additionalProperties': False}


def _for_version(described: Described, version: microversion_parse.Version) -> schemas.Schema | None:
    """Return the schema of a microversion, with patterns in the syntax of ECMA-262; None if there is no schema."""
    if isinstance(described, tuple):
        described = for_version(described, version)
    return described and _portable(described, version)


def _portable(value: Any, version: microversion_parse.Version) -> Any:
    r"""Return ``value`` as generators of clients need it, with the keywords that only the document has.

    The ``\Z`` of Python's patterns is ``$`` in ECMA-262. A map with a pattern of its keys has ``propertyNames`` and
    ``additionalProperties``, because generators ignore ``patternProperties``, and would drop all its members.
    """
    if isinstance(value, list):
        return [_portable(item, version) for item in value]
    if not isinstance(value, dict):
        return value.replace(r'\Z', '$') if isinstance(value, str) else value
    documented = value.get(schemas.DOCUMENTED, {})
    schema = {**value, **(for_version(documented, version) if isinstance(documented, tuple) else documented)}
    schema.pop(schemas.DOCUMENTED, None)
    keys = schema.pop(schemas.DOCUMENTED_KEYS, None)
    if 'patternProperties' in schema:
        ((pattern, schema['additionalProperties']),) = schema.pop('patternProperties').items()
        keys = keys or {'type': 'string', 'pattern': pattern}
    if keys:
        schema = {'propertyNames': keys, **schema}
    return {key: _portable(member, version) for key, member in schema.items()}
