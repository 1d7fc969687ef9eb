"""Parsing of the query string of GET /allocation_candidates into a ``CandidateRequest``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from oslo_config import cfg

from placement import schemas
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.schemas import allocation_candidate as schema
from placement.web import query, validation
from placement.web.query import BadQuery

_GROUP_KEY = re.compile(schema.GROUP_KEY)

#: Larger limits are reduced to this, since Python refuses to convert numerals of thousands of digits.
_LARGEST_LIMIT = 10**18

_NO_RESOURCES_FOR_TRAITS = (
    'All traits parameters must be associated with resources.  Found the following orphaned traits keys: {keys}'
)
_NO_RESOURCES_FOR_MEMBER_OF = (
    'All member_of parameters must be associated with resources. Found the following orphaned member_of keys: {keys}'
)
_CONFLICTING = 'Conflicting required and forbidden traits found in the following traits keys: {keys}'
_NO_POLICY = 'The "group_policy" parameter is required when specifying more than one "resources{N}" parameter.'
_NO_GROUP = 'At least one request group (`resources` or `resources{N}`) is required.'

Values = Mapping[str, Sequence[str]]
#: A microversion as two numbers.
Version = tuple[int, int]


def parse(text: str, version: Version, conf: cfg.ConfigOpts) -> CandidateRequest:
    """Read a query string.

    :param text: the WSGI variable QUERY_STRING, without the question mark.
    :param version: the microversion that decides what it may hold.
    :param conf: its group ``placement`` limits the length of the query and the number of request groups.
    :raises BadQuery: with the text of the first check of api-ref/allocation-candidates.md that it fails.
    """
    options = conf.placement
    values = _values(text, options.max_query_length)
    _check_keys(values, version)
    suffixes = _suffixes(values)
    if len(suffixes) > options.max_request_groups:
        raise BadQuery(f'Invalid query string parameters: more than {options.max_request_groups} request groups.')
    groups = [_group(suffix, values, version) for suffix in suffixes]
    _check_groups(groups, version)
    policy = values.get('group_policy', [None])[0]
    if policy is None and sum(group.use_same_provider for group in groups) > 1:
        raise BadQuery(_NO_POLICY)
    return CandidateRequest(
        groups=tuple(groups),
        group_policy=policy,
        limit=_limit(values),
        nested_aware=version >= (1, 29),
        with_traits=version >= (1, 17),
    )


def _values(text: str, longest: int) -> Values:
    """The values of each key, in the order of the URL."""
    values: dict[str, list[str]] = {}
    for key, value in query.pairs(text, longest):
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
    """The suffixes of the request groups, in the order of the URL."""
    keys = (_GROUP_KEY.fullmatch(key) for key in values)
    return list(dict.fromkeys(key[2] or '' for key in keys if key))


def _group(suffix: str, values: Values, version: Version) -> RequestGroup:
    member_of = query.parse_member_of(values.get(f'member_of{suffix}', ()), repeatable=version >= (1, 24))
    resources: dict[str, int] = {}
    for value in values.get(f'resources{suffix}', ()):
        # The last one counts, but all of them must be well-formed.
        resources = query.parse_resources(value)
    traits = query.TraitFilter(frozenset(), frozenset())
    if f'required{suffix}' in values:
        traits = query.parse_required(values[f'required{suffix}'][-1], forbidden_allowed=version >= (1, 22))
    return RequestGroup(
        suffix=suffix,
        use_same_provider=bool(suffix),
        resources=resources,
        required=traits.required,
        forbidden=traits.forbidden,
        member_of=member_of,
    )


def _check_groups(groups: Sequence[RequestGroup], version: Version) -> None:
    """Refuse groups that lack ``resources`` or contradict themselves."""
    orphans = [group for group in groups if not group.resources]
    traits = ', '.join(f'required{group.suffix}' for group in orphans if group.required)
    if traits:
        raise BadQuery(_NO_RESOURCES_FOR_TRAITS.format(keys=traits))
    member_of = ', '.join(f'member_of{group.suffix}' for group in orphans if group.member_of)
    if member_of:
        raise BadQuery(_NO_RESOURCES_FOR_MEMBER_OF.format(keys=member_of))
    if orphans:
        raise BadQuery('All request groups must specify resources.')
    if not groups and version >= (1, 25):
        raise BadQuery(_NO_GROUP)
    conflicts = ', '.join(_conflicts(groups))
    if conflicts:
        raise BadQuery(_CONFLICTING.format(keys=conflicts))


def _conflicts(groups: Sequence[RequestGroup]) -> Iterator[str]:
    for group in groups:
        both = ', '.join(sorted(group.required & group.forbidden))
        if both:
            yield f'required{group.suffix}: ({both})'


def _limit(values: Values) -> int | None:
    if 'limit' not in values:
        return None
    first = values['limit'][0]
    return int(first) if len(first) < len(str(_LARGEST_LIMIT)) else _LARGEST_LIMIT
