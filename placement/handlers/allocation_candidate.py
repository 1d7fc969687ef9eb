"""Allocation candidates: who could serve a request right now (contract B 5)."""

from __future__ import annotations

from typing import Any

import orjson
import webob
from oslo_log import log
from oslo_utils import timeutils
from webob import exc

from placement import exception, microversion, util, wsgi_wrapper
from placement.candidates.request import CandidateRequest
from placement.candidates.rows import Inventory, Provider
from placement.handlers import candidate_query, faults
from placement.handlers.faults import Answer
from placement.objects import candidate_bounds
from placement.objects.allocation_candidate import AllocationCandidates, AllocationRequest
from placement.policies import allocation_candidate as policies

LOG = log.getLogger(__name__)

_LARGEST_JSON_INTEGER = 2**63 - 1

#: Characters of a query that are logged.
_LONGEST_QUERY = 2048


@wsgi_wrapper.PlacementWsgify
@microversion.version_handler('1.10')
@util.check_accept('application/json')
@faults.answered(
    Answer(
        exception.ResourceClassNotFound,
        'Invalid resource class in resources parameter: {error}',
        exc.HTTPBadRequest,
    ),
    Answer(exception.TraitNotFound, '{error}', exc.HTTPBadRequest),
)
def list_allocation_candidates(req: webob.Request) -> webob.Response:
    """Find the candidates for the request in the query string."""
    context = req.environ['placement.context']
    context.can(policies.LIST)
    version = microversion.wanted(req)
    request = candidate_query.parse(req.environ.get('QUERY_STRING', ''), version, context.conf)
    found = AllocationCandidates.get_by_request(context, request, explain_empty=LOG.isEnabledFor(log.INFO))
    _log(req.query_string, found, context.conf.placement)
    as_list = version < (1, 12)
    body = {
        'allocation_requests': [_allocation_request(one, as_list) for one in found.allocation_requests],
        'provider_summaries': _summaries(found, request, version),
    }
    return util.json_response(req, body, last_modified=timeutils.utcnow(with_timezone=True))


def _log(query: str, found: AllocationCandidates, options: Any) -> None:
    """Say what the answer cannot: that it was cut short, or why it is empty."""
    shown = query if len(query) <= _LONGEST_QUERY else f'{query[:_LONGEST_QUERY]}...'
    if found.bounds:
        LOG.warning('Stopped at [placement] %s for %s', candidate_bounds.in_words(found.bounds, options), shown)
    if found.funnel is not None:
        LOG.info('No allocation candidates for %s: %s', shown, found.funnel)


def _allocation_request(allocations: AllocationRequest, as_list: bool) -> dict[str, Any]:
    if as_list:
        entries = [
            {'resource_provider': {'uuid': uuid}, 'resources': resources} for uuid, resources in allocations.items()
        ]
        return {'allocations': entries}
    return {'allocations': {uuid: {'resources': resources} for uuid, resources in allocations.items()}}


def _summaries(found: AllocationCandidates, request: CandidateRequest, version: Any) -> dict[str, Any]:
    classes = None if version >= (1, 27) else request.classes
    summaries: dict[str, Any] = {}
    for provider in found.providers:
        summary: dict[str, Any] = {'resources': _resources(provider, classes)}
        summaries[provider.uuid] = summary
        if version >= (1, 17):
            summary['traits'] = list(provider.traits)
        if version >= (1, 29):
            parent_id = provider.parent_id
            summary['parent_provider_uuid'] = None if parent_id is None else found.uuids[parent_id]
            summary['root_provider_uuid'] = found.uuids[provider.root_id]
    return summaries


def _resources(provider: Provider, classes: frozenset[str] | None) -> dict[str, Any]:
    return {
        name: {'capacity': _capacity(inventory), 'used': inventory.used}
        for name, inventory in provider.inventories.items()
        if classes is None or name in classes
    }


def _capacity(inventory: Inventory) -> Any:
    capacity = inventory.capacity
    # A ratio may be as large as 3.4e38, and orjson encodes integers of 64 bits.
    return capacity if capacity <= _LARGEST_JSON_INTEGER else orjson.Fragment(str(capacity))
