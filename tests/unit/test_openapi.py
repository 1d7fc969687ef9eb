"""The OpenAPI documents are complete and agree with what the handlers use."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import handler, openapi
from placement.exception import BadQuery
from placement.search import parsing
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
    for schema in (*_schemas(document), *document['components']['schemas'].values()):
        jsonschema.Draft7Validator.check_schema(schema)
    assert r'\\Z' not in text
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', text):
        place = document
        for part in reference.split('/'):
            place = place[part]
    names = [operation['operationId'] for methods in document['paths'].values() for operation in methods.values()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize('version', VERSIONS, ids=str)
def test_generators_understand_maps_and_query_parameters(version: Any) -> None:
    """They ignore ``patternProperties``, and a client that drops the members of a map releases what it should claim."""
    document = openapi.document(version)
    text = json.dumps(document)
    assert 'patternProperties' not in text
    assert 'x-documented' not in text
    search = document['paths'].get('/allocation_candidates', {}).get('get')
    if search:
        # An empty value is never valid.
        schemas = [parameter['schema'] for parameter in search['parameters'][1:]]
        assert all(schema.keys() & {'minLength', 'pattern', 'enum', 'propertyNames', 'minItems'} for schema in schemas)
        required = {parameter['name']: parameter['required'] for parameter in search['parameters'][1:]}
        assert required.pop('resources')
        assert not any(required.values())
        assert ('suffixed_groups' in required) == (version >= (1, 25))


def _body(operation: str, version: str = '1.29') -> Any:
    return openapi.document(microversion.parse_version_string(version))['components']['schemas'][f'{operation}Request']


def test_the_document_has_the_rules_that_handlers_check() -> None:
    map_of_claim = _body('ReplaceConsumerAllocations')['properties']['allocations']
    assert map_of_claim['propertyNames'] == {'type': 'string', 'format': 'uuid'}
    amounts = map_of_claim['additionalProperties']['properties']['resources']
    assert amounts['propertyNames'] == {'type': 'string', 'pattern': '^[A-Z0-9_]+$'}
    assert amounts['additionalProperties'] == {'type': 'integer', 'minimum': 1}
    assert _body('CreateResourceProvider')['properties']['name']['minLength'] == 1
    inventories = _body('ReplaceResourceProviderInventories')['properties']['inventories']
    assert inventories['propertyNames']['pattern'] == '^[A-Z0-9_]+$'
    assert inventories['additionalProperties']['properties']['allocation_ratio']['minimum'] == 0
    paths = openapi.document(microversion.parse_version_string('1.29'))['paths']
    for path, method, pattern in (
        ('/traits/{name}', 'put', '^CUSTOM_[A-Z0-9_]+$'),
        ('/resource_classes/{name}', 'put', '^CUSTOM_[A-Z0-9_]+$'),
        ('/resource_classes/{name}', 'get', None),
    ):
        assert paths[path][method]['parameters'][1]['schema'].get('pattern') == pattern


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


UUID = '7a8f6a1e-52b5-4f8e-9a3c-0d7a1a0b9c01'
NEWEST = VERSIONS[-1][1]
#: Before and after each change of what the parameters may contain.
MINORS_OF_SYNTAX = (21, 22, 24, 29, 31, 32, 38, NEWEST)


def _parse(parameter: str, value: str, minor: int) -> None:
    """Read a value with the parser of the parameter."""
    if parameter == 'root_required':
        parsing.parse_traits(value)
    elif read_all := parsing.GROUP_READERS[parameter].read_all:
        read_all([value], (1, minor), '')
    elif read_value := parsing.GROUP_READERS[parameter].read_value:
        read_value(value)


@functools.cache
def _patterns(minor: int) -> list[tuple[str, str]]:
    """Return the names and the patterns of the parameters of searches and of lists of providers."""
    paths = openapi.document(microversion.parse_version_string(f'1.{minor}'))['paths']
    return [
        (parameter['name'], parameter['schema'].get('items', parameter['schema'])['pattern'])
        for path in ('/allocation_candidates', '/resource_providers')
        for parameter in paths[path]['get']['parameters'][1:]
        # The schema checks ``limit``, and parsers all the others that have a pattern.
        if parameter['name'] != 'limit' and 'pattern' in parameter['schema'].get('items', parameter['schema'])
    ]


@pytest.mark.parametrize('minor', MINORS_OF_SYNTAX)
@given(st.data())
def test_the_service_accepts_what_matches_the_patterns(minor: int, data: st.DataObject) -> None:
    name, pattern = data.draw(st.sampled_from(_patterns(minor)))
    _parse(name, data.draw(st.from_regex(pattern, fullmatch=True)), minor)


@pytest.mark.parametrize(
    ('name', 'since', 'until', 'valid', 'invalid'),
    [
        ('resources', 21, NEWEST, ['VCPU:2', 'VCPU:2,CUSTOM_A:10'], ['', '0', 'VCPU', 'VCPU:1,', 'VCPU:1:1']),
        ('resources', 21, NEWEST, ['VCPU:01', 'VCPU: +1 '], ['VCPU:0', 'VCPU:00', 'VCPU:-1']),
        ('required', 21, NEWEST, ['A', 'A,B_2', ' A , B '], ['', ' ', 'A,', ',A', '!']),
        ('required', 21, 21, [], ['!A', 'A,!B', '!in:A']),
        ('required', 22, NEWEST, ['!A', 'A,!B', '!A, !B'], ['A,!']),
        ('required', 30, 38, [], ['in:A', 'in:A,B']),
        ('required', 39, NEWEST, ['in:A', 'in:A, B', 'in: A'], ['in:', 'in:!A', 'in:A,!B', 'in:A,', 'in:,A']),
        ('root_required', 35, NEWEST, ['A', 'A, !B'], ['', 'A,', '!', 'in:A', 'in:A,B']),
        ('member_of', 21, NEWEST, [UUID, UUID.upper(), UUID.replace('-', '')], ['', '0', '-' * 36, f'{UUID},{UUID}']),
        ('member_of', 21, NEWEST, [f'in:{UUID}', f'in:{UUID},{UUID}'], ['in:', f'in:{UUID},', f'in:{UUID}, {UUID}']),
        ('member_of', 21, 31, [], [f'!{UUID}', f'!in:{UUID}']),
        ('member_of', 32, NEWEST, [f'!{UUID}', f'!in:{UUID},{UUID}'], [f'!{UUID},{UUID}', '!', f'!!{UUID}']),
    ],
)
def test_the_patterns_follow_from_the_microversion(
    name: str, since: int, until: int, valid: list[str], invalid: list[str]
) -> None:
    """Generators of requests sent values that the document admitted and the service rejects."""
    for minor in range(since, until + 1):
        patterns = [pattern for parameter, pattern in _patterns(minor) if parameter == name]
        assert patterns
        for pattern in patterns:
            assert [value for value in valid if not re.search(pattern, value)] == []
            assert [value for value in invalid if re.search(pattern, value)] == []
        for value in valid:
            _parse(name, value, minor)
        for value in invalid:
            with pytest.raises(BadQuery):
                _parse(name, value, minor)


def test_parameters_of_which_all_values_count_are_arrays() -> None:
    for minor in range(21, NEWEST + 1):
        expected = {name for name, since in {'member_of': 24, 'required': 39}.items() if minor >= since}
        paths = openapi.document(microversion.parse_version_string(f'1.{minor}'))['paths']
        for path, others in (('/resource_providers', set()), ('/allocation_candidates', {'same_subtree'})):
            parameters = paths[path]['get']['parameters'][1:]
            arrays = {item['name'] for item in parameters if item['schema'].get('type') == 'array'}
            assert arrays == expected | (others if minor >= 36 else set())
