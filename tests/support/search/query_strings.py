"""Query strings of GET /allocation_candidates, read for the oracle as api-ref/allocation-candidates.md has them.

It shares no code with the service, so that a test that compares the two compares the reading of the request as well.
What an error says is left to gabbits.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Mapping
from urllib.parse import parse_qsl, urlencode

from tests.support.search.oracle import Group, Query

_NAMESPACE = uuid.UUID('5b0f1b52-6f55-4b7e-8a44-0c1a33a1a111')

#: The parameters with uuids in them, which examples and tests give by name.
_UUID_PARAMETERS = re.compile(r'(member_of|in_tree)')

#: The minor versions that added the parameters of the request, and those of groups. This is part of the model.
_SINCE = {'limit': 16, 'group_policy': 25, 'root_required': 35, 'same_subtree': 36}
_GROUP_SINCE = {'resources': 10, 'required': 17, 'member_of': 21, 'in_tree': 31}
#: The parameters that the model reads.
PARAMETER_NAMES = {*_SINCE, *_GROUP_SINCE}


class RejectedError(Exception):
    """The query is answered with 400."""


def _require(condition: object) -> None:
    if not condition:
        raise RejectedError


def uuid_of(name: str) -> str:
    """The uuid of the provider or aggregate called ``name``."""
    return str(uuid.uuid5(_NAMESPACE, name))


def with_uuids(query: str) -> str:
    """The query string with the names of aggregates and providers in it replaced by uuids."""

    def replaced(key: str, value: str) -> str:
        if not _UUID_PARAMETERS.match(key):
            return value
        return re.sub(r'(?<![\w-])(?!in:)[\w-]+', lambda match: uuid_of(match[0]), value)

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
    query = Query([], minor=minor)
    groups: dict[str, Group] = {}
    seen: set[str] = set()
    for key, value in pairs:
        parameter, suffix = _split(key, minor)
        if parameter in _GROUP_SINCE:
            values = [other for name, other in pairs if name == key]
            _read_group(groups.setdefault(suffix, Group(suffix, {})), parameter, value, values, minor, names or {})
        else:
            _read_whole(query, parameter, value, is_first=key not in seen)
        seen.add(key)
    query.groups = list(groups.values())
    _check_groups(query)
    used = query.root_required.union(query.root_forbidden)
    for group in query.groups:
        _require(group.resources.keys() <= set(classes))
        used = used.union(group.required, group.forbidden, *group.any_of)
    _require(used <= set(traits))
    return query


def _split(key: str, minor: int) -> tuple[str, str]:
    """The parameter and the suffix of a key that exists."""
    suffixes = '[a-zA-Z0-9_-]{0,64}' if minor >= 33 else '([1-9][0-9]*)?' if minor >= 25 else ''
    match = re.fullmatch(f'({"|".join(_GROUP_SINCE)})({suffixes})', key)
    parameter, suffix = (match[1], match[2]) if match else (key, '')
    _require(minor >= (_GROUP_SINCE if match else _SINCE).get(parameter, 100))
    return parameter, suffix


# The conditions on the whole candidate ---------------------------------------------------------------------------


def _read_whole(query: Query, parameter: str, value: str, is_first: bool) -> None:
    """Of a repeated limit or policy, the first one is used."""
    if parameter == 'limit':
        _require(re.fullmatch('[1-9][0-9]*', value))
        query.limit = int(value) if is_first else query.limit
    elif parameter == 'group_policy':
        _require(value in ('none', 'isolate'))
        query.policy = value if is_first else query.policy
    elif parameter == 'root_required':
        _require(is_first and not value.startswith('in:'))
        query.root_required, query.root_forbidden = _traits(value, 38)
        _require(query.root_required.isdisjoint(query.root_forbidden))
    else:
        suffixes = {item.strip() for item in value.split(',')}
        _require('' not in suffixes)
        query.same_subtree.append(suffixes)


# Groups ----------------------------------------------------------------------------------------------------------


def _read_group(
    group: Group, parameter: str, value: str, values: list[str], minor: int, names: Mapping[str, str]
) -> None:
    """Read one value of a parameter; ``values`` are all."""
    if parameter == 'resources':
        group.resources = _amounts(value)
    elif parameter == 'in_tree':
        group.in_tree = _named(value.strip(), names)
    elif parameter == 'member_of':
        _require(minor >= 24 or len(values) == 1)
        _read_member_of(group, value, minor, names)
    elif value.startswith('in:') and minor >= 39:
        alternatives = {item.strip() for item in value.removeprefix('in:').split(',')}
        _require(not any(item == '' or item[0] == '!' for item in alternatives))
        group.any_of.append(alternatives)
    elif minor >= 39 or value is values[-1]:
        _require(minor < 30 or not value.startswith('in:'))
        required, forbidden = _traits(value, minor)
        group.required |= required
        group.forbidden |= forbidden


def _amounts(value: str) -> dict[str, int]:
    amounts = {}
    for item in value.split(','):
        match = re.fullmatch(r'([^:]*):\s*\+?(\d+)\s*', item)
        if match is None or int(match[2]) < 1:
            raise RejectedError
        amounts[match[1]] = int(match[2])
    return amounts


def _traits(value: str, minor: int) -> tuple[set[str], set[str]]:
    """The required and the forbidden traits of a value without ``in:``."""
    items = [item.strip() for item in value.split(',')]
    bare = [item.lstrip('!') for item in items]
    _require('' not in bare and (minor >= 22 or bare == items))
    return {item for item in items if item[0] != '!'}, {item.lstrip('!') for item in items if item[0] == '!'}


def _read_member_of(group: Group, value: str, minor: int, names: Mapping[str, str]) -> None:
    forbids = value.startswith('!')
    rest = value[1:] if forbids else value
    _require(not forbids or minor >= 32)
    _require(',' not in rest or rest.startswith('in:'))
    # Aggregates are compared as they are spelled, except spellings that are too long for the column.
    items = rest.removeprefix('in:').split(',')
    readings = {item: _named(item, names) for item in items}
    aggregates = {readings[item] if item in names or len(item) > 36 else item for item in items}
    if forbids:
        group.not_member_of |= aggregates
    else:
        group.member_of.append(aggregates)


def _named(text: str, names: Mapping[str, str]) -> str:
    """The name of what has this uuid, in any spelling; the uuid if it has none."""
    bare = text.replace('urn:', '').replace('uuid:', '').strip('{}').replace('-', '')
    _require(re.fullmatch('[0-9a-fA-F]{32}', bare))
    canonical = str(uuid.UUID(bare))
    return names.get(canonical, canonical)


def _check_groups(query: Query) -> None:
    """Reject a request in which something is missing or contradictory."""
    bare = {group.suffix for group in query.groups if not group.resources}
    subtrees = set().union(*query.same_subtree)
    _require(len(bare) < len(query.groups))
    _require(bare <= subtrees <= {group.suffix for group in query.groups})
    for group in query.groups:
        _require(not group.required & group.forbidden)
        _require(not any(alternatives <= group.forbidden for alternatives in group.any_of))
    _require(query.policy or sum(bool(group.suffix) for group in query.groups) <= 1)
