"""Parsing of the query string of GET /allocation_candidates into a ``CandidateRequest``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placement import schemas
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.schemas import allocation_candidate as schema
from placement.web import error_document, query, validation
from placement.web.query import BadQuery, TraitFilter, Version

_GROUP_KEY = re.compile(schema.GROUP_KEY)

#: Larger limits are reduced to this, since Python does not convert numerals of thousands of digits.
_LARGEST_LIMIT = 10**18

_NO_RESOURCES_FOR_TRAITS = (
    'All traits parameters must be associated with resources.  Found the following orphaned traits keys: {keys}'
)
_NO_RESOURCES_FOR_MEMBER_OF = (
    'All member_of parameters must be associated with resources. Found the following orphaned member_of keys: {keys}'
)
_CONFLICTING = 'Conflicting required and forbidden traits found in the following traits keys: {keys}'
_NO_POLICY = 'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
_NO_GROUP = 'At least one request group (`resources` or `resources{{{suffix}}}`) is required.'
_NO_RESOURCES = 'There must be at least one resources or resources[$S] parameter.'
_NOT_IN_SUBTREE = (
    'Resourceless suffixed group request should be specified in `same_subtree` query param: bad group(s) - {suffixes}.'
)
_UNKNOWN_IN_SUBTREE = 'Real suffixes should be specified in `same_subtree`: no group has {suffixes}.'
_EMPTY_IN_SUBTREE = 'Empty string (unsuffixed group) can not be specified in `same_subtree`.'
_ROOT_TWICE = "Query parameter 'root_required' may be specified only once."
_ROOT_CONFLICTING = 'Conflicting required and forbidden traits found in root_required: {traits}'

#: Requests of Nova and Neutron have some ten groups. The search takes more steps with each.
MAX_REQUEST_GROUPS = 256

Values = Mapping[str, Sequence[str]]


def parse(text: str, version: Version) -> CandidateRequest:
    """Read a query string.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :param version: the microversion that decides what it may contain.
    :raises BadQuery: with the text of the first check of api-ref/allocation-candidates.md that it fails.
    """
    pairs = query.pairs(text)
    values = _values(pairs)
    _check_keys(values, version)
    suffixes = _suffixes(values)
    if len(suffixes) > MAX_REQUEST_GROUPS:
        raise BadQuery(f'Invalid query string parameters: more than {MAX_REQUEST_GROUPS} request groups.')
    root = _root_traits(values)
    same_subtree = tuple(dict.fromkeys(map(_suffixes_of_subtree, values.get('same_subtree', ()))))
    groups = _groups(suffixes, pairs, values, version)
    if version >= (1, 36):
        _check_subtrees(groups, same_subtree)
    else:
        _check_orphans(groups, version)
    _check_conflicts(groups, version)
    policy = values.get('group_policy', [None])[0]
    if policy is None and sum(group.use_same_provider for group in groups) > 1:
        raise BadQuery(_NO_POLICY)
    return CandidateRequest(
        groups=tuple(groups),
        group_policy=policy,
        limit=_limit(values),
        nested_aware=version >= (1, 29),
        with_traits=version >= (1, 17),
        with_mappings=version >= (1, 34),
        root_required=root.required,
        root_forbidden=root.forbidden,
        same_subtree=same_subtree,
    )


def _values(pairs: Sequence[tuple[str, str]]) -> Values:
    """Return the values of each key, in the order of the URL."""
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    return values


def _check_keys(values: Values, version: Version) -> None:
    """Validate the keys, and every value of ``limit`` and ``group_policy``; the last invalid value is reported."""
    params = {key: occurrences[-1] for key, occurrences in values.items()}
    for key, pattern in (('limit', schema.LIMIT), ('group_policy', schema.GROUP_POLICY)):
        params.update((key, value) for value in values.get(key, ()) if not re.match(pattern, value))
    try:
        validation.validate(params, schemas.for_version(schema.GET, version))
    except validation.ValidationError as error:
        raise BadQuery(f'Invalid query string parameters: {error}') from error


def _suffixes(values: Values) -> list[str]:
    """Return the suffixes of the request groups, in the order of the URL."""
    keys = (_GROUP_KEY.fullmatch(key) for key in values)
    return list(dict.fromkeys(key[2] or '' for key in keys if key))


def _root_traits(values: Values) -> TraitFilter:
    """Read ``root_required``."""
    found = values.get('root_required', ())
    if len(found) > 1:
        raise BadQuery(_ROOT_TWICE, error_document.QUERY_DUPLICATE_KEY)
    traits = query.parse_traits(found[0]) if found else TraitFilter()
    both = ', '.join(sorted(traits.required & traits.forbidden))
    if both:
        raise BadQuery(_ROOT_CONFLICTING.format(traits=both), error_document.QUERY_BAD_VALUE)
    return traits


def _suffixes_of_subtree(value: str) -> frozenset[str]:
    """Read one value of ``same_subtree``."""
    suffixes = frozenset(item.strip() for item in value.split(','))
    if '' in suffixes:
        raise BadQuery(_EMPTY_IN_SUBTREE, error_document.QUERY_BAD_VALUE)
    return suffixes


def _groups(
    suffixes: Sequence[str], pairs: Sequence[tuple[str, str]], values: Values, version: Version
) -> list[RequestGroup]:
    """Read the parameters of all groups. Which of several malformed values is reported depends on the microversion."""
    groups = {suffix: RequestGroup(suffix, bool(suffix), {}) for suffix in suffixes}
    for kind, suffix, found in _readings(suffixes, pairs, values, version):
        group = groups[suffix]
        if kind == 'resources':
            # The last one counts, but all of them must be well-formed.
            group = replace(group, resources=query.parse_resources(found[-1]))
        elif kind == 'in_tree':
            group = replace(group, in_tree=query.parse_in_tree(found[-1]))
        elif kind == 'member_of':
            member_of = query.parse_member_of(found, version, suffix)
            group = replace(group, member_of=member_of.any_of, forbidden_aggregates=member_of.forbidden)
        else:
            traits = query.parse_required(found, version)
            group = replace(group, required=traits.required, forbidden=traits.forbidden, required_any=traits.any_of)
        groups[suffix] = group
    return list(groups.values())


def _readings(
    suffixes: Sequence[str], pairs: Sequence[tuple[str, str]], values: Values, version: Version
) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield the kind of each parameter of a group, its suffix, and the values to be read at once, in order of reading.

    Up to 1.29 that is group by group, from 1.30 on the order of the URL.
    """
    if version < (1, 30):
        for suffix in suffixes:
            yield 'member_of', suffix, values.get(f'member_of{suffix}', ())
            for value in values.get(f'resources{suffix}', ()):
                yield 'resources', suffix, [value]
            yield 'required', suffix, values.get(f'required{suffix}', ())
        return
    seen: set[str] = set()
    for key, value in pairs:
        found = _GROUP_KEY.fullmatch(key)
        if found is None:
            continue
        kind, suffix = found[1], found[2] or ''
        if kind in ('resources', 'in_tree'):
            yield kind, suffix, [value]
        elif key not in seen:
            yield kind, suffix, values[key]
        seen.add(key)


