"""Allocation candidates: the combinations of providers that could serve a request now."""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import orjson
import webob
from oslo_log import log
from oslo_utils import timeutils
from webob import exc

from placement import exception, policies
from placement.candidates.providers import Provider
from placement.candidates.search_units import Assignment
from placement.handlers import candidate_query
from placement.objects import search_limits
from placement.objects.allocation_candidate import AllocationCandidates
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
    RequiresPolicy(policies.CANDIDATES_LIST),
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
    if found.families or not LOG.isEnabledFor(log.INFO):
        return
    suppressed = context.empty_searches.count(query)
    if suppressed is not None:
        diagnosis = search_limits.for_diagnosis(options)
        reason = funnel.explain_empty(found.snapshot, found.request, diagnosis, found.limits_reached)
        more = f' ({suppressed} more since the last such line)' if suppressed else ''
        LOG.info('No allocation candidates for %s: %s%s', request_log.quote(query), reason, more)


# A response may have many thousand similar entries, so it is joined from fragments of JSON. Candidates of one family
# differ only in the uuids of the providers, and the cache keeps the fragments of provider summaries.


class _Template(NamedTuple):
    """The JSON of a family: for each candidate the ``constants``, after each the uuid of the provider at a position.

    The first constant ends the candidate before and begins the next one: it is ``closing`` and ``opening``.
    """

    opening: str
    constants: list[str]
    closing: str
    positions: list[int]


def _allocation_requests(found: AllocationCandidates, as_list: bool) -> list[bytes]:
    """Encode the candidates as JSON."""
    templates: dict[int, _Template] = {}
    written: list[str] = []
    suffixes = [group.suffix for group in found.request.groups]
    for family in found.families:
        template = templates.get(id(family.assignment))
        if template is None:
            template = templates[id(family.assignment)] = _template(family.assignment, as_list, suffixes)
        uuids = family.search_unit.uuids(template.positions)
        pieces = [''] * (2 * len(uuids))
        pieces[::2], pieces[1::2] = template.constants * len(family), uuids
        pieces[0] = template.opening
        written += pieces
        written.append(template.closing)
    return [''.join(written)[:-1].encode()] if written else []


def _template(assignment: Assignment, as_list: bool, suffixes: Sequence[str]) -> _Template:
    """Make the template of the families with ``assignment``.

    :param suffixes: those of the groups, in the order of the mappings of ``assignment``.
    """
    by_position: dict[int, dict[str, int]] = {}
    for position, name, amount in assignment.amounts:
        by_position.setdefault(position, {})[name] = amount
    entries = []
    for resources in by_position.values():
        if as_list:
            entries.append(f'{{"resource_provider":{{"uuid":"\0"}},"resources":{_json(resources)}}}')
        else:
            entries.append(f'"\0":{{"resources":{_json(resources)}}}')
    inside = ','.join(entries)
    positions = list(by_position)
    members = [f'"allocations":{f"[{inside}]" if as_list else f"{{{inside}}}"}']
    if assignment.mappings:
        mapped, uuid = [], '"\0"'
        for suffix, some in zip(suffixes, assignment.mappings, strict=True):
            mapped.append(f'"{suffix}":[{",".join([uuid] * len(some))}]')
            positions += some
        members.append(f'"mappings":{{{",".join(mapped)}}}')
    # JSON has no NUL, so it marks the places of the uuids.
    opening, *others = f'{{{",".join(members)}}},'.split('\0')
    closing = others.pop()
    return _Template(opening, [closing + opening, *others], closing, positions)


def _summaries(found: AllocationCandidates, version: Any) -> list[bytes]:
    """Encode the summaries of the providers in the response as JSON."""
    included = None if version >= (1, 27) else found.request.classes
    form = ('summary', version >= (1, 17), version >= (1, 29), included)
    write = functools.partial(_summary, included, version)
    written: list[bytes] = []
    for partition, positions in found.providers().items():
        written += partition.fragments(form, positions, write)
    return written


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
