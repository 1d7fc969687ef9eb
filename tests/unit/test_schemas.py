"""The schemas: that they are valid, and limits that gabbits do not reach."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import jsonschema
import pytest

from placement import schemas, validation
from placement.schemas import Schema, Windows, requests

A = '0f2f9ef6-6d4b-4b51-9a5c-0f0a6d9a1b11'


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


RECORD = {'total': 1, 'reserved': 0, 'min_unit': 1, 'max_unit': 1, 'step_size': 1, 'allocation_ratio': 0.5}


@pytest.mark.parametrize(
    ('change', 'phrase'),
    [
        ({'total': 2147483648}, "Failed validating 'maximum' in schema"),
        ({'allocation_ratio': 3.5e38}, "Failed validating 'maximum' in schema"),
        ({'allocation_ratio': -(10**400)}, "Failed validating 'minimum' in schema"),
        ({'allocation_ratio': True}, "True is not of type 'number'"),
        ({'total': True}, "True is not of type 'integer'"),
        ({'total': None}, "None is not of type 'integer'"),
    ],
)
def test_inventories_hold_numbers_that_every_database_can_hold(change: dict[str, Any], phrase: str) -> None:
    whole = {'resource_provider_generation': 0, 'inventories': {'VCPU': {**RECORD, **change}}}
    assert phrase in complaints(requests.PUT_INVENTORIES, whole)


@pytest.mark.parametrize('key', ['x', A[:-1], A + '\n', A[:-1] + 'g', A.replace('-', '')])
def test_keys_of_allocations_must_look_like_uuids(key: str) -> None:
    owner = {'project_id': 'p', 'user_id': 'u'}
    no_match = 'does not match any of the regexes'
    assert no_match in complaints(
        schemas.for_version(requests.PUT_ALLOCATIONS, (1, 12)),
        {'allocations': {key: {'resources': {'VCPU': 1}}}, **owner},
    )
    assert no_match in complaints(
        schemas.for_version(requests.POST_ALLOCATIONS, (1, 13)), {key: {'allocations': {}, **owner}}
    )


@pytest.mark.parametrize('generation', [None, 0, -1, 10**400, True, '1', 1.5, 1.0, []])
def test_consumer_generations_are_integers_or_null(generation: Any) -> None:
    allocations = {A: {'resources': {'VCPU': 1}}}
    body = {'allocations': allocations, 'project_id': 'p', 'user_id': 'u', 'consumer_generation': generation}
    accepted = generation is None or type(generation) is int
    assert ('is not of type' in complaints(schemas.for_version(requests.PUT_ALLOCATIONS, (1, 28)), body)) == (
        not accepted
    )
