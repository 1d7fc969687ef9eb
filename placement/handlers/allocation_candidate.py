"""Allocation candidates: the combinations of providers that could serve a request now."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import orjson
from oslo_log import log
from webob import Request, Response, exc

from placement import exception
from placement.cache.providers import Provider
from placement.schemas import allocation_candidate as schema
from placement.schemas import responses
from placement.search import find_candidates, parsing
from placement.search.budget import SearchBudget, describe_limits
from placement.search.request import CandidateRequest, RequestGroup
from placement.search.search_units import Assignment
from placement.search.selection import AllocationCandidates
from placement.web import http, microversion, request_log
from placement.web.authentication import RequestContext
from placement.web.error_responses import UNKNOWN_CLASS_IN_QUERY, ErrorMapping
from placement.web.operation import Microversions, RequiresPolicy, accepts_json, operation

LOG = log.getLogger(__name__)


@operation(
    Microversions((1, 10)),
    accepts_json,
    RequiresPolicy('placement:allocation_candidates:list'),
    failures=(UNKNOWN_CLASS_IN_QUERY, ErrorMapping(exception.TraitNotFound, '{error}', exc.HTTPBadRequest)),
    query=schema.GET,
    responses={200: responses.CANDIDATES},
    query_parser=parsing.parse,
)
def list_allocation_candidates(req: Request, context: RequestContext, candidate_request: CandidateRequest) -> Response:
    """Find the candidates for the request in the query string."""
    started = time.monotonic()
    version, options, metrics = microversion.requested(req), context.conf.placement, context.db.metrics
    rng = random.Random() if options.randomize_allocation_candidates else None  # noqa: S311
    # A committed state of the database that is not older than this call.
    snapshot = context.provider_cache.up_to_date()
    candidates = find_candidates(snapshot, candidate_request, SearchBudget.for_search(options), rng)
    count = req.environ[request_log.CANDIDATES_KEY] = sum(map(len, candidates.candidate_sets))
    metrics.search_finished(count, time.monotonic() - started)
    for limit in candidates.limits_reached:
        metrics.searches_truncated.labels(limit.value).inc()
    query = request_log.quote(req.query_string)
    if candidates.limits_reached:
        limits = describe_limits(candidates.limits_reached, options)
        LOG.warning('Stopped at [placement] %s for %s', limits, query)
    members = {
        'allocation_requests': ('[]', _allocation_requests(candidates, as_list=version < (1, 12))),
        'provider_summaries': ('{}', _summaries(candidates, version)),
    }
    if not count:
        context.explain_empty(query, candidates)
    return http.fragments_response(req, members, last_modified=http.now())


# A response may have many thousand similar entries. The candidates of a set differ only in the uuids of the providers,
# so one pattern writes all of them: they cost no function call each. The cache has the fragments of provider summaries.


def _allocation_requests(candidates: AllocationCandidates, as_list: bool) -> list[bytes]:
    """Encode the candidates as JSON."""
    patterns: dict[int, _Pattern] = {}
    written: list[bytes] = []
    for candidate_set in candidates.candidate_sets:
        assignment, unit = candidate_set.assignment, candidate_set.search_unit
        pattern = patterns.get(id(assignment))
        if pattern is None:
            pattern = patterns[id(assignment)] = _pattern(assignment, as_list, candidates.request.groups)
        uuids = unit.uuids(pattern.positions)
        texts = [pattern.opening] * (1 + 2 * len(uuids))
        texts[1::2], texts[2::2] = uuids, pattern.after_uuids * unit.count
        texts[-1] = pattern.closing
        written.append(''.join(texts).encode())
    return written


class _Pattern(NamedTuple):
    """The JSON of the candidates with one assignment, divided where the uuids of providers belong."""

    opening: str
    #: The text after each uuid of a candidate. The last one is the end of the candidate and the beginning of the next.
    after_uuids: list[str]
    closing: str
    #: The positions of the providers, in the order of their uuids.
    positions: list[int]


def _pattern(assignment: Assignment, as_list: bool, groups: Sequence[RequestGroup]) -> _Pattern:
    """Return the pattern of ``assignment``.

    :param groups: those of the request, in the order of the mappings of ``assignment``.
    """
    by_position: dict[int, dict[str, int]] = {}
    for position, name, amount in assignment.amounts:
        by_position.setdefault(position, {})[name] = amount
    entry = '{{"resource_provider":{{"uuid":"%s"}},"resources":{}}}' if as_list else '"%s":{{"resources":{}}}'
    inside = ','.join([entry.format(_json(resources)) for resources in by_position.values()])
    positions = list(by_position)
    members = [f'"allocations":[{inside}]' if as_list else f'"allocations":{{{inside}}}']
    if assignment.mappings:
        mapped, uuid = [], '"%s"'
        for group, of_group in zip(groups, assignment.mappings, strict=True):
            mapped.append(f'"{group.suffix}":[{",".join([uuid] * len(of_group))}]')
            positions += of_group
        members.append(f'"mappings":{{{",".join(mapped)}}}')
    # Names of classes and suffixes contain no percent sign.
    opening, *inner, closing = f'{{{",".join(members)}}}'.split('%s')
    return _Pattern(opening, [*inner, f'{closing},{opening}'], closing, positions)


def _summaries(candidates: AllocationCandidates, version: Any) -> list[bytes]:
    """Encode the summaries of the providers in the response as JSON."""
    included = None if version >= (1, 27) else frozenset(candidates.request.requested_classes)
    cache_key = ('summary', version >= (1, 17), version >= (1, 29), included)
    write = functools.partial(_summary, included, version)
    written: list[bytes] = []
    for partition, positions in candidates.providers().items():
        written += partition.fragments(cache_key, positions, write)
    return written


def _summary(included: Collection[str] | None, version: Any, provider: Provider) -> bytes:
    """Encode one summary.

    :param included: the resource classes that it shows; None for all.
    """
    resources = ','.join(
        f'{_json(name)}:{{"capacity":{inventory.capacity},"used":{inventory.used}}}'
        for name, inventory in provider.inventories.items()
        if included is None or name in included
    )
    traits = f',"traits":{_json(sorted(provider.traits))}' if version >= (1, 17) else ''
    tree = ''
    if version >= (1, 29):
        parent, root = _json(provider.parent_provider_uuid), _json(provider.root_provider_uuid)
        tree = f',"parent_provider_uuid":{parent},"root_provider_uuid":{root}'
    return f'"{provider.uuid}":{{"resources":{{{resources}}}{traits}{tree}}}'.encode()


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
