"""JSON bodies of requests: reading and checking them."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import orjson
from webob import exc

from placement.validation import ValidationError, Validator

#: A run of digits that orjson may read as an inexact float. It reads the first eighteen digits exactly.
_LONG_NUMBER = re.compile(rb'([0-9]{18})[0-9]+')
#: A number with a fraction or an exponent, not inside a uuid or a name.
_FRACTION_OR_EXPONENT = re.compile(rb'(?:^|[\s:,\[])-?[0-9]+[.eE]')


def validated_json(body: bytes, validator: Validator) -> Any:
    """Read a JSON body and check it (api-ref/rules.md#json-bodies).

    :param body: the body as sent.
    :returns: the value. Integers of any size are exact.
    :raises HTTPBadRequest: it is not JSON, contains NUL, or is invalid.
    """
    try:
        data = parse_json(body)
        validator.validate(data)
        # JSON allows NUL in strings only as this escape.
        if b'\\u0000' in body:
            _reject_nul(data)
    except ValidationError as error:
        raise exc.HTTPBadRequest(f'JSON does not validate: {error}') from error
    except ValueError as error:
        raise exc.HTTPBadRequest(f'Malformed JSON: {error}') from error
    return data


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


def _reject_nul(data: Any) -> None:
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
