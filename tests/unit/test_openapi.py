"""The OpenAPI documents are complete and agree with what the handlers use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from placement import handler, openapi, schemas
from placement.web import microversion
from placement.web.operation import JsonBody, Operation, accepts_json

VERSIONS = [microversion.parse_version_string(text) for text in microversion.VERSIONS]
OPERATIONS = [
    (path, method, operation)
    for path, methods in handler.ROUTE_DECLARATIONS.items()
    for method, declared in methods.items()
    for operation in declared.operations
]


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_every_operation_of_a_microversion_is_described(version: Any) -> None:
    paths = openapi.document(version)['paths']
    described = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert described == {(path, method) for path, method, operation in OPERATIONS if operation.window.includes(version)}


def _schemas(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if isinstance(value.get('schema'), dict):
            yield value['schema']
        for member in value.values():
            yield from _schemas(member)
    elif isinstance(value, list):
        for member in value:
            yield from _schemas(member)


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_documents_are_json_with_sound_schemas_and_references(version: Any) -> None:
    text = json.dumps(openapi.document(version))
    document = json.loads(text)
    for schema in _schemas(document):
        jsonschema.Draft7Validator.check_schema(schema)
    assert r'\\Z' not in text
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', text):
        place = document
        for part in reference.split('/'):
            place = place[part]
    names = [operation['operationId'] for methods in document['paths'].values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    'operation', [operation for _, _, operation in OPERATIONS], ids=lambda operation: operation.handler.__name__
)
def test_operations_declare_the_schemas_of_their_bodies_and_responses(operation: Operation) -> None:
    for check in operation.checks:
        if isinstance(check, JsonBody):
            assert check.schema is not None
    assert operation.responses
    if accepts_json in operation.checks:
        assert isinstance(operation.responses, dict)
        assert None not in operation.responses.values()


def test_operations_have_tags_and_names_for_generators() -> None:
    document = openapi.document(VERSIONS[-1])
    operations = [operation for methods in document['paths'].values() for operation in methods.values()]
    assert {tag for operation in operations for tag in operation['tags']} == {tag['name'] for tag in document['tags']}
    assert {operation['operationId'] for operation in operations if operation['tags'] == ['allocations']} == {
        'list_consumer_allocations',
        'replace_consumer_allocations',
        'delete_consumer_allocations',
        'list_resource_provider_allocations',
        'set_allocations',
    }


def test_an_answer_has_the_schema_of_its_window() -> None:
    def provider(text: str) -> Any:
        document = openapi.document(microversion.parse_version_string(text))
        return document['paths']['/resource_providers']['post']['responses'], document['components']['schemas']

    assert 'content' not in provider('1.19')[0]['201']
    responses, named = provider('1.20')
    assert responses['200']['content']['application/json'] == {
        'schema': {'$ref': '#/components/schemas/CreateResourceProviderResponse'}
    }
    assert named['CreateResourceProviderResponse'] == {'$ref': '#/components/schemas/ResourceProvider'}
    assert 'root_provider_uuid' in named['ResourceProvider']['properties']
    assert named['ResourceProvider']['properties']['links'] == {'$ref': '#/components/schemas/Links'}
    assert schemas.for_version((((1, 14), {'a': 1}), ((1, 0), {})), (1, 13)) == {}
