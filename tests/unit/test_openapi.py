"""The OpenAPI documents are complete and agree with what the handlers use."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

from placement import handler, openapi, schemas
from placement.web import microversion
from placement.web.operation import Consumes, Operation, Produces

VERSIONS = [microversion.parse_version_string(text) for text in microversion.VERSIONS]
OPERATIONS = [
    (path, method, one)
    for path, methods in handler.ROUTE_DECLARATIONS.items()
    for method, declared in methods.items()
    for one in declared.operations
]


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_every_operation_of_a_microversion_is_described(version: Any) -> None:
    paths = openapi.document(version)['paths']
    described = {(path, method.upper()) for path, methods in paths.items() for method in methods}
    assert described == {(path, method) for path, method, one in OPERATIONS if one.window.includes(version)}


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
    names = [one['operationId'] for methods in document['paths'].values() for one in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize('one', [one for _, _, one in OPERATIONS], ids=lambda one: one.handler.__name__)
def test_what_an_operation_declares_is_what_its_handler_uses(one: Operation) -> None:
    source = inspect.getsource(one.handler)
    declaration, _, body = source.partition('\ndef ')
    declared = set(re.findall(r'\bschema\.[A-Z_]+', declaration))
    # The query for candidates is parsed in its own module, and the filters of the list of providers in a function.
    if one.handler.__name__ not in ('list_allocation_candidates', 'list_resource_providers'):
        used = set(re.findall(r'\bschema\.[A-Z_]+', body)) - {'schema.CUSTOM_TRAIT_NAME'}
        in_path = {'schema.CUSTOM_CLASS'} if 'wsgi_path_item' in body and 'Produces' not in declaration else set()
        assert declared == used - in_path
    for check in one.checks:
        if isinstance(check, Produces):
            assert check.schema is not None
    assert one.responses
    if any(isinstance(check, Consumes) for check in one.checks):
        assert isinstance(one.responses, dict)
        assert None not in one.responses.values()


def test_operations_have_tags_and_names_for_generators() -> None:
    document = openapi.document(VERSIONS[-1])
    operations = [one for methods in document['paths'].values() for one in methods.values()]
    assert {tag for one in operations for tag in one['tags']} == {tag['name'] for tag in document['tags']}
    assert {one['operationId'] for one in operations if one['tags'] == ['allocations']} == {
        'list_consumer_allocations',
        'replace_consumer_allocations',
        'delete_consumer_allocations',
        'list_resource_provider_allocations',
        'set_allocations',
    }
    handlers = {one.handler.__name__ for _, _, one in OPERATIONS}
    assert set(openapi._OPERATION_IDS) <= handlers


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
