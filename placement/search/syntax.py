"""Parsing of values in query strings: ``resources``, ``required``, ``member_of`` and ``in_tree``.

``GET /resource_providers`` and the groups of ``GET /allocation_candidates`` share the grammar of the first three. The
additions of microversions are also here, so that both follow the same rules. Nothing here depends on HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from placement import capacity, uuid_spelling
from placement.exception import INVALID_QUERY, BadQuery
from placement.schemas import Version
from placement.search.request import NameFilter

#: Stored amounts fit a signed 32-bit integer, so no inventory has this amount. It replaces larger requested amounts,
#: which find nothing either, so that sums of amounts fit 64 bits.
BEYOND_ANY_INVENTORY = capacity.MAX_INT32 + 1

_INTEGER = re.compile(r'\s*([+-]?)([0-9]+)\s*')
_MAX_DIGITS = len(str(BEYOND_ANY_INVENTORY))

_ANY_OF_SAMPLE = 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'


def parse_resources(value: str) -> dict[str, int]:
    """Read ``CLASS:AMOUNT,CLASS:AMOUNT`` (api-ref/resource-providers.md#lists-of-amounts).

    :param value: the decoded value of the parameter.
    :returns: the amount, from 1 to ``BEYOND_ANY_INVENTORY``, by class name. If a class is repeated, its last amount
        counts. This does not check that the classes exist.
    :raises BadQuery: the value is blank, an item does not have exactly one colon, or an amount is not a positive
        integer.
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


def parse_required(values: Sequence[str], version: Version) -> NameFilter:
    """Read ``required``: ``TRAIT,!TRAIT`` or ``in:TRAIT,TRAIT`` (api-ref/resource-providers.md#lists-of-traits).

    :param values: the decoded values, in the order of the URL; may be empty. Below 1.39 only the last one is read.
    :param version: ``!`` is allowed from 1.22 on, ``in:`` from 1.39 on.
    :returns: the names in all values. ``A`` is the same as ``in:A``. This does not check that they exist.
    :raises BadQuery: a value is blank, has an empty item, or has a form that is not allowed.
    """
    any_of: dict[frozenset[str], None] = {}
    forbidden: frozenset[str] = frozenset()
    for value in values if version >= (1, 39) else values[-1:]:
        # Up to 1.29, ``in:`` is a part of the first name.
        if value.startswith('in:') and version >= (1, 30):
            any_of[_parse_any_of(value, version)] = None
        else:
            required, excluded = _parse_traits(value, version)
            for name in required:
                any_of[frozenset({name})] = None
            forbidden |= excluded
    return NameFilter(tuple(any_of), forbidden)


def parse_traits(value: str) -> tuple[frozenset[str], frozenset[str]]:
    """Read ``TRAIT,!TRAIT``, without ``in:``.

    :returns: the required and the forbidden names.
    :raises BadQuery: the value is blank, has an empty item, or begins with ``in:``.
    """
    if value.startswith('in:'):
        raise BadQuery(f"{INVALID_QUERY}'in:' is not supported in a list of traits of a root. Got: {value}")
    return _parse_traits(value, (1, 22))


def parse_member_of(values: Sequence[str], version: Version, suffix: str = '') -> NameFilter:
    """Read all values of ``member_of``: ``UUID`` or ``in:UUID,UUID``, with an optional ``!`` before it.

    The rules are in api-ref/resource-providers.md#lists-of-aggregates.

    :param values: the decoded values, in the order of the URL; may be empty.
    :param version: more than one value is allowed from 1.24 on, ``!`` from 1.32 on.
    :param suffix: the suffix of the group, for the text of errors.
    :raises BadQuery: there are several values or a ``!`` where this is not allowed, a list without ``in:``, or an
        element that is not a uuid.
    """
    if len(values) > 1 and version < (1, 24):
        raise BadQuery('Multiple member_of parameters are not supported')
    # Up to 1.29 ``!`` has no meaning, so a value that begins with it is not a valid uuid.
    exclamation = '!' if version >= (1, 30) else ''
    for value in values:
        if ',' in value and not value.startswith(('in:', f'{exclamation}in:')):
            keyword = "'in:' or '!in:' keyword" if version >= (1, 32) else "'in:' keyword"
            raise BadQuery(f"Multiple values for 'member_of' must be prefixed with the {keyword}. Got: {value}")
    any_of: dict[frozenset[str], None] = {}
    forbidden: frozenset[str] = frozenset()
    for value in values:
        elements = value.removeprefix(exclamation).removeprefix('in:').split(',')
        for element in elements:
            if not uuid_spelling.is_uuid(element):
                raise BadQuery(f"Expected 'member_of' parameter to contain valid UUID(s). Got: {element}")
        uuids = frozenset(map(uuid_spelling.aggregate_uuid, elements))
        if exclamation and value.startswith(exclamation):
            forbidden |= uuids
        else:
            any_of[uuids] = None
    if forbidden and version < (1, 32):
        raise BadQuery(f'Forbidden member_of{suffix} parameters are not supported in the specified microversion')
    return NameFilter(tuple(any_of), forbidden)


def parse_in_tree(value: str) -> str:
    """Return the canonical uuid of a provider. Blanks around it are ignored.

    :raises BadQuery: the value is not a uuid.
    """
    text = value.strip()
    if not uuid_spelling.is_uuid(text):
        raise BadQuery(f"{INVALID_QUERY}Expected 'in_tree' parameter to be a format of uuid. Got: {value}")
    return uuid_spelling.canonical_uuid(text)


def _parse_traits(value: str, version: Version) -> tuple[frozenset[str], frozenset[str]]:
    required: set[str] = set()
    forbidden: set[str] = set()
    for item in map(str.strip, value.split(',')):
        names = forbidden if item.startswith('!') else required
        names.add(item.lstrip('!'))
    forbidden_allowed = version >= (1, 22)
    if '' in required | forbidden or ('!' in value and not forbidden_allowed):
        sample = 'HW_CPU_X86_VMX,!CUSTOM_MAGIC' if forbidden_allowed else 'HW_CPU_X86_VMX,CUSTOM_MAGIC'
        raise BadQuery(f"{INVALID_QUERY}Expected 'required' parameter value of the form: {sample}. Got: {value}")
    return frozenset(required), frozenset(forbidden)


def _parse_any_of(value: str, version: Version) -> frozenset[str]:
    names = [item.strip() for item in value.removeprefix('in:').split(',')]
    if version < (1, 39):
        raise BadQuery(
            f"{INVALID_QUERY}The format '{_ANY_OF_SAMPLE}' only supported since microversion 1.39. Got: {value}"
        )
    if '' in names:
        raise BadQuery(
            f"{INVALID_QUERY}Expected 'required' parameter value of the form: {_ANY_OF_SAMPLE}. Got: {value}"
        )
    if any(name.startswith('!') for name in names):
        raise BadQuery(f"{INVALID_QUERY}The format '{_ANY_OF_SAMPLE}' does not support forbidden traits. Got: {value}")
    return frozenset(names)


def _parse_amount(name: str, text: str) -> int:
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise BadQuery(f'Requested resource {name} expected positive integer amount. Got: {text}.')
    sign, digits = match[1], match[2].lstrip('0') or '0'
    # Python does not convert very long numbers, so the number of digits is compared first.
    amount = BEYOND_ANY_INVENTORY if len(digits) > _MAX_DIGITS else min(int(digits), BEYOND_ANY_INVENTORY)
    if sign == '-' or amount < 1:
        raise BadQuery(f'Requested resource {name} requires amount >= 1. Got: {text}.')
    return amount
