"""Validation of what clients send: JSON, query strings, uuids, and schemas."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from placement import uuid_spelling
from placement.validation import ValidationError, Validator
from placement.web import http

UUID = 'c47b0a2e-5d3f-4a60-8b1c-9d2e3f405162'


@pytest.mark.parametrize('number', [10**18, 10**30, -(10**25), 2**64, 2**53 + 1, 10**400, -(10**4000)])
def test_integers_are_exact(number: int) -> None:
    assert http.parse_json(json.dumps({'a': [number]}).encode()) == {'a': [number]}


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('16.0', 16),
        ('1e1', 10),
        ('[-2.0E+0]', [-2]),
        ('{"a": {"b": [ 3.00]}, "c":[1e2 ,100000000000000000000]}', {'a': {'b': [3]}, 'c': [100, 10**20]}),
    ],
)
def test_numbers_without_a_fraction_are_integers(text: str, value: Any) -> None:
    parsed = http.parse_json(text.encode())
    assert (parsed, repr(parsed)) == (value, repr(value))


def test_numbers_with_a_fraction_and_text_are_no_integers() -> None:
    text = '[0.5, 1e-1, "1.0", {"1e1": "a, 2.0"}]'
    assert repr(http.parse_json(text.encode())) == "[0.5, 0.1, '1.0', {'1e1': 'a, 2.0'}]"


def test_floats_and_text_beside_a_long_integer_are_unchanged() -> None:
    body = b'[100000000000000000000, 0.1234567890123456789012345, 1e-30, "\\u00e91234567890123456789", "9%s"]'
    long = '1' * 5000
    assert http.parse_json(body % long.encode()) == [
        10**20,
        0.1234567890123456789012345,
        1e-30,
        'é1234567890123456789',
        f'9{long}',
    ]


@pytest.mark.parametrize(
    'body',
    [
        b'',
        b'NaN',
        b'[Infinity]',
        b'[-Infinity]',
        b'1e999',
        b'[12345678901234567890, NaN]',
        b'[12345678901234567890, 1e999]',
        b'1e99999999999999999999999',
        b'1' * 400 + b'.0',
        b'00000000000000000000000001',
        b'"\xff"',
        b'"\\ud800"',
        b'["\\udc00", 12345678901234567890]',
        b'\xef\xbb\xbf{}',
        b'[' * 100_000,
        b'[' * 5000 + b']' * 5000,
        b'1' * 5000,
    ],
)
def test_malformed_json_is_a_value_error(body: bytes) -> None:
    with pytest.raises(ValueError, match=r'.'):
        http.parse_json(body)


@pytest.mark.parametrize(
    'text',
    [
        '',
        'foo',
        UUID[:-1],
        UUID + '0',
        UUID + '\n',
        ' ' + UUID,
        UUID.replace('c', 'g'),
        UUID.replace('4', '\N{FULLWIDTH DIGIT FOUR}'),
        '-' * 36,
    ],
)
def test_text_that_is_no_uuid_is_unchanged(text: str) -> None:
    assert not uuid_spelling.is_uuid(text)
    assert uuid_spelling.canonical_uuid(text) == text


@pytest.mark.parametrize('text', [UUID, UUID.upper(), UUID.replace('-', '')])
def test_an_aggregate_keeps_its_spelling_if_it_fits_the_column(text: str) -> None:
    assert uuid_spelling.aggregate_uuid(text) == text
    assert uuid_spelling.aggregate_uuid(f'{{{text}}}') == (f'{{{text}}}' if len(text) < 36 else UUID)
    assert uuid_spelling.aggregate_uuid(f'urn:uuid:{text}') == UUID


INVENTORY: dict[str, Any] = {
    'type': 'object',
    'properties': {
        'total': {'type': 'integer', 'minimum': 1, 'maximum': 2147483647},
        'ratio': {'type': 'number'},
        'name': {'type': 'string', 'maxLength': 200},
        'kind': {'type': 'string', 'pattern': r'^[A-Z]+\Z'},
        'id': {'type': 'string', 'format': 'uuid'},
        'tags': {'type': 'array', 'items': {'type': 'string'}, 'uniqueItems': True},
    },
    'required': ['total'],
    'additionalProperties': False,
}


def test_a_message_is_one_line_with_the_keyword_and_the_paths() -> None:
    with pytest.raises(ValidationError) as caught:
        Validator(INVENTORY).validate({'total': 1, 'kind': 'line\nend'})
    where = "(Failed validating 'pattern' in schema['properties']['kind'], on instance['kind'])"
    assert str(caught.value) == rf"'line\nend' does not match '^[A-Z]+$' {where}"


@pytest.mark.parametrize(
    ('data', 'phrase'),
    [
        ({'total': 1, 'name': 'x' * 1_000_000}, "Failed validating 'maxLength'"),
        ({'total': 1, 'x' * 1_000_000: 1}, 'Additional properties are not allowed'),
        ({'total': 'x' * 1_000_000}, "is not of type 'integer'"),
        ({'total': 1, 'id': 'x' * 1_000_000}, "is not a 'uuid'"),
        ({'total': 1, 'tags': ['x' * 1_000_000] * 2}, 'has non-unique elements'),
    ],
)
def test_a_value_of_a_megabyte_is_not_repeated_in_the_message(data: Any, phrase: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Validator(INVENTORY).validate(data)
    assert phrase in str(caught.value)
    assert len(str(caught.value)) < 4000


@pytest.mark.timeout(120)  # Comparing each element with every other takes hours.
def test_many_elements_of_mixed_types_are_not_compared_pair_by_pair() -> None:
    mixed = [number if number % 2 else str(number) for number in range(100_000)]
    schema = {'type': 'array', 'uniqueItems': True}
    Validator(schema).validate(mixed)
    with pytest.raises(ValidationError, match='non-unique'):
        Validator(schema).validate([*mixed, '0'])


def test_deep_nesting_is_rejected() -> None:
    deep: Any = []
    for _ in range(1020):
        deep = [deep]
    schema: dict[str, Any] = {'type': 'array', 'items': {}}
    schema['items'] = {'$ref': '#'}
    with pytest.raises(ValueError, match='nested too deeply'):
        Validator(schema).validate(deep)
    # The message depends on whether Python can print the value, which it can from 3.12 on.
    with pytest.raises(ValueError, match=r'nested too deeply|is not of type'):
        Validator(INVENTORY).validate(deep)


def test_deep_nesting_around_a_long_number_is_read_or_rejected() -> None:
    """How deep the standard library can parse depends on the version of Python. There must be no RecursionError."""
    with contextlib.suppress(ValueError):
        assert http.parse_json(b'[' * 1000 + b'1' * 30 + b']' * 1000)


@pytest.mark.parametrize('count', [2, 5, 40])
def test_the_first_of_several_violations_is_named(count: int) -> None:
    """The first in the order of the body, in every process. The order of a set of strings differs between processes."""
    records = {f'NAME_{number}': {'total': 0} for number in range(count)}
    schema = {
        'type': 'object',
        'properties': {'known': {}},
        'patternProperties': {'^any': {}},
        'additionalProperties': {'type': 'object', 'properties': {'total': {'minimum': 1}}},
    }
    with pytest.raises(ValidationError) as raised:
        Validator(schema).validate({'known': 1, 'anything': 2, **records})
    assert str(raised.value).endswith(", on instance['NAME_0']['total'])")
    Validator(schema).validate({'known': 1, 'anything': 2, 'NAME': {'total': 1}})
