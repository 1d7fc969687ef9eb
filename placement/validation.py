"""Validation of JSON values and query strings against JSON Schema, and the choice of the schema of a microversion."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib import parse

import fastjsonschema
import jsonschema
from jsonschema import validators

from placement.exception import INVALID_QUERY, BadQuery
from placement.uuid_spelling import is_uuid

T = TypeVar('T')

#: The limit of a query string, as sent. HTTP servers in front of the service usually have a lower one.
MAX_QUERY_BYTES = 65536
#: Maximum number of characters of one part of a message. The message may quote input, which may be a megabyte long.
_MAX_PART = 1024


class ValidationError(ValueError):
    """A value does not satisfy its schema. The message says where and why."""


class Validator:
    """Checks JSON values against a schema, which is compiled when the first value is checked.

    :param schema: JSON Schema, draft 7, with the format ``uuid``.
    """

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        #: Decides about the values that ``_compiled`` rejects, and words the error.
        self._exact: Any = _ExactValidator(schema, format_checker=_FORMATS)

    def validate(self, data: Any) -> None:
        """Check a JSON value.

        :raises ValidationError: ``data`` violates the schema; the text is as in api-ref/rules.md#json-bodies.
        :raises ValueError: it violates the schema, and is nested too deeply to find out where.
        """
        if self._compiled is not None:
            with contextlib.suppress(fastjsonschema.JsonSchemaValueException):
                self._compiled(data)
                return
        try:
            error = next(self._exact.iter_errors(data), None)
        except RecursionError:
            raise ValueError('nested too deeply') from None
        if error is not None:
            raise ValidationError(_describe(error))

    @functools.cached_property
    def _compiled(self) -> Callable[[Any], Any] | None:
        """A fast check, which fails unless a value is valid, and for a few valid ones; None if it cannot be made."""
        if _NOT_COMPILED.search(repr(self._schema)):
            return None
        # In draft 4, 2.0 is not an integer. Details of exceptions are not used.
        schema = {**self._schema, '$schema': 'http://json-schema.org/draft-04/schema#'}
        formats = {'uuid': is_uuid}
        return fastjsonschema.compile(schema, formats=formats, use_default=False, detailed_exceptions=False)


def for_version(windows: Sequence[tuple[tuple[int, int], T]], version: tuple[int, int]) -> T:
    """Return the schema, or the validator of a schema, that applies at a microversion.

    :param windows: pairs of a window's first microversion and its schema, newest first. The last window begins with 1.0
        or with the first microversion of the operation.
    :param version: the negotiated microversion.
    :raises LookupError: the version is older than every window.
    """
    for since, schema in windows:
        if version >= since:
            return schema
    raise LookupError(f'no schema at microversion {version[0]}.{version[1]}')


def parse_query(text: str) -> list[tuple[str, str]]:
    """Read a query string into pairs of key and value, in the order of the URL.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :raises BadQuery: it is longer than ``MAX_QUERY_BYTES``, or does not decode to UTF-8.
    """
    if len(text) > MAX_QUERY_BYTES:
        raise BadQuery(f'{INVALID_QUERY}longer than {MAX_QUERY_BYTES} bytes.')
    pairs = []
    try:
        for field in text.encode('latin-1').replace(b'+', b' ').split(b'&'):
            if field:
                key, _equals, value = field.partition(b'=')
                pairs.append((parse.unquote_to_bytes(key).decode(), parse.unquote_to_bytes(value).decode()))
    except UnicodeError as error:
        raise BadQuery(f'{INVALID_QUERY}{error}') from error
    return pairs


def validate_query(params: dict[str, str], validator: Validator) -> None:
    """Check the last value of each key of a query string.

    :param validator: of an object of strings.
    :raises BadQuery: a value is invalid, or a key is unknown.
    """
    try:
        validator.validate(params)
    except ValidationError as error:
        raise BadQuery(f'{INVALID_QUERY}{error}') from error


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

_ExactValidator = validators.extend(
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
