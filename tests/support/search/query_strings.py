"""Query strings of GET /allocation_candidates, read for the oracle as api-ref/allocation-candidates.md has them.

It shares no code with the service, so that a test that compares the two compares the reading of the request as well.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Collection, Mapping
from urllib.parse import parse_qsl, urlencode

from tests.support.search.oracle import Group, Query

_NAMESPACE = uuid.UUID('5b0f1b52-6f55-4b7e-8a44-0c1a33a1a111')
_LEAD = 'Invalid query string parameters:'
_BAD_VALUE = 'placement.query.bad_value'
_IN = "The format 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'"

#: The parameters with uuids in them, which examples and tests give by name.
_NAMED = re.compile(r'(member_of|in_tree)')


class RejectedError(Exception):
    """The query is answered with 400, an error code, and a detail that contains all ``phrases``."""

    def __init__(self, *phrases: str, code: str = 'placement.undefined_code') -> None:
        super().__init__(*phrases)
        self.phrases = phrases
        self.code = code


def uuid_of(name: str) -> str:
    """The uuid of the provider or aggregate called ``name``."""
    return str(uuid.uuid5(_NAMESPACE, name))


def with_uuids(query: str, uuid_of: Callable[[str], str] = uuid_of) -> str:
    """The query string with the names of aggregates and providers in it replaced by uuids."""

    def replaced(key: str, value: str) -> str:
        return (
            re.sub(r'(?<![\w-])(?!in:)[\w-]+', lambda match: uuid_of(match[0]), value) if _NAMED.match(key) else value
        )

    return urlencode([(key, replaced(key, value)) for key, value in parse_qsl(query, keep_blank_values=True)])


def parse(
    text: str,
    minor: int,
    *,
    classes: Collection[str],
    traits: Collection[str],
    names: Mapping[str, str] | None = None,
) -> Query:
    """Read a query string at microversion 1.``minor``.

    :param classes: the resource classes that exist.
    :param traits: the traits that exist.
    :param names: the names of providers and aggregates by their uuids; the uuids of others are their names.
    :raises RejectedError: if the answer is 400.
    """
    pairs = parse_qsl(text, keep_blank_values=True)
    _check_keys_and_simple_values(pairs, minor)
    query = Query([], minor=minor)
    query.limit = next((int(value) for key, value in pairs if key == 'limit'), None)
    query.policy = next((value for key, value in pairs if key == 'group_policy'), None)
    _read_root_required(query, [value for key, value in pairs if key == 'root_required'])
    _read_same_subtree(query, [value for key, value in pairs if key == 'same_subtree'])
    _read_groups(query, pairs, names or {})
    _check_groups(query)
    _check_names(query, classes, traits)
    return query


# The parts of the key ------------------------------------------------------------------------------------------


def _suffix_pattern(minor: int) -> str:
    if minor >= 33:
        return '[a-zA-Z0-9_-]{0,64}'
    return '([1-9][0-9]*)?' if minor >= 25 else ''


def _split(key: str) -> tuple[str, str] | None:
    """The parameter and the suffix of a key, None of one that belongs to no group."""
    match = re.fullmatch(r'(resources|required|member_of|in_tree)(.*)', key, re.DOTALL)
    return (match[1], match[2]) if match else None


def _known(key: str, minor: int) -> bool:
    since = {'limit': 16, 'group_policy': 25, 'root_required': 35, 'same_subtree': 36}
    if key in since:
        return minor >= since[key]
    parts = _split(key)
    since = {'resources': 10, 'required': 17, 'member_of': 21, 'in_tree': 31}
    return parts is not None and minor >= since[parts[0]] and bool(re.fullmatch(_suffix_pattern(minor), parts[1]))


def _check_keys_and_simple_values(pairs: list[tuple[str, str]], minor: int) -> None:
    """If several of these are wrong, any of them may be named, so the lead alone is certain."""
    problems = []
    for key, value in pairs:
        if not _known(key, minor):
            problems.append(
                'Additional properties are not allowed' if minor < 25 else f"'{key}' does not match any of the"
            )
        elif key == 'limit' and not re.fullmatch('[1-9][0-9]*', value):
            problems.append("Failed validating 'pattern'")
        elif key == 'group_policy' and value not in ('none', 'isolate'):
            problems.append(f"'{value}' is not one of ['none', 'isolate']")
    if minor < 25 and 'resources' not in dict(pairs):
        problems.append("'resources' is a required property")
    if problems:
        raise RejectedError(_LEAD, *(problems if len(problems) == 1 else []))


# The conditions on the whole candidate ---------------------------------------------------------------------------


def _read_root_required(query: Query, values: list[str]) -> None:
    if len(values) > 1:
        text = "Query parameter 'root_required' may be specified only once."
        raise RejectedError(text, code='placement.query.duplicate_key')
    for value in values:
        if value.startswith('in:'):
            raise RejectedError(_LEAD)
        query.root_required, query.root_forbidden = _traits(value, 38)
    both = sorted(query.root_required & query.root_forbidden)
    if both:
        text = f'Conflicting required and forbidden traits found in root_required: {", ".join(both)}'
        raise RejectedError(text, code=_BAD_VALUE)


def _read_same_subtree(query: Query, values: list[str]) -> None:
    for value in values:
        suffixes = [item.strip() for item in value.split(',')]
        if '' in suffixes:
            text = 'Empty string (unsuffixed group) can not be specified in `same_subtree`'
            raise RejectedError(text, code=_BAD_VALUE)
        query.same_subtree.append(set(suffixes))


# Groups ----------------------------------------------------------------------------------------------------------


def _read_groups(query: Query, pairs: list[tuple[str, str]], names: Mapping[str, str]) -> None:
    """Read the parameters of groups in the order of the URL; the first that is badly formed decides."""
    groups: dict[str, Group] = {}
    seen = set()
    for key, value in pairs:
        parts = _split(key)
        if parts is None:
            continue
        name, suffix = parts
        group = groups.setdefault(suffix, Group(suffix, {}))
        if name == 'resources':
            group.resources = _amounts(value)
        elif name == 'in_tree':
            group.in_tree = _tree(value, names)
        elif key not in seen:
            values = [other for parameter, other in pairs if parameter == key]
            read = _read_required if name == 'required' else _read_member_of
            read(group, values, query.minor, names)
        seen.add(key)
    query.groups = list(groups.values())


def _amounts(value: str) -> dict[str, int]:
    if not value.strip():
        raise RejectedError('Badly formed resources parameter', 'Got: empty string.')
    amounts = {}
    for item in value.split(','):
        if item.count(':') != 1:
            raise RejectedError('Badly formed resources parameter. Expected resources query string parameter in form:')
        name, amount = item.split(':')
        if not re.fullmatch(r'\s*[+-]?\d+\s*', amount):
            raise RejectedError(f'Requested resource {name} expected positive integer amount.')
        if int(amount) < 1:
            raise RejectedError(f'Requested resource {name} requires amount >= 1.')
        amounts[name] = int(amount)
    return amounts


def _read_required(group: Group, values: list[str], minor: int, names: Mapping[str, str]) -> None:
    for value in values if minor >= 39 else values[-1:]:
        if value.startswith('in:') and minor >= 39:
            group.any_of.append(_any_traits(value.removeprefix('in:')))
        elif value.startswith('in:') and minor >= 30:
            raise RejectedError(_LEAD, f'{_IN} only supported since microversion 1.39.')
        else:
            required, forbidden = _traits(value, minor)
            group.required |= required
            group.forbidden |= forbidden


def _any_traits(text: str) -> set[str]:
    items = {item.strip() for item in text.split(',')}
    if '' in items:
        form = 'in:HW_CPU_X86_VMX,CUSTOM_MAGIC'
        raise RejectedError(_LEAD, f"Expected 'required' parameter value of the form: {form}.")
    if any(item.startswith('!') for item in items):
        raise RejectedError(_LEAD, f'{_IN} does not support forbidden traits.')
    return items


def _traits(value: str, minor: int) -> tuple[set[str], set[str]]:
    """The required and the forbidden traits of a value without ``in:``."""
    items = [item.strip() for item in value.split(',')]
    bare = [item.lstrip('!') for item in items]
    if '' in bare or (minor < 22 and bare != items):
        sample = 'HW_CPU_X86_VMX,!CUSTOM_MAGIC' if minor >= 22 else 'HW_CPU_X86_VMX,CUSTOM_MAGIC'
        raise RejectedError(_LEAD, f'of the form: {sample}.')
    return {item for item in items if item[0] != '!'}, {item.lstrip('!') for item in items if item[0] == '!'}


def _read_member_of(group: Group, values: list[str], minor: int, names: Mapping[str, str]) -> None:
    if minor < 24 and len(values) > 1:
        raise RejectedError('Multiple member_of parameters are not supported')
    for value in values:
        forbids = value.startswith('!') and minor >= 30
        rest = value[1:] if forbids else value
        if ',' in rest and not rest.startswith('in:'):
            raise RejectedError("Multiple values for 'member_of' must be prefixed with the")
        aggregates = set()
        for item in rest.removeprefix('in:').split(','):
            canonical = _canonical(item)
            if canonical is None:
                raise RejectedError("Expected 'member_of' parameter to contain valid UUID(s).")
            aggregates.add(names.get(canonical, canonical))
        if forbids and minor < 32:
            text = f'Forbidden member_of{group.number} parameters are not supported in the specified microversion'
            raise RejectedError(text)
        if forbids:
            group.not_member_of |= aggregates
        else:
            group.member_of.append(aggregates)


def _tree(value: str, names: Mapping[str, str]) -> str:
    canonical = _canonical(value.strip())
    if canonical is None:
        raise RejectedError(_LEAD, "Expected 'in_tree' parameter to be a format of uuid.")
    return names.get(canonical, canonical)


def _canonical(text: str) -> str | None:
    """The canonical spelling of a uuid, None of anything else."""
    bare = text.replace('urn:', '').replace('uuid:', '').strip('{}').replace('-', '')
    return str(uuid.UUID(bare)) if re.fullmatch('[0-9a-fA-F]{32}', bare) else None


# What is missing, contradictory or unknown -----------------------------------------------------------------------


def _check_groups(query: Query) -> None:
    if query.minor >= 36:
        _check_resources_since_136(query)
    else:
        _check_resources_below_136(query)
    _check_conflicts(query)
    if sum(bool(group.number) for group in query.groups) > 1 and query.policy is None:
        text = 'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
        raise RejectedError(text)


def _check_resources_since_136(query: Query) -> None:
    suffixes = {group.number for group in query.groups}
    named = set().union(*query.same_subtree)
    if not any(group.resources for group in query.groups):
        text = 'There must be at least one resources or resources[$S] parameter.'
        raise RejectedError(text, code='placement.query.missing_value')
    stray = [group.number for group in query.groups if not group.resources and group.number not in named]
    if stray:
        text = 'Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s) -'
        raise RejectedError(text, *(f"'{suffix}'" for suffix in stray), code=_BAD_VALUE)
    if named - suffixes:
        text = 'Real suffixes should be specified in `same_subtree`:'
        raise RejectedError(text, *(f"'{suffix}'" for suffix in named - suffixes), code=_BAD_VALUE)


def _check_resources_below_136(query: Query) -> None:
    without = [group for group in query.groups if not group.resources]
    if any(group.required for group in without):
        raise RejectedError('All traits parameters must be associated with resources.')
    if any(group.member_of or group.not_member_of for group in without):
        raise RejectedError('All member_of parameters must be associated with resources.')
    if without:
        raise RejectedError('All request groups must specify resources.')
    if not query.groups:
        raise RejectedError('At least one request group (`resources` or `resources{')


def _check_conflicts(query: Query) -> None:
    lead = 'Conflicting required and forbidden traits found in the following traits keys: '
    conflicts = []
    for group in query.groups:
        alternatives = [{trait} for trait in group.required] + group.any_of
        contradictory = [traits for traits in alternatives if traits <= group.forbidden]
        if contradictory:
            traits = ', '.join(sorted(contradictory[0])) if len(contradictory) == 1 else ''
            conflicts.append(f'required{group.number}: ({traits})' if traits else f'required{group.number}: (')
    if conflicts:
        raise RejectedError(lead, *conflicts)


def _check_names(query: Query, classes: Collection[str], traits: Collection[str]) -> None:
    """If both a class and a trait do not exist, either may be named."""
    unknown_classes = {name for group in query.groups for name in group.resources if name not in classes}
    used = query.root_required | query.root_forbidden
    for group in query.groups:
        used = used.union(group.required, group.forbidden, *group.any_of)
    unknown_traits = sorted(used.difference(traits))
    if unknown_classes and unknown_traits:
        raise RejectedError('No such ')
    if unknown_classes:
        raise RejectedError('Invalid resource class in resources parameter:', 'No such resource class ')
    if unknown_traits:
        raise RejectedError(f'No such trait(s): {", ".join(unknown_traits)}.')
