"""Parsing of the query string of GET /allocation_candidates into a ``CandidateRequest``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from placement import query_string
from placement.exception import INVALID_QUERY, BadQuery, BadQueryValue, DuplicateQueryKey, MissingQueryValue
from placement.schemas import Version
from placement.schemas import allocation_candidate as schema
from placement.search import syntax
from placement.search.request import CandidateRequest, NameFilter, RequestGroup
from placement.validation import Validator, for_version

_VALIDATORS = tuple((since, Validator(of_window)) for since, of_window in schema.GET)
_GROUP_KEY = re.compile(schema.GROUP_KEY)

#: Larger limits are reduced to this.
_MAX_LIMIT = 10**18

#: Requests of Nova and Neutron have about ten groups. With each group the search takes more steps.
MAX_REQUEST_GROUPS = 256

#: The order in which the parameters of a group are read below 1.30.
_ORDER_BELOW_1_30 = ('member_of', 'resources', 'required')

#: The values of each key, in the order of the URL.
Values = Mapping[str, Sequence[str]]


def parse(text: str, version: Version) -> CandidateRequest:
    """Read a query string.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :param version: the microversion, which determines what the query string may contain.
    :raises BadQuery: the query string fails a check of api-ref/allocation-candidates.md.
    """
    pairs = query_string.parse_query(text)
    values: dict[str, list[str]] = {}
    for key, value in pairs:
        values.setdefault(key, []).append(value)
    # All values of ``limit`` and ``group_policy`` are validated. The error is about the last invalid one.
    validated = {key: occurrences[-1] for key, occurrences in values.items()}
    for key, pattern in (('limit', schema.LIMIT), ('group_policy', schema.GROUP_POLICY)):
        validated.update([(key, value) for value in values.get(key, ()) if not re.match(pattern, value)])
    query_string.validate_query(validated, for_version(_VALIDATORS, version))

    # The name, the suffix and the value of each parameter of a group, in the order of the URL.
    of_groups = [
        (match[1], match[2] or '', value) for key, value in pairs if (match := _GROUP_KEY.fullmatch(key)) is not None
    ]
    fields: dict[str, dict[str, Any]] = {suffix: {'resources': {}} for _, suffix, _ in of_groups}
    if len(fields) > MAX_REQUEST_GROUPS:
        raise BadQuery(f'{INVALID_QUERY}more than {MAX_REQUEST_GROUPS} request groups.')
    root_traits = _parse_root_required(values.get('root_required', ()))
    named = [[suffix.strip() for suffix in value.split(',')] for value in values.get('same_subtree', ())]
    if any('' in suffixes for suffixes in named):
        raise BadQueryValue('Empty string (unsuffixed group) can not be specified in `same_subtree`.')
    same_subtree = tuple(dict.fromkeys(map(frozenset, named)))
    if version < (1, 30):
        # The first malformed value is reported: here of the first group, since 1.30 in the order of the URL.
        numbers = {suffix: number for number, suffix in enumerate(fields)}
        of_groups.sort(key=lambda parameter: (numbers[parameter[1]], _ORDER_BELOW_1_30.index(parameter[0])))
    for name, suffix, value in of_groups:
        _read_parameter(fields[suffix], name, suffix, value, values, version)
    groups = tuple([RequestGroup(suffix, bool(suffix), **of_group) for suffix, of_group in fields.items()])

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


def _read_parameter(
    fields: dict[str, Any], name: str, suffix: str, value: str, values: Values, version: Version
) -> None:
    """Convert an occurrence of a parameter of a group to a field of the ``RequestGroup``.

    Of ``resources`` and ``in_tree`` the last value counts, but all have to be well-formed. All values of ``required``
    and ``member_of`` count, and are read together at the first occurrence.
    """
    if name == 'resources':
        fields['resources'] = syntax.parse_resources(value)
    elif name == 'in_tree':
        fields['in_tree'] = syntax.parse_in_tree(value)
    elif name == 'required' and 'traits' not in fields:
        fields['traits'] = syntax.parse_required(values[f'required{suffix}'], version)
    elif name == 'member_of' and 'aggregates' not in fields:
        together = values[f'member_of{suffix}']
        if version >= (1, 30):
            # The first malformed value is reported.
            for single in together:
                syntax.parse_member_of([single], version, suffix)
        fields['aggregates'] = syntax.parse_member_of(together, version, suffix)


def _parse_root_required(values: Sequence[str]) -> NameFilter:
    if len(values) > 1:
        raise DuplicateQueryKey("Query parameter 'root_required' may be specified only once.")
    if not values:
        return NameFilter()
    required, forbidden = syntax.parse_traits(values[0])
    both = ', '.join(sorted(required & forbidden))
    if both:
        raise BadQueryValue(f'Conflicting required and forbidden traits found in root_required: {both}')
    return NameFilter.all_of(required, forbidden)


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
        impossible = [any_of for any_of in group.traits.any_of if any_of <= group.traits.forbidden]
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