def _check_orphans(groups: Sequence[RequestGroup], version: Version) -> None:
    """Reject groups without ``resources``, below 1.36."""
    orphans = [group for group in groups if not group.resources]
    traits = ', '.join(f'required{group.suffix}' for group in orphans if group.required)
    if traits:
        raise BadQuery(_NO_RESOURCES_FOR_TRAITS.format(keys=traits))
    member_of = ', '.join(
        f'member_of{group.suffix}' for group in orphans if group.member_of or group.forbidden_aggregates
    )
    if member_of:
        raise BadQuery(_NO_RESOURCES_FOR_MEMBER_OF.format(keys=member_of))
    if orphans:
        raise BadQuery('All request groups must specify resources.')
    if not groups and version >= (1, 25):
        raise BadQuery(_NO_GROUP.format(suffix='$S' if version >= (1, 33) else 'N'))


def _check_subtrees(groups: Sequence[RequestGroup], same_subtree: Sequence[frozenset[str]]) -> None:
    """Reject groups without ``resources`` unless a ``same_subtree`` names them, and suffixes without a group."""
    if not any(group.resources for group in groups):
        raise BadQuery(_NO_RESOURCES, error_document.QUERY_MISSING_VALUE)
    named: frozenset[str] = frozenset().union(*same_subtree)
    orphans = [group.suffix for group in groups if not group.resources and group.suffix not in named]
    if orphans:
        raise BadQuery(_NOT_IN_SUBTREE.format(suffixes=orphans), error_document.QUERY_BAD_VALUE)
    unknown = ', '.join(f"'{suffix}'" for suffix in sorted(named - {group.suffix for group in groups}))
    if unknown:
        raise BadQuery(_UNKNOWN_IN_SUBTREE.format(suffixes=unknown), error_document.QUERY_BAD_VALUE)


def _check_conflicts(groups: Sequence[RequestGroup], version: Version) -> None:
    """Reject groups with a trait that is required and forbidden, or with an ``in:`` whose traits are all forbidden."""
    conflicts = []
    for group in groups:
        impossible = [any_of for any_of in group.required_any if any_of <= group.forbidden]
        both = filter(None, (group.required & group.forbidden, *impossible))
        conflicts += [f'required{group.suffix}: ({", ".join(sorted(traits))})' for traits in both]
    if conflicts:
        raise BadQuery(_CONFLICTING.format(keys=', '.join(conflicts if version < (1, 30) else sorted(conflicts))))


def _limit(values: Values) -> int | None:
    if 'limit' not in values:
        return None
    first = values['limit'][0]
    return int(first) if len(first) < len(str(_LARGEST_LIMIT)) else _LARGEST_LIMIT
