"""The schemas: what each accepts and rejects, by range of microversions."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from placement import schemas, validation
from placement.schemas import (
    Schema,
    Windows,
    aggregate,
    allocation,
    allocation_candidate,
    inventory,
    resource_class,
    resource_provider,
    trait,
    usage,
)

A = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'
B = '7c1f4d1e-0b7a-4f0e-8a3c-6e5b1f2d3c22'

POST_PROVIDER_1_0 = schemas.for_version(resource_provider.POST, (1, 0))
POST_PROVIDER_1_14 = schemas.for_version(resource_provider.POST, (1, 14))
PUT_PROVIDER_1_0 = schemas.for_version(resource_provider.PUT, (1, 0))
PUT_PROVIDER_1_14 = schemas.for_version(resource_provider.PUT, (1, 14))
USAGES_1_9 = schemas.for_version(usage.TOTAL, (1, 9))
USAGES_1_38 = schemas.for_version(usage.TOTAL, (1, 38))


def complaints(schema: Schema, value: Any) -> str:
    """The message about a value; empty when it is accepted."""
    try:
        validation.validate(value, schema)
    except validation.ValidationError as error:
        return str(error)
    return ''


ALL_SCHEMAS = {
    f'{module.__name__.rpartition(".")[2]}.{name} {since}': schema
    for module in (
        aggregate,
        allocation,
        allocation_candidate,
        inventory,
        resource_class,
        resource_provider,
        trait,
        usage,
    )
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


# Providers


@pytest.mark.parametrize(
    'body',
    [
        {'name': 'x'},
        {'name': 'x' * 200, 'uuid': A},
        {'name': '\U0001f600' * 200},
        {'name': 'x', 'uuid': A.upper()},
        {'name': 'x', 'uuid': A.replace('-', '')},
        {'name': 'x', 'uuid': 'urn:uuid:' + A},
    ],
)
def test_providers_that_can_be_created(body: dict[str, Any]) -> None:
    assert complaints(POST_PROVIDER_1_0, body) == ''
    assert complaints(POST_PROVIDER_1_14, {**body, 'parent_provider_uuid': B}) == ''
    assert complaints(POST_PROVIDER_1_14, {**body, 'parent_provider_uuid': None}) == ''


@pytest.mark.parametrize(
    ('body', 'phrase'),
    [
        ({}, "'name' is a required property"),
        ({'name': 1}, "1 is not of type 'string'"),
        ({'name': 'x' * 201}, "Failed validating 'maxLength'"),
        ({'name': 'x', 'uuid': 'y'}, "'y' is not a 'uuid'"),
        ({'name': 'x', 'uuid': 'y'}, "Failed validating 'format'"),
        ({'name': 'x', 'generation': 0}, 'Additional properties are not allowed'),
        ([], "[] is not of type 'object'"),
    ],
)
@pytest.mark.parametrize('schema', [POST_PROVIDER_1_0, POST_PROVIDER_1_14])
def test_providers_that_cannot_be_created(schema: Schema, body: Any, phrase: str) -> None:
    assert phrase in complaints(schema, body)


def test_parents_are_accepted_from_1_14() -> None:
    body = {'name': 'x', 'parent_provider_uuid': A}
    for old, new in (
        (POST_PROVIDER_1_0, POST_PROVIDER_1_14),
        (PUT_PROVIDER_1_0, PUT_PROVIDER_1_14),
    ):
        assert 'Additional properties are not allowed' in complaints(old, body)
        assert complaints(new, body) == ''
        assert "'y' is not a 'uuid'" in complaints(new, {**body, 'parent_provider_uuid': 'y'})


def test_updates_of_a_provider_need_a_name() -> None:
    assert "'name' is a required property" in complaints(PUT_PROVIDER_1_14, {'parent_provider_uuid': None})
    assert 'Additional properties' in complaints(PUT_PROVIDER_1_14, {'name': 'x', 'uuid': A})
    assert "Failed validating 'minLength'" in complaints(PUT_PROVIDER_1_14, {'name': ''})


@pytest.mark.parametrize(
    ('key', 'value', 'since'),
    [
        ('name', '', (1, 0)),
        ('uuid', A, (1, 0)),
        ('member_of', '', (1, 3)),
        ('resources', '', (1, 4)),
        ('in_tree', A, (1, 14)),
        ('required', '', (1, 18)),
    ],
)
def test_filters_of_the_provider_list_by_window(key: str, value: str, since: tuple[int, int]) -> None:
    for minor in range(30):
        schema = schemas.for_version(resource_provider.LIST, (1, minor))
        rejected = 'Additional properties are not allowed' in complaints(schema, {key: value})
        assert rejected == ((1, minor) < since)


# Inventories

RECORD = {'total': 1, 'reserved': 0, 'min_unit': 1, 'max_unit': 1, 'step_size': 1, 'allocation_ratio': 0.5}
MAX = 2147483647


@pytest.mark.parametrize(
    'record',
    [
        {'total': 1},
        RECORD,
        {**dict.fromkeys(RECORD, MAX), 'allocation_ratio': 3.40282e38},
        {**RECORD, 'allocation_ratio': 4},
        {**RECORD, 'allocation_ratio': -1},
        {'total': 1, 'resource_provider_generation': -5},
    ],
)
def test_inventory_records_that_are_accepted(record: dict[str, Any]) -> None:
    assert complaints(inventory.POST_ONE, {**record, 'resource_class': 'VCPU'}) == ''
    assert complaints(inventory.PUT_ONE, {'resource_provider_generation': 0, **record}) == ''
    assert complaints(inventory.PUT_ALL, {'resource_provider_generation': 0, 'inventories': {'VCPU': record}}) == ''


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


def test_records_need_their_total() -> None:
    missing = "'total' is a required property"
    assert missing in complaints(inventory.POST_ONE, {'resource_class': 'VCPU'})
    assert missing in complaints(inventory.PUT_ONE, {'resource_provider_generation': 0})
    assert missing in complaints(inventory.PUT_ALL, {'resource_provider_generation': 0, 'inventories': {'VCPU': {}}})


def test_the_message_about_a_limit_names_the_member() -> None:
    body = {'resource_provider_generation': 0, 'total': 0}
    assert "Failed validating 'minimum' in schema['properties']['total']" in complaints(inventory.PUT_ONE, body)


@pytest.mark.parametrize('name', ['', 'vcpu', 'VCPU\n', 'V CPU', 'VCPU\u0663'])
def test_classes_of_new_inventory_match_the_pattern(name: str) -> None:
    assert "Failed validating 'pattern'" in complaints(inventory.POST_ONE, {'resource_class': name, 'total': 1})


def test_class_names_in_a_set_of_inventories_are_not_checked_but_records_are() -> None:
    body: dict[str, Any] = {'resource_provider_generation': 0, 'inventories': {'not a class': {'total': 1}}}
    assert complaints(inventory.PUT_ALL, body) == ''
    body['inventories']['not a class'] = []
    assert "[] is not of type 'object'" in complaints(inventory.PUT_ALL, body)


# Aggregates, traits, classes, usages


def test_aggregates_are_a_bare_array_below_1_19() -> None:
    assert complaints(aggregate.PUT_1_1, [A, B]) == ''
    assert complaints(aggregate.PUT_1_1, []) == ''
    assert "is not of type 'array'" in complaints(aggregate.PUT_1_1, {'aggregates': [A]})
    assert 'has non-unique elements' in complaints(aggregate.PUT_1_1, [A, A])
    assert "'x' is not a 'uuid'" in complaints(aggregate.PUT_1_1, ['x'])


def test_aggregates_are_an_object_from_1_19() -> None:
    body = {'aggregates': [A], 'resource_provider_generation': 0}
    assert complaints(aggregate.PUT_1_19, body) == ''
    assert "is not of type 'object'" in complaints(aggregate.PUT_1_19, [A])
    assert 'has non-unique elements' in complaints(aggregate.PUT_1_19, {**body, 'aggregates': [A, A]})
    assert "'aggregates' is a required property" in complaints(aggregate.PUT_1_19, {'resource_provider_generation': 0})
    generation = "'resource_provider_generation' is a required property"
    assert generation in complaints(aggregate.PUT_1_19, {'aggregates': []})


def test_traits_of_a_provider_may_be_repeated() -> None:
    assert complaints(trait.PUT_FOR_PROVIDER, {'traits': ['x', 'x'], 'resource_provider_generation': 0}) == ''


@pytest.mark.parametrize(
    ('traits', 'phrase'),
    [
        ([''], 'minLength'),
        (['x' * 256], 'maxLength'),
        ([1], "1 is not of type 'string'"),
        ('x', "'x' is not of type 'array'"),
    ],
)
def test_traits_of_a_provider_are_short_texts(traits: Any, phrase: str) -> None:
    assert phrase in complaints(trait.PUT_FOR_PROVIDER, {'traits': traits, 'resource_provider_generation': 0})


CUSTOM_NAMES = ['CUSTOM_A', 'CUSTOM__', 'CUSTOM_9', 'CUSTOM_' + 'X' * 248]
OTHER_NAMES = ['', 'VCPU', 'CUSTOM_', 'CUSTOM_a', 'CUSTOM_A\n', ' CUSTOM_A', 'CUSTOM_\u00c4', 'CUSTOM_' + 'X' * 249]


@pytest.mark.parametrize('name', CUSTOM_NAMES)
def test_custom_names(name: str) -> None:
    assert complaints(resource_class.CUSTOM_CLASS, {'name': name}) == ''
    assert complaints(trait.CUSTOM_TRAIT_NAME, name) == ''


@pytest.mark.parametrize('name', OTHER_NAMES)
def test_names_that_are_not_custom(name: str) -> None:
    expected = 'maxLength' if len(name) > 255 else 'pattern'
    assert f"Failed validating '{expected}'" in complaints(resource_class.CUSTOM_CLASS, {'name': name})
    assert f"Failed validating '{expected}'" in complaints(trait.CUSTOM_TRAIT_NAME, name)


def test_total_usages_need_a_project() -> None:
    assert complaints(USAGES_1_9, {'project_id': 'p', 'user_id': 'u'}) == ''
    assert "'project_id' is a required property" in complaints(USAGES_1_9, {'user_id': 'u'})
    assert "Failed validating 'minLength'" in complaints(USAGES_1_9, {'project_id': ''})
    assert "Failed validating 'maxLength'" in complaints(USAGES_1_9, {'project_id': 'p', 'user_id': 'u' * 256})


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


def test_total_usages_report_a_missing_project_first_then_values_then_unknown_keys() -> None:
    assert "'project_id' is a required property" in complaints(USAGES_1_9, {'user_id': '', 'x': ''})
    assert "Failed validating 'minLength'" in complaints(USAGES_1_9, {'x': '', 'project_id': ''})


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
