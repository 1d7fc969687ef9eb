"""Parsing of the value lists in query strings: ``resources``, ``required`` and ``member_of``.

``GET /resource_providers`` and every group of ``GET /allocation_candidates`` share this grammar. Nothing here depends
on HTTP or microversions: callers pass what a microversion allows as arguments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from placement import room
from placement.web import validation

#: More than any inventory has, as stored amounts fit a signed 32-bit integer. Larger requested amounts are reduced to
#: this one: they find nothing either, and no number is too long for the database.
BEYOND_ANY_INVENTORY = room.LARGEST + 1

_INTEGER = re.compile(r'\s*([+-]?)([0-9]+)\s*')
_LONGEST_EXACT = len(str(BEYOND_ANY_INVENTORY))


class BadQuery(ValueError):
    """The query string is malformed. The message is the detail text of the response."""


def pairs(text: str, longest: int) -> list[tuple[str, str]]:
    """Read a query string into pairs of key and value, in the order of the URL.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :param longest: most bytes that it may have, ``[placement] max_query_length``.
    :raises BadQuery: it is longer, or does not decode to UTF-8.
    """
    if len(text) > longest:
        raise BadQuery(f'Invalid query string parameters: longer than {longest} bytes.')
    try:
        return validation.parse_query(text)
    except UnicodeError as error:
        raise BadQuery(f'Invalid query string parameters: {error}') from error


class TraitFilter(NamedTuple):
    """The names of one ``required`` value: traits that a provider must have, and traits that it must not have."""

    required: frozenset[str]
    forbidden: frozenset[str]


def parse_resources(value: str) -> dict[str, int]:
    """Read ``CLASS:AMOUNT,CLASS:AMOUNT`` (api-ref/resource-providers.md#lists-of-amounts).

    :param value: the decoded value of the parameter.
    :returns: class name to amount, at least 1 and at most ``BEYOND_ANY_INVENTORY``; for a class given twice, the
        last amount. Whether the classes exist is not checked.
    :raises BadQuery: the value is blank, an item has not exactly one colon, or an amount is not an integer above 0.
    """
    expected = 'Expected resources query string parameter in form: ?resources=VCPU:2,MEMORY_MB:1024.'
    if not value.strip():
        raise BadQuery(f'Badly formed resources parameter. {expected} Got: empty string.')
    resources = {}
    for item in value.split(','):
        if item.count(':') != 1:
            raise BadQuery(f'Badly formed resources parameter. {expected} Got: {item}.')
        name, amount = item.split(':')
        resources[name] = _parse_amount(name, amount)
    return resources


def parse_required(value: str, forbidden_allowed: bool) -> TraitFilter:
    """Read ``TRAIT,!TRAIT`` (api-ref/resource-providers.md#lists-of-traits).

    :param value: the decoded value of the parameter.
    :param forbidden_allowed: whether names with ``!`` are allowed, that is from microversion 1.22.
    :returns: the required and the forbidden names. One name may be in both. Whether they exist is not checked.
    :raises BadQuery: the value is blank, has an empty item, or has ``!`` where it is not allowed.
    """
    items = [item.strip() for item in value.split(',')]
    forbidden = frozenset(item.lstrip('!') for item in items if item.startswith('!'))
    required = frozenset(item for item in items if not item.startswith('!'))
    if '' in required | forbidden or ('!' in value and not forbidden_allowed):
        sample = 'HW_CPU_X86_VMX,!CUSTOM_MAGIC' if forbidden_allowed else 'HW_CPU_X86_VMX,CUSTOM_MAGIC'
        raise BadQuery(
            f"Invalid query string parameters: Expected 'required' parameter value of the form: {sample}. Got: {value}"
        )
    return TraitFilter(required, forbidden)


def parse_member_of(values: Sequence[str], repeatable: bool) -> tuple[frozenset[str], ...]:
    """Read all of ``member_of``, ``UUID`` or ``in:UUID,UUID`` (api-ref/resource-providers.md#lists-of-aggregates).

    :param values: the decoded values, in the order of the URL; may be empty.
    :param repeatable: whether more than one value is allowed, that is from microversion 1.24.
    :returns: one set per value, of canonical uuids. A provider must be in one aggregate of each.
    :raises BadQuery: several values where that is not allowed, a list without ``in:``, or an element that is no uuid.
    """
    if len(values) > 1 and not repeatable:
        raise BadQuery('Multiple member_of parameters are not supported')
    for value in values:
        if ',' in value and not value.startswith('in:'):
            raise BadQuery(f"Multiple values for 'member_of' must be prefixed with the 'in:' keyword. Got: {value}")
    return tuple(frozenset(map(_canonical_uuid, value.removeprefix('in:').split(','))) for value in values)


def _parse_amount(name: str, text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise BadQuery(f'Requested resource {name} expected positive integer amount. Got: {text}.')
    sign, digits = match[1], match[2].lstrip('0') or '0'
    # Python refuses to convert very long numerals, so the number of digits is compared first.
    amount = BEYOND_ANY_INVENTORY if len(digits) > _LONGEST_EXACT else min(int(digits), BEYOND_ANY_INVENTORY)
    if sign == '-' or amount < 1:
        raise BadQuery(f'Requested resource {name} requires amount >= 1. Got: {text}.')
    return amount


def _canonical_uuid(text: str) -> str:
    if not validation.is_uuid(text):
        raise BadQuery(f"Expected 'member_of' parameter to contain valid UUID(s). Got: {text}")
    return validation.canonical_uuid(text)
