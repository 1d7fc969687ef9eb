"""Parsing of the query string of GET /allocation_candidates into a ``CandidateRequest``.

``GET /resource_providers`` and the groups of ``GET /allocation_candidates`` share the grammar of ``resources``,
``required`` and ``member_of``. The additions of microversions are also here, so that both follow the same rules.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from placement import capacity, uuid_spelling
from placement.exception import INVALID_QUERY, BadQuery, BadQueryValue, DuplicateQueryKey, MissingQueryValue
from placement.schemas import Version
from placement.schemas import allocation_candidate as schema
from placement.search.request import CandidateRequest, NameSetFilter, RequestGroup
from placement.validation import Validator, for_version, parse_query, validate_query

_VALIDATORS = tuple((since, Validator(of_window)) for since, of_window in schema.GET)
_GROUP_KEY = re.compile(schema.GROUP_KEY)

#: Larger limits are reduced to this.
_MAX_LIMIT = 10**18

#: Requests of Nova and Neutron have about ten groups. With each group the search takes more steps.
MAX_REQUEST_GROUPS = 256

#: The parameters of which the first value counts, and the pattern of all their values. Of several invalid ones, the
#: error is about the last.
_FIRST_VALUE_COUNTS = {'limit': schema.LIMIT, 'group_policy': schema.GROUP_POLICY}

#: Stored amounts fit a signed 32-bit integer, so no inventory has this amount. It replaces larger requested amounts,
#: which find nothing either, so that sums of amounts fit 64 bits.
BEYOND_ANY_INVENTORY = capacity.MAX_INT32 + 1

#: The microversions from which on values may be repeated or have ``!`` or ``in:``.
REPEATED_MEMBER_OF, FORBIDDEN_MEMBER_OF = (1, 24), (1, 32)
FORBIDDEN_TRAITS, ANY_OF_TRAITS = (1, 22), (1, 39)

_INTEGER = re.compile(r'\s*([+-]?)([0-9]+)\s*')
_MAX_DIGITS = len(str(BEYOND_ANY_INVENTORY))

_ANY_OF_SAMPLE = 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'

#: The values of each key, in the order of the URL.
Values = Mapping[str, Sequence[str]]


class GroupParameter(NamedTuple):
    """One occurrence of a parameter of a group."""

    suffix: str
    name: str
    value: str


_suffix_of = operator.attrgetter('suffix')


def parse(text: str, version: Version) -> CandidateRequest:
    """Read a query string.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :param version: the microversion, which determines what the query string may contain.
    :raises BadQuery: the query string fails a check of api-ref/allocation-candidates.md.
    """
    pairs = parse_query(text)
    values: dict[str, list[str]] = {}
    of_groups: list[GroupParameter] = []
    for key, value in pairs:
        values.setdefault(key, []).append(value)
        if match := _GROUP_KEY.fullmatch(key):
            of_groups.append(GroupParameter(match[2] or '', match[1], value))
    # The first error is reported. The order of the checks is in api-ref/allocation-candidates.md.
    _validate(dict(pairs), values, version)
    if len(set(map(_suffix_of, of_groups))) > MAX_REQUEST_GROUPS:
        raise BadQuery(f'{INVALID_QUERY}more than {MAX_REQUEST_GROUPS} request groups.')
    root_traits = _parse_root_required(values['root_required']) if 'root_required' in values else NameSetFilter()
    same_subtree = _parse_same_subtree(values.get('same_subtree', ()))
    groups = _parse_groups(of_groups, values, version)
    if version >= (1, 36):
        _check_subtrees(groups, same_subtree)
    else:
        _check_orphans(groups, version)
    _check_conflicts(groups, version)
    policy, limit = values.get('group_policy', [None])[0], values.get('limit', [None])[0]
    if policy is None and sum([group.use_same_provider for group in groups]) > 1:
        raise BadQuery(
            'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        )
    return CandidateRequest(
        groups=groups,
        group_policy=policy,
        # Python does not convert numbers with thousands of digits.
        limit=None if limit is None else min(int(limit[:19]), _MAX_LIMIT),
        nested_aware=version >= (1, 29),
        with_mappings=version >= (1, 34),
        root_traits=root_traits,
        same_subtree=same_subtree,
    )


def _validate(params: dict[str, str], values: Values, version: Version) -> None:
    """Check the keys of a query string and the last value of each, and all values of ``_FIRST_VALUE_COUNTS``."""
    for key, pattern in _FIRST_VALUE_COUNTS.items():
        for value in values.get(key, ()):
            if not re.match(pattern, value):
                params[key] = value
    validate_query(params, for_version(_VALIDATORS, version))


def _parse_groups(parameters: Sequence[GroupParameter], values: Values, version: Version) -> tuple[RequestGroup, ...]:
    """Convert the parameters of groups to the fields of their ``RequestGroup``.

    :param parameters: in the order of the URL.
    """
    if version < (1, 30):
        # The first malformed value is reported: here of the first group, since 1.30 in the order of the URL.
        numbers = {suffix: number for number, suffix in enumerate(dict.fromkeys(map(_suffix_of, parameters)))}
        names = list(GROUP_READERS)
        parameters = sorted(parameters, key=lambda item: (numbers[item.suffix], names.index(item.name)))
    groups: dict[str, dict[str, Any]] = {}
    for suffix, name, value in parameters:
        reader, fields = GROUP_READERS[name], groups.setdefault(suffix, {})
        if reader.read_value:
            fields[reader.field] = reader.read_value(value)
        elif reader.read_all and reader.field not in fields:
            fields[reader.field] = reader.read_all(values[f'{name}{suffix}'], version, suffix)
    return tuple([RequestGroup(suffix, bool(suffix), **fields) for suffix, fields in groups.items()])


def _parse_root_required(values: Sequence[str]) -> NameSetFilter:
    if len(values) > 1:
        raise DuplicateQueryKey("Query parameter 'root_required' may be specified only once.")
    required, forbidden = parse_traits(values[0])
    both = ', '.join(sorted(required & forbidden))
    if both:
        raise BadQueryValue(f'Conflicting required and forbidden traits found in root_required: {both}')
    return NameSetFilter.all_of(required, forbidden)


def _parse_same_subtree(values: Sequence[str]) -> tuple[frozenset[str], ...]:
    subtrees: dict[frozenset[str], None] = {}
    for value in values:
        suffixes = frozenset(map(str.strip, value.split(',')))
        if '' in suffixes:
            raise BadQueryValue('Empty string (unsuffixed group) can not be specified in `same_subtree`.')
        subtrees[suffixes] = None
    return tuple(subtrees)


def _check_orphans(groups: Sequence[RequestGroup], version: Version) -> None:
    """Below 1.36, reject groups without ``resources``."""
    if not groups and version >= (1, 25):
        suffix = '$S' if version >= (1, 33) else 'N'
        raise BadQuery(f'At least one request group (`resources` or `resources{{{suffix}}}`) is required.')
    orphans = [group for group in groups if not group.resources]
    if not orphans:
        return
    traits = ', '.join(f'required{group.suffix}' for group in orphans if group.traits.any_of)
    if traits:
        raise BadQuery(
            'All traits parameters must be associated with resources.  Found the following orphaned traits keys: '
            + traits
        )
    member_of = ', '.join(f'member_of{group.suffix}' for group in orphans if group.aggregates.names)
    if member_of:
        raise BadQuery(
            'All member_of parameters must be associated with resources. Found the following orphaned member_of keys: '
            + member_of
        )
    raise BadQuery('All request groups must specify resources.')


def _check_subtrees(groups: Sequence[RequestGroup], same_subtree: Sequence[frozenset[str]]) -> None:
    """Reject groups without ``resources`` unless a ``same_subtree`` names them, and suffixes without a group."""
    if not any(group.resources for group in groups):
        raise MissingQueryValue('There must be at least one resources or resources[$S] parameter.')
    named: frozenset[str] = frozenset().union(*same_subtree)
    orphans = [group.suffix for group in groups if not group.resources and group.suffix not in named]
    if orphans:
        raise BadQueryValue(
            'Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s) - '
            f'{orphans}.'
        )
    unknown = ', '.join(f"'{suffix}'" for suffix in sorted(named - {group.suffix for group in groups}))
    if unknown:
        raise BadQueryValue(f'Real suffixes should be specified in `same_subtree`: no group has {unknown}.')


def _check_conflicts(groups: Sequence[RequestGroup], version: Version) -> None:
    """Reject groups that require and forbid the same trait, or forbid all traits of an ``in:``."""
    conflicts = []
    for group in groups:
        impossible = list(filter(group.traits.forbidden.issuperset, group.traits.any_of))
        if impossible:
            # Traits that are required alone are in one text, those of each ``in:`` in another.
            alone = frozenset().union(*[any_of for any_of in impossible if len(any_of) == 1])
            both = filter(None, (alone, *[any_of for any_of in impossible if len(any_of) > 1]))
            conflicts += [f'required{group.suffix}: ({", ".join(sorted(traits))})' for traits in both]
    if conflicts:
        raise BadQuery(
            'Conflicting required and forbidden traits found in the following traits keys: '
            + ', '.join(conflicts if version < (1, 30) else sorted(conflicts))
        )


# Values ---------------------------------------------------------------------------------------------------------


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


def parse_required(values: Sequence[str], version: Version) -> NameSetFilter:
    """Read ``required``: ``TRAIT,!TRAIT`` or ``in:TRAIT,TRAIT`` (api-ref/resource-providers.md#lists-of-traits).

    :param values: the decoded values, in the order of the URL; may be empty. Below 1.39 only the last one is read.
    :param version: ``!`` is allowed from 1.22 on, ``in:`` from 1.39 on.
    :returns: the names in all values. ``A`` is the same as ``in:A``. This does not check that they exist.
    :raises BadQuery: a value is blank, has an empty item, or has a form that is not allowed.
    """
    any_of: dict[frozenset[str], None] = {}
    forbidden: frozenset[str] = frozenset()
    for value in values if version >= ANY_OF_TRAITS else values[-1:]:
        # Up to 1.29, ``in:`` is a part of the first name.
        if value.startswith('in:') and version >= (1, 30):
            any_of[_parse_any_of(value, version)] = None
        else:
            required, excluded = _parse_traits(value, version)
            for name in required:
                any_of[frozenset({name})] = None
            forbidden |= excluded
    return NameSetFilter(tuple(any_of), forbidden)


def parse_traits(value: str) -> tuple[frozenset[str], frozenset[str]]:
    """Read ``TRAIT,!TRAIT``, without ``in:``.

    :returns: the required and the forbidden names.
    :raises BadQuery: the value is blank, has an empty item, or begins with ``in:``.
    """
    if value.startswith('in:'):
        raise BadQuery(f"{INVALID_QUERY}'in:' is not supported in a list of traits of a root. Got: {value}")
    return _parse_traits(value, FORBIDDEN_TRAITS)


def parse_member_of(values: Sequence[str], version: Version, suffix: str | None = None) -> NameSetFilter:
    """Read all values of ``member_of``: ``UUID`` or ``in:UUID,UUID``, with an optional ``!`` before it.

    The rules are in api-ref/resource-providers.md#lists-of-aggregates.

    :param values: the decoded values, in the order of the URL; may be empty.
    :param version: more than one value is allowed from 1.24 on, ``!`` from 1.32 on.
    :param suffix: the suffix of the group; None for a list of providers.
    :raises BadQuery: there are several values or a ``!`` where this is not allowed, a list without ``in:``, or an
        element that is not a uuid.
    """
    if len(values) > 1 and version < REPEATED_MEMBER_OF:
        raise BadQuery('Multiple member_of parameters are not supported')
    # Up to 1.29 ``!`` has no meaning, so a value that begins with it is not a valid uuid.
    exclamation = '!' if version >= (1, 30) else ''
    any_of: dict[frozenset[str], None] = {}
    forbidden: frozenset[str] = frozenset()
    # Since 1.30 the first malformed value of a group is reported; otherwise each check is made of all values.
    one_by_one = suffix is not None and version >= (1, 30)
    for batch in [[value] for value in values] if one_by_one else [values]:
        for value in batch:
            if ',' in value and not value.startswith(('in:', f'{exclamation}in:')):
                keyword = "'in:' or '!in:' keyword" if version >= FORBIDDEN_MEMBER_OF else "'in:' keyword"
                raise BadQuery(f"Multiple values for 'member_of' must be prefixed with the {keyword}. Got: {value}")
        for value in batch:
            elements = value.removeprefix(exclamation).removeprefix('in:').split(',')
            for element in elements:
                if not uuid_spelling.is_uuid(element):
                    raise BadQuery(f"Expected 'member_of' parameter to contain valid UUID(s). Got: {element}")
            uuids = frozenset(map(uuid_spelling.aggregate_uuid, elements))
            if exclamation and value.startswith(exclamation):
                forbidden |= uuids
            else:
                any_of[uuids] = None
        if forbidden and version < FORBIDDEN_MEMBER_OF:
            raise BadQuery(
                f'Forbidden member_of{suffix or ""} parameters are not supported in the specified microversion'
            )
    return NameSetFilter(tuple(any_of), forbidden)


def parse_uuid(parameter: str, value: str) -> str:
    """Return the canonical uuid of a provider. Blanks around it are ignored.

    :raises BadQuery: the value is not a uuid.
    """
    text = value.strip()
    if not uuid_spelling.is_uuid(text):
        raise BadQuery(f"{INVALID_QUERY}Expected '{parameter}' parameter to be a format of uuid. Got: {value}")
    return uuid_spelling.canonical_uuid(text)


def _parse_traits(value: str, version: Version) -> tuple[frozenset[str], frozenset[str]]:
    required: set[str] = set()
    forbidden: set[str] = set()
    for item in map(str.strip, value.split(',')):
        names = forbidden if item.startswith('!') else required
        names.add(item.lstrip('!'))
    forbidden_allowed = version >= FORBIDDEN_TRAITS
    if '' in required | forbidden or ('!' in value and not forbidden_allowed):
        sample = 'HW_CPU_X86_VMX,!CUSTOM_MAGIC' if forbidden_allowed else 'HW_CPU_X86_VMX,CUSTOM_MAGIC'
        raise BadQuery(f"{INVALID_QUERY}Expected 'required' parameter value of the form: {sample}. Got: {value}")
    return frozenset(required), frozenset(forbidden)


def _parse_any_of(value: str, version: Version) -> frozenset[str]:
    names = [item.strip() for item in value.removeprefix('in:').split(',')]
    if version < ANY_OF_TRAITS:
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


# The parameters of groups ---------------------------------------------------------------------------------------


class GroupReader(NamedTuple):
    """How the values of a parameter of a group become a field of its ``RequestGroup``."""

    field: str
    #: Converts a value. Of several the last one counts, but all have to be well-formed.
    read_value: Callable[[str], Any] | None = None
    #: Converts all values together, at the first occurrence. It also gets the microversion and the suffix.
    read_all: Callable[[Sequence[str], Version, str], Any] | None = None

    @classmethod
    def uuid(cls, parameter: str) -> GroupReader:
        """Return the reader of a parameter whose value is the uuid of a provider, for the field with its name."""
        return cls(parameter, read_value=functools.partial(parse_uuid, parameter))


#: By the name of the parameter, in the order in which those of a group are read below 1.30.
GROUP_READERS = {
    'member_of': GroupReader('aggregates', read_all=parse_member_of),
    'resources': GroupReader('resources', read_value=parse_resources),
    'required': GroupReader('traits', read_all=lambda values, version, _suffix: parse_required(values, version)),
    'in_tree': GroupReader.uuid('in_tree'),
}
