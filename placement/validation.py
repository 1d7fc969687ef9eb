"""Parsing and validation of what clients send: JSON, query strings, and values against JSON Schema."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib import parse

import fastjsonschema
import jsonschema
import orjson
from jsonschema import validators

from placement.capacity import InventoryRecord
from placement.exception import BadQuery, InvalidInventoryCapacity
from placement.uuid_spelling import is_uuid

#: A run of digits that orjson may read as an inexact float. It reads the first eighteen digits exactly.
_LONG_NUMBER = re.compile(rb'([0-9]{18})[0-9]+')
#: A number with a fraction or an exponent, not inside a uuid or a name.
_FRACTION_OR_EXPONENT = re.compile(rb'(?:^|[\s:,\[])-?[0-9]+[.eE]')

#: Maximum number of characters of one part of a message. The message may quote input, which may be a megabyte long.
_MAX_PART = 1024


#: The limit of a query string, as sent. HTTP servers in front of the service usually have a lower one.
MAX_QUERY_BYTES = 65536

#: The beginning of the texts of most errors about a query string.
INVALID_QUERY = 'Invalid query string parameters: '


class ValidationError(ValueError):
    """A value does not satisfy its schema. The message says where and why."""


# Text to values ---------------------------------------------------------------------------------------------


def parse_json(body: bytes) -> Any:
    """Read JSON (RFC 8259) in UTF-8, without NaN and infinity. Integers are exact; the last of repeated keys counts.

    Numbers without a fraction are integers in every spelling, as in JSON Schema: ``16.0`` and ``1e1`` are.

    :raises ValueError: ``body`` is not JSON, is nested about 1000 levels deep, or has a number of over 4300 digits.
    """
    if _LONG_NUMBER.search(body):
        # orjson is strict about syntax, but reads integers beyond 64 bits as floats, and rejects those beyond the range
        # of floats. So orjson checks the syntax of a copy with shortened numbers, and json, which is lax about syntax,
        # reads the values. Shortening keeps eighteen digits, so it does not break \u escapes, which have four.
        orjson.loads(_LONG_NUMBER.sub(rb'\1', body))
        try:
            data = json.loads(body, parse_float=_finite)
        except RecursionError:
            raise ValueError('nested too deeply') from None
    else:
        data = orjson.loads(body)
    return _with_integers(data) if _FRACTION_OR_EXPONENT.search(body) else data


def _with_integers(data: Any) -> Any:
    """Replace the floats without a fraction in a JSON value by integers."""
    root = [data]
    pending: list[Any] = [root]
    while pending:
        container = pending.pop()
        for key, value in container.items() if isinstance(container, dict) else enumerate(container):
            if isinstance(value, float) and value.is_integer():
                container[key] = int(value)
            elif isinstance(value, dict | list):
                pending.append(value)
    return root[0]


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError('number is infinity when parsed as double')
    return number


def parse_query(text: str) -> list[tuple[str, str]]:
    """Read a query string into pairs of key and value, in the order of the URL.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :raises BadQuery: it is longer than ``MAX_QUERY_BYTES``, or does not decode to UTF-8.
    """
    if len(text) > MAX_QUERY_BYTES:
        raise BadQuery(f'{INVALID_QUERY}longer than {MAX_QUERY_BYTES} bytes.')
    pairs = []
    try:
        for field in text.encode('latin-1').split(b'&'):
            if field:
                key, _equals, value = field.partition(b'=')
                pairs.append((_decode(key), _decode(value)))
    except UnicodeError as error:
        raise BadQuery(f'{INVALID_QUERY}{error}') from error
    return pairs


def _decode(encoded: bytes) -> str:
    return parse.unquote_to_bytes(encoded.replace(b'+', b' ')).decode()


def validate_query(params: dict[str, str], schema: dict[str, Any]) -> None:
    """Check the last value of each key of a query string.

    :param schema: as for ``validate``.
    :raises BadQuery: a value does not satisfy ``schema``, or a key is unknown.
    """
    try:
        validate(params, schema)
    except ValidationError as error:
        raise BadQuery(f'{INVALID_QUERY}{error}') from error


# Inventories ------------------------------------------------------------------------------------------------


def check_capacity(inventory: InventoryRecord, resource_class: str, uuid: str, zero_allowed: bool) -> None:
    """Make sure that an inventory may be stored (api-ref/capacity.md#capacity-that-may-be-stored).

    :param uuid: the uuid of its provider.
    :param zero_allowed: whether the capacity may be 0, as since microversion 1.26.
    :raises InvalidInventoryCapacity: the inventory may not be stored.
    """
    if inventory.allocation_ratio < 0:
        rule = f'Bad inventory {resource_class} for resource provider {uuid}: allocation_ratio is below 0.'
    elif zero_allowed and inventory.capacity < 0:
        rule = 'The reserved value is greater than total.'
    elif not zero_allowed and inventory.capacity <= 0:
        rule = 'The reserved value is greater than or equal to total.'
    else:
        return
    raise InvalidInventoryCapacity(resource_class=resource_class, uuid=uuid, rule=rule)


# Schemas ----------------------------------------------------------------------------------------------------


def validate(data: Any, schema: dict[str, Any]) -> None:
    """Check a JSON value against a schema.

    :param schema: JSON Schema, draft 7, with the format ``uuid``. It has to be a constant: its validator stays cached.
    :raises ValidationError: ``data`` violates the schema; the text is as in api-ref/rules.md#json-bodies.
    :raises ValueError: it violates the schema, and is nested too deeply to find out where.
    """
    accepts, validator = _validators.get(id(schema)) or _compile(schema)
    if accepts(data):
        return
    try:
        error = next(validator.iter_errors(data), None)
    except RecursionError:
        raise ValueError('nested too deeply') from None
    if error is not None:
        raise ValidationError(_describe(error))


def reject_nul(data: Any) -> None:
    """Reject NUL on all databases: PostgreSQL cannot store this character.

    :param data: a JSON value that is to be stored.
    :raises ValidationError: a string or the name of a member contains NUL.
    """
    pending = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            if '\0' in value:
                raise ValidationError('The character NUL (U+0000) is not allowed')
        elif isinstance(value, dict):
            pending += value.keys()
            pending += value.values()
        elif isinstance(value, list):
            pending += value


def _describe(error: jsonschema.ValidationError) -> str:
    reason = _shorten(error.message)
    if not error.validator:
        return reason
    # The last element of the path is the keyword; the text names it before the path.
    schema = f'schema{_shorten(_index(list(error.relative_schema_path)[:-1]))}'
    instance = f'instance{_shorten(_index(error.absolute_path))}'
    return f'{reason} (Failed validating {error.validator!r} in {schema}, on {instance})'


def _index(path: Iterable[str | int]) -> str:
    return ''.join(f'[{step!r}]' for step in path)


def _shorten(text: str) -> str:
    if len(text) <= _MAX_PART:
        return text
    return f'{text[: _MAX_PART // 2]} [...] {text[-_MAX_PART // 2 :]}'


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if isinstance(value, str) and not re.search(pattern, value):
        # Clients know the patterns of JSON Schema, where $ means what \Z means in Python.
        spelled = pattern.replace(r'\Z', '$')
        yield jsonschema.ValidationError(f'{value!r} does not match {spelled!r}')


def _unique_items(_validator: Any, unique: bool, items: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    # jsonschema's own check compares all pairs when items are of several types, which takes minutes for a megabyte.
    if unique and isinstance(items, list) and len({repr(item) for item in items}) < len(items):
        yield jsonschema.ValidationError(f'{items!r} has non-unique elements')


def _additional_properties(
    validator: Any, allowed: Any, instance: Any, schema: dict[str, Any]
) -> Iterator[jsonschema.ValidationError]:
    if not isinstance(allowed, dict) or not isinstance(instance, dict):
        yield from jsonschema.Draft7Validator.VALIDATORS['additionalProperties'](validator, allowed, instance, schema)
        return
    # jsonschema's own check iterates over a set, so the first violation would differ between processes.
    for name, value in instance.items():
        if name not in schema.get('properties', ()) and not any(
            re.search(pattern, name) for pattern in schema.get('patternProperties', ())
        ):
            yield from validator.descend(value, allowed, path=name)


_FORMATS = jsonschema.FormatChecker(formats=())
_FORMATS.checks('uuid')(lambda value: not isinstance(value, str) or is_uuid(value))

_Validator = validators.extend(
    jsonschema.Draft7Validator,
    validators={'pattern': _pattern, 'uniqueItems': _unique_items, 'additionalProperties': _additional_properties},
    # 2.0 is no integer, as in the compiled validators. ``parse_json`` has replaced it.
    type_checker=jsonschema.Draft7Validator.TYPE_CHECKER.redefine(
        'integer', lambda _checker, value: isinstance(value, int) and not isinstance(value, bool)
    ),
)

#: Keywords that draft 4 does not have or gives another meaning; and uniqueItems, because fastjsonschema needs minutes
#: to compare numbers that an attacker chose to have the same hash.
_NOT_COMPILED = re.compile(
    r"'(uniqueItems|const|contains|propertyNames|exclusiveM\w+|if|additionalItems|dependencies|\$ref|\$id)': "
)

#: By ``id()`` of the schema: a fast check that accepts most valid values and nothing else; and the validator that
#: decides about the others and words the error. The validator keeps its schema alive, so the id stays unique.
_validators: dict[int, tuple[Callable[[Any], bool], Any]] = {}


def _compile(schema: dict[str, Any]) -> tuple[Callable[[Any], bool], Any]:
    """Add the entry of a schema to ``_validators``."""
    validator = _Validator(schema, format_checker=_FORMATS)
    if _NOT_COMPILED.search(repr(schema)):
        compiled: tuple[Callable[[Any], bool], Any] = (lambda _data: False, validator)
    else:
        # In draft 4, 2.0 is not an integer. Details of exceptions are not used.
        check = fastjsonschema.compile(
            {**schema, '$schema': 'http://json-schema.org/draft-04/schema#'},
            formats={'uuid': is_uuid},
            use_default=False,
            detailed_exceptions=False,
        )

        def accepts(data: Any) -> bool:
            try:
                check(data)
            except fastjsonschema.JsonSchemaValueException:
                return False
            return True

        compiled = accepts, validator
    _validators[id(schema)] = compiled
    return compiled
