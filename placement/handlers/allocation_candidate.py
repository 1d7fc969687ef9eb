"""Allocation candidates: the combinations of providers that could serve a request now."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any

import orjson
import webob
from oslo_log import log
from oslo_utils import timeutils
from webob import exc

from placement import exception
from placement.candidates.providers import Provider
from placement.candidates.search_units import Assignment
from placement.handlers import candidate_query
from placement.objects import search_limits
from placement.objects.allocation_candidate import AllocationCandidates
from placement.policies import allocation_candidate as policies
from placement.reports import funnel
from placement.schemas import allocation_candidate as schema
from placement.schemas import responses
from placement.web import microversion, request_log, util
from placement.web.context import RequestContext
from placement.web.error_mapping import UNKNOWN_CLASS_IN_QUERY, ErrorMapping
from placement.web.operation import JSON, Consumes, RequiresPolicy, SinceVersion, operation

LOG = log.getLogger(__name__)


@operation(
    SinceVersion('1.10'),
    Consumes(JSON),
    RequiresPolicy(policies.LIST),
    failures=(
        UNKNOWN_CLASS_IN_QUERY,
        ErrorMapping(exception.TraitNotFound, '{error}', exc.HTTPBadRequest),
    ),
    query=schema.GET,
    responses={200: responses.CANDIDATES},
)
def list_allocation_candidates(req: webob.Request, context: RequestContext) -> webob.Response:
    """Find the candidates for the request in the query string."""
    version = microversion.wanted(req)
    request = candidate_query.parse(req.environ.get('QUERY_STRING', ''), version)
    found = AllocationCandidates.get_by_request(context, request)
    _log(req.query_string, found, context)
    members = {
        'allocation_requests': ('[]', _allocation_requests(found, as_list=version < (1, 12))),
        'provider_summaries': ('{}', _summaries(found, version)),
    }
    return util.fragments_response(req, members, last_modified=timeutils.utcnow(with_timezone=True))


def _log(query: str, found: AllocationCandidates, context: RequestContext) -> None:
    """Log that the search reached a limit, or why it found nothing, which the response does not contain."""
    options = context.conf.placement
    if found.limits_reached:
        limits = search_limits.describe(found.limits_reached, options)
        LOG.warning('Stopped at [placement] %s for %s', limits, request_log.quote(query))
    if found.candidates or not LOG.isEnabledFor(log.INFO):
        return
    suppressed = context.empty_searches.count(query)
    if suppressed is not None:
        diagnosis = search_limits.for_diagnosis(options)
        reason = funnel.explain_empty(found.snapshot, found.request, diagnosis, found.limits_reached)
        more = f' ({suppressed} more since the last such line)' if suppressed else ''
        LOG.info('No allocation candidates for %s: %s%s', request_log.quote(query), reason, more)


# A response may have many thousand similar entries, so it is joined from fragments of JSON. Candidates with the same
# assignment differ only in the uuids of the providers, and the cache keeps the fragments of provider summaries.


def _allocation_requests(found: AllocationCandidates, as_list: bool) -> list[bytes]:
    """Encode the candidates as JSON."""
    templates: dict[int, tuple[str, tuple[int, ...]]] = {}
    written = []
    suffixes = [group.suffix for group in found.request.groups]
    for candidate in found.candidates:
        assignment = candidate.assignment
        template = templates.get(id(assignment))
        if template is None:
            template = templates[id(assignment)] = _template(assignment, as_list, suffixes)
        text, positions = template
        written.append(text % candidate.search_unit.uuids(positions))
    return [','.join(written).encode()]


def _template(assignment: Assignment, as_list: bool, suffixes: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """Return a candidate as JSON with ``%s`` for each uuid of a provider, and the positions of these providers.

    :param suffixes: those of the groups, in the order of the mappings of ``assignment``.
    """
    by_position: dict[int, dict[str, int]] = {}
    for position, name, amount in assignment.amounts:
        by_position.setdefault(position, {})[name] = amount
    entries = []
    for resources in by_position.values():
        written = _json(resources).replace('%', '%%')
        if as_list:
            entries.append(f'{{"resource_provider":{{"uuid":"%s"}},"resources":{written}}}')
        else:
            entries.append(f'"%s":{{"resources":{written}}}')
    inside = ','.join(entries)
    positions = list(by_position)
    members = [f'"allocations":{f"[{inside}]" if as_list else f"{{{inside}}}"}']
    if assignment.mappings:
        mapped, uuid = [], '"%s"'
        for suffix, some in zip(suffixes, assignment.mappings, strict=True):
            mapped.append(f'"{suffix}":[{",".join([uuid] * len(some))}]')
            positions += some
        members.append(f'"mappings":{{{",".join(mapped)}}}')
    return f'{{{",".join(members)}}}', tuple(positions)


def _summaries(found: AllocationCandidates, version: Any) -> list[bytes]:
    """Encode the summaries of the providers in the response as JSON."""
    included = None if version >= (1, 27) else found.request.classes
    form = ('summary', version >= (1, 17), version >= (1, 29), included)
    write = functools.partial(_summary, included, version)
    return [
        one for partition, positions in found.providers().items() for one in partition.fragments(form, positions, write)
    ]


def _summary(included: Collection[str] | None, version: Any, provider: Provider) -> bytes:
    """Encode one summary; ``included`` are the resource classes that it shows, None for all."""
    resources = ','.join(
        f'{_json(name)}:{{"capacity":{one.capacity},"used":{one.used}}}'
        for name, one in provider.inventories.items()
        if included is None or name in included
    )
    traits = f',"traits":{_traits(provider.traits)}' if version >= (1, 17) else ''
    tree = ''
    if version >= (1, 29):
        parent, root = _json(provider.parent_provider_uuid), _json(provider.root_provider_uuid)
        tree = f',"parent_provider_uuid":{parent},"root_provider_uuid":{root}'
    return f'"{provider.uuid}":{{"resources":{{{resources}}}{traits}{tree}}}'.encode()


@functools.lru_cache(maxsize=4096)
def _traits(names: frozenset[str]) -> str:
    return _json(sorted(names))


def _json(value: Any) -> str:
    return orjson.dumps(value).decode()
