"""Query strings: reading them into pairs, and checking these against JSON Schema."""

from __future__ import annotations

from urllib import parse

from placement.exception import INVALID_QUERY, BadQuery
from placement.validation import ValidationError, Validator

#: The limit of a query string, as sent. HTTP servers in front of the service usually have a lower one.
MAX_QUERY_BYTES = 65536


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
