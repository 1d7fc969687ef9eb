"""The schemas: what gabbits do not reach, and the limits of inventories and allocations on every route."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import jsonschema
import pytest

from placement import schemas, validation
from placement.schemas import (
    Schema,
    Windows,
    allocation,
    inventory,
    usage,
)

A = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'
B = '7c1f4d1e-0b7a-4f0e-8a3c-6e5b1f2d3c22'

USAGES_1_9 = schemas.for_version(usage.TOTAL, (1, 9))
USAGES_1_38 = schemas.for_version(usage.TOTAL, (1, 38))


def complaints(schema: Schema, value: Any) -> str:
    """The message about a value; empty when it is accepted."""
    try:
        validation.validate(value, schema)
    except validation.ValidationError as error:
        return str(error)
    return ''


MODULES = [importlib.import_module(f'placement.schemas.{info.name}') for info in pkgutil.iter_modules(schemas.__path__)]
ALL_SCHEMAS = {
    f'{module.__name__.rpartition(".")[2]}.{name} {since}': schema
    for module in MODULES
    for name, value in vars(module).items()
    if name[0] != '_' and name.isupper() and isinstance(value, (dict, tuple))
    for since, schema in ([((1, 0), value)] if isinstance(value, dict) else value)
}


@pytest.mark.parametrize('schema', ALL_SCHEMAS.values(), ids=ALL_SCHEMAS.keys())
def test_every_schema_is_a_valid_schema(schema: Schema) -> None:
    jsonschema.Draft7Validator.check_schema(schema)


def test_the_schema_of_the_newest_window_that_has_begun_is_used() -> None:
    windows: Windows = (((1, 14), {'new': True}), ((1, 1), {'old': True}))
    assert schemas.for_version(windows, (1, 29)) == {'new': True}
    assert schemas.for_version(windows, (1, 14)) == {'new': True}
    assert schemas.for_version(windows, (1, 13)) == {'old': True}
    with pytest.raises(LookupError):
        schemas.for_version(windows, (1, 0))


@pytest.mark.parametrize(
    'schema', [pytest.param(schema, id=name) for name, schema in ALL_SCHEMAS.items() if schema['type'] == 'object']
)
def test_a_list_is_no_object(schema: Schema) -> None:
    assert "[] is not of type 'object'" in complaints(schema, [])


# Inventories

RECORD = {'total': 1, 'reserved': 0, 'min_unit': 1, 'max_unit': 1, 'step_size': 1, 'allocation_ratio': 0.5}
MAX = 2147483647


@pytest.mark.parametrize(
    ('change', 'phrase'),
    [
        ({'total': 0}, '0 is less than the minimum of 1'),
        ({'total': MAX + 1}, "Failed validating 'maximum' in schema"),
        ({'reserved': -1}, '-1 is less than the minimum of 0'),
        ({'min_unit': 0}, "Failed validating 'minimum' in schema"),
        ({'max_unit': 0}, "Failed validating 'minimum' in schema"),
        ({'step_size': 0}, "Failed validating 'minimum' in schema"),
        ({'allocation_ratio': 3.5e38}, "Failed validating 'maximum' in schema"),
        ({'allocation_ratio': -(10**400)}, "Failed validating 'minimum' in schema"),
        ({'allocation_ratio': True}, "True is not of type 'number'"),
        ({'total': True}, "True is not of type 'integer'"),
        ({'total': '1'}, "'1' is not of type 'integer'"),
        ({'total': None}, "None is not of type 'integer'"),
        ({'unknown': 1}, 'Additional properties are not allowed'),
    ],
)
def test_inventory_records_that_are_rejected(change: dict[str, Any], phrase: str) -> None:
    record = {**RECORD, **change}
    assert phrase in complaints(inventory.POST_ONE, {**record, 'resource_class': 'VCPU'})
    assert phrase in complaints(inventory.PUT_ONE, {**record, 'resource_provider_generation': 0})
    whole = {'resource_provider_generation': 0, 'inventories': {'VCPU': record}}
    assert phrase in complaints(inventory.PUT_ALL, whole)


def test_the_class_of_a_new_inventory_is_a_text() -> None:
    assert "5 is not of type 'string'" in complaints(inventory.POST_ONE, {'resource_class': 5, 'total': 1})


# Allocations

OWNER = {'project_id': 'p', 'user_id': 'u'}
AS_LIST = [{'resource_provider': {'uuid': A}, 'resources': {'VCPU': 1}}]
AS_OBJECT = {A: {'resources': {'VCPU': 1}}}
POST_1_28 = schemas.for_version(allocation.POST, (1, 28))
PUT_BODIES: dict[tuple[int, int], dict[str, Any]] = {
    (1, 0): {'allocations': AS_LIST},
    (1, 8): {'allocations': AS_LIST, **OWNER},
    (1, 12): {'allocations': AS_OBJECT, **OWNER},
    (1, 28): {'allocations': AS_OBJECT, **OWNER, 'consumer_generation': None},
}


@pytest.mark.parametrize('body', PUT_BODIES)
@pytest.mark.parametrize('window', PUT_BODIES)
def test_each_window_of_put_takes_its_own_body_only(window: tuple[int, int], body: tuple[int, int]) -> None:
    schema = schemas.for_version(allocation.PUT, window)
    assert (complaints(schema, PUT_BODIES[body]) == '') == (window == body)


def test_clearing_by_put_is_accepted_from_1_28() -> None:
    cleared = {**PUT_BODIES[1, 12], 'allocations': {}}
    assert 'should be non-empty' in complaints(allocation.PUT_1_12, cleared)
    assert complaints(allocation.PUT_1_28, {**cleared, 'consumer_generation': 3}) == ''
    assert "Failed validating 'minItems'" in complaints(allocation.PUT_1_0, {'allocations': []})


@pytest.mark.parametrize(
    ('entry', 'phrase'),
    [
        ({'resources': {}}, 'should be non-empty'),
        ({'resources': {'VCPU': 0}}, '0 is less than the minimum of 1'),
        ({'resources': {'VCPU': 0}}, "Failed validating 'minimum' in schema"),
        ({'resources': {'VCPU': True}}, "True is not of type 'integer'"),
        ({'resources': {'vcpu': 1}}, 'does not match any of the regexes'),
        ({'resources': {'VCPU\n': 1}}, 'does not match any of the regexes'),
        ({}, "'resources' is a required property"),
        ({'resources': {'VCPU': 1}, 'unknown': 1}, 'Additional properties are not allowed'),
        ({'resources': {'VCPU': 1}, 'generation': '1'}, "'1' is not of type 'integer'"),
    ],
)
def test_entries_of_the_object_form_that_are_rejected(entry: dict[str, Any], phrase: str) -> None:
    assert phrase in complaints(allocation.PUT_1_12, {'allocations': {A: entry}, **OWNER})
    consumer = {'allocations': {A: entry}, **OWNER, 'consumer_generation': None}
    assert phrase in complaints(POST_1_28, {B: consumer})


@pytest.mark.parametrize('key', ['x', A[:-1], A + '\n', A[:-1] + 'g', A.replace('-', '')])
def test_keys_of_allocations_must_look_like_uuids(key: str) -> None:
    no_match = 'does not match any of the regexes'
    entry = {'resources': {'VCPU': 1}}
    assert no_match in complaints(allocation.PUT_1_12, {'allocations': {key: entry}, **OWNER})
    assert no_match in complaints(allocation.POST_1_13, {key: {'allocations': {}, **OWNER}})


@pytest.mark.parametrize('member', ['project_id', 'user_id'])
@pytest.mark.parametrize(('value', 'rule'), [('', 'minLength'), ('x' * 256, 'maxLength')])
def test_projects_and_users_have_1_to_255_characters(member: str, value: str, rule: str) -> None:
    body = {**PUT_BODIES[1, 8], member: value}
    assert f"Failed validating '{rule}'" in complaints(allocation.PUT_1_8, body)


def test_post_names_consumers_and_may_clear_them() -> None:
    entry = {'allocations': {}, **OWNER}
    assert complaints(allocation.POST_1_13, {B: entry}) == ''
    assert complaints(POST_1_28, {B: {**entry, 'consumer_generation': 1}}) == ''
    assert "'consumer_generation' is a required property" in complaints(POST_1_28, {B: entry})
    unexpected = 'Additional properties are not allowed'
    assert unexpected in complaints(allocation.POST_1_13, {B: {**entry, 'consumer_generation': 1}})
    assert 'should be non-empty' in complaints(allocation.POST_1_13, {})


@pytest.mark.parametrize('generation', [None, 0, -1, 10**400])
def test_consumer_generations_are_integers_or_null(generation: Any) -> None:
    assert complaints(allocation.PUT_1_28, {**PUT_BODIES[1, 28], 'consumer_generation': generation}) == ''


@pytest.mark.parametrize('generation', [True, '1', 1.5, 1.0, []])
def test_consumer_generations_of_other_types_are_rejected(generation: Any) -> None:
    body = {**PUT_BODIES[1, 28], 'consumer_generation': generation}
    assert 'is not of type' in complaints(allocation.PUT_1_28, body)


@pytest.mark.parametrize(
    ('mappings', 'phrase'),
    [
        ({}, "Failed validating 'minProperties'"),
        ({'': 5}, "5 is not of type 'array'"),
        ({'': []}, "Failed validating 'minItems'"),
        ({'_A': [A, 'host']}, "'host' is not a 'uuid'"),
        ({'': [A, A], 'any text': [B.upper(), f'urn:uuid:{A}']}, ''),
    ],
)
def test_mappings_have_any_keys_and_uuids(mappings: Any, phrase: str) -> None:
    body = {**PUT_BODIES[1, 28], 'mappings': mappings}
    assert phrase in complaints(allocation.PUT_1_34, body)
    assert bool(phrase) == bool(complaints(allocation.PUT_1_34, body))
    assert 'Additional properties are not allowed' in complaints(allocation.PUT_1_28, body)


@pytest.mark.parametrize(
    ('value', 'phrase'),
    [
        ('INSTANCE', ''),
        ('9_', ''),
        ('X' * 255, ''),
        ('X' * 256, "Failed validating 'maxLength'"),
        ('', "Failed validating 'pattern'"),
        ('instance', "Failed validating 'pattern'"),
        ('unknown', "Failed validating 'pattern'"),
        ('all', "Failed validating 'pattern'"),
        ('INSTANCE\n', "Failed validating 'pattern'"),
        (5, "is not of type 'string'"),
        (None, "is not of type 'string'"),
    ],
)
def test_types_of_consumers_are_names_in_upper_case(value: Any, phrase: str) -> None:
    body = {**PUT_BODIES[1, 28], 'consumer_type': value}
    assert phrase in complaints(allocation.PUT_1_38, body)
    assert bool(phrase) == bool(complaints(allocation.PUT_1_38, body))
    assert 'Additional properties are not allowed' in complaints(allocation.PUT_1_34, body)


def test_a_type_is_required_from_1_38() -> None:
    missing = "'consumer_type' is a required property"
    assert missing in complaints(allocation.PUT_1_38, PUT_BODIES[1, 28])
    assert missing in complaints(schemas.for_version(allocation.POST, (1, 39)), {B: PUT_BODIES[1, 28]})


@pytest.mark.parametrize(
    'value', ['INSTANCE', 'ALL', 'UNKNOWN', 'all', 'unknown', '', 'allx', 'all\n', 'X\n', 'x', 'X' * 256]
)
def test_usages_of_one_type_of_all_or_of_none(value: str) -> None:
    query = {'project_id': 'p', 'consumer_type': value}
    rule = 'maxLength' if len(value) > 255 else 'pattern'
    accepted = value in ('INSTANCE', 'ALL', 'UNKNOWN', 'all', 'unknown')
    complaint = complaints(USAGES_1_38, query)
    assert not complaint if accepted else f"Failed validating '{rule}'" in complaint
    assert 'Additional properties are not allowed' in complaints(USAGES_1_9, query)
