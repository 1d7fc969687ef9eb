"""The compiled validators of bodies and query strings, compared with those of jsonschema, which word the errors."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import fastjsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from placement import schemas, validation
from tests.support.search.topologies import thorough

#: Each schema of a request, by name.
SCHEMAS = {
    f'{module.name}.{name}': value
    for module in pkgutil.iter_modules(schemas.__path__)
    if module.name != 'responses'
    for name, value in vars(importlib.import_module(f'placement.schemas.{module.name}')).items()
    if isinstance(value, dict) and not name.startswith('__') and {'type', 'format', 'pattern', 'enum'} & value.keys()
}
VALIDATORS = {name: validation.Validator(schema) for name, schema in SCHEMAS.items()}
UUID = 'c47b0a2e-5d3f-4a60-8b1c-9d2e3f405162'
#: Text that some keyword accepts and others do not.
TEXTS = st.sampled_from(
    [
        *('', 'A', 'a', '0', '1', '10', 'all', 'unknown', 'none', 'isolate', 'VCPU', 'VCPU\n', 'CUSTOM_A', 'CUSTOM_'),
        *(UUID, UUID.upper(), UUID.replace('-', ''), f'{{{UUID}}}', f'urn:uuid:{UUID}', f'{UUID}\n', f'{UUID}0'),
        *('resources', 'resources1', 'required_a', 'member_of', 'in_tree', 'limit', 'group_policy', 'same_subtree'),
        *('x' * 200, 'x' * 201, 'x' * 255, 'X' * 255, 'X' * 256, 'é', '\0', '１'),
    ]
)
NUMBERS = st.one_of(
    st.sampled_from([-1, 0, 1, 2, 1.0, 0.0, -0.0, 0.5, 2**31 - 1, 2**31, 2.0**31, 10**30, 1e300, True, False]),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
)
SCALARS = st.one_of(st.none(), NUMBERS, TEXTS)
ANY = st.recursive(SCALARS, lambda value: st.lists(value, max_size=3) | st.dictionaries(TEXTS, value, max_size=3))


@st.composite
def values(draw: Any, schema: dict[str, Any], wrong: int) -> Any:
    """A value that satisfies a schema in most of its parts; ``wrong`` of a hundred parts are any value."""
    if draw(st.integers(0, 99)) < wrong:
        return draw(ANY)
    kind = schema.get('type')
    kind = draw(st.sampled_from(kind)) if isinstance(kind, list) else kind
    if kind == 'object':
        return draw(objects(schema, wrong))
    if kind == 'array':
        least = schema.get('minItems', 0)
        return draw(st.lists(values(schema.get('items', {}), wrong), min_size=least, max_size=least + 2))
    simple: dict[Any, SearchStrategy[Any]] = {
        'integer': st.integers(schema.get('minimum', -5), schema.get('maximum', 2**40)) | NUMBERS,
        'number': NUMBERS,
        'string': st.sampled_from(schema['enum']) if 'enum' in schema else TEXTS,
        'null': st.none(),
    }
    return draw(simple.get(kind, ANY))


@st.composite
def objects(draw: Any, schema: dict[str, Any], wrong: int) -> dict[str, Any]:
    """An object with the members that a schema requires, some of the others, and some whose names are any text."""
    members = {}
    for name, member in schema.get('properties', {}).items():
        if draw(st.integers(0, 99)) >= wrong and (name in schema.get('required', ()) or draw(st.booleans())):
            members[name] = draw(values(member, wrong))
    for member in (*schema.get('patternProperties', {}).values(), schema.get('additionalProperties')):
        if isinstance(member, dict):
            members.update(draw(st.dictionaries(TEXTS, values(member, wrong), max_size=3)))
    return members


@pytest.mark.parametrize('name', SCHEMAS)
@thorough(200)
@given(data=st.data(), wrong=st.sampled_from([0, 0, 3, 20]))
def test_both_validators_accept_the_same(name: str, data: st.DataObject, wrong: int) -> None:
    value = data.draw(values(SCHEMAS[name], wrong))
    validator = VALIDATORS[name]
    if validator._compiled is None:
        return
    try:
        validator._compiled(value)
        accepted = True
    except fastjsonschema.JsonSchemaValueException:
        accepted = False
    assert accepted == validator._exact.is_valid(value)


def test_only_sets_are_not_compiled() -> None:
    """Their elements are compared by jsonschema's check as changed here."""
    left_out = {name for name, schema in SCHEMAS.items() if validation._NOT_COMPILED.search(repr(schema))}
    assert left_out == {'requests._AGGREGATES', 'requests._AGGREGATES_1_19'}
