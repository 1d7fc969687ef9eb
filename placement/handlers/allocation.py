"""The allocations of consumers, and the allocations on providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from webob import Request, Response, exc

from placement import exception, uuid_spelling
from placement.claims import claim
from placement.claims.requested import UNSET, ConsumerClaim
from placement.objects.allocation import Allocation
from placement.objects.consumer import Consumer
from placement.schemas import requests, responses
from placement.web import http, microversion
from placement.web.authentication import RequestContext
from placement.web.error_responses import ErrorMapping
from placement.web.operation import JsonBody, Microversions, RequiresPolicy, accepts_json, operation

_CHANGED = ErrorMapping(
    exception.ConcurrentUpdate, 'Inventory and/or allocations changed while attempting to allocate: {error}'
)
# There is no text before the message, because clients look for it at the beginning of the reason.
_WRONG_GENERATION = ErrorMapping(exception.ConsumerGenerationConflict)


def _claim(context: RequestContext, consumer_uuid: str, data: dict[str, Any]) -> ConsumerClaim:
    """Make the claim of one consumer from its part of a validated body."""
    defaults, allocations = context.conf.placement, data['allocations']
    # Below 1.12 the allocations are a list. If a provider is listed twice, its last entry counts.
    entries = (
        [(entry['resource_provider']['uuid'], entry) for entry in allocations]
        if isinstance(allocations, list)
        else allocations.items()
    )
    return ConsumerClaim(
        consumer_uuid=consumer_uuid,
        project_id=data.get('project_id', defaults.incomplete_consumer_project_id),
        user_id=data.get('user_id', defaults.incomplete_consumer_user_id),
        allocations={uuid: entry['resources'] for uuid, entry in entries},
        generation=data.get('consumer_generation', UNSET),
        consumer_type=data.get('consumer_type', UNSET),
    )


def claims_of(context: RequestContext, entries: Mapping[str, Any]) -> list[ConsumerClaim]:
    """Make the claims of several consumers, in the order of ``entries``.

    :param entries: by consumer uuid, in the form of the operation's schema.
    :raises HTTPBadRequest: a key is not a uuid, or two keys spell the same consumer differently.
    """
    claims: dict[str, ConsumerClaim] = {}
    for key, entry in entries.items():
        if not uuid_spelling.is_uuid(key):
            raise exc.HTTPBadRequest(f"JSON does not validate: '{key}' is not a 'uuid'")
        consumer = uuid_spelling.canonical_uuid(key)
        if consumer in claims:
            raise exc.HTTPBadRequest(f'JSON does not validate: consumer {consumer} is named more than once')
        claims[consumer] = _claim(context, consumer, entry)
    return list(claims.values())


@operation(accepts_json, RequiresPolicy('placement:allocations:list'), responses={200: responses.CONSUMER_ALLOCATIONS})
def list_consumer_allocations(req: Request, context: RequestContext, consumer_uuid: str) -> Response:
    """Show the allocations of a consumer; an unknown consumer has none."""
    uuid = uuid_spelling.canonical_uuid(consumer_uuid)
    consumer, allocations = Consumer.get_with_allocations(context, uuid)
    entries: dict[str, dict[str, Any]] = {}
    for allocation in allocations:
        new = {'generation': allocation.resource_provider_generation, 'resources': {}}
        entry = entries.setdefault(allocation.resource_provider_uuid, new)
        entry['resources'][allocation.resource_class] = allocation.used
    body: dict[str, Any] = {'allocations': entries}
    version = microversion.requested(req)
    if consumer is not None and version >= (1, 12):
        body['project_id'], body['user_id'] = consumer.project_id, consumer.user_id
    if consumer is not None and version >= (1, 28):
        body['consumer_generation'] = consumer.generation
    if consumer is not None and version >= (1, 38):
        body['consumer_type'] = consumer.consumer_type
    return http.json_response(req, body, last_modified=http.last_modified(allocations))


@operation(
    accepts_json,
    RequiresPolicy('placement:resource_providers:allocations:list'),
    failures=(ErrorMapping(exception.ResourceProviderNotFound, "Resource provider '{uuid}' not found: {error}"),),
    responses={200: responses.PROVIDER_ALLOCATIONS},
)
def list_resource_provider_allocations(req: Request, context: RequestContext, uuid: str) -> Response:
    """Show the allocations on a provider, by consumer."""
    provider, allocations = Allocation.get_all_with_provider(context, uuid)
    with_generation = microversion.requested(req) >= (1, 28)
    entries: dict[str, dict[str, Any]] = {}
    for allocation in allocations:
        entry = entries.setdefault(allocation.consumer_uuid, {'resources': {}})
        entry['resources'][allocation.resource_class] = allocation.used
        if with_generation:
            entry['consumer_generation'] = allocation.consumer_generation
    body = {'allocations': entries, 'resource_provider_generation': provider.generation}
    return http.json_response(req, body, last_modified=http.last_modified(allocations))


def _require_uuid(_context: RequestContext, path: Mapping[str, str]) -> None:
    """Check that the consumer in the path is a uuid.

    :raises HTTPBadRequest: it is not.
    """
    if not uuid_spelling.is_uuid(path['consumer_uuid']):
        raise exc.HTTPBadRequest(f'Malformed consumer_uuid: {path["consumer_uuid"]}')


@operation(
    JsonBody(requests.PUT_ALLOCATIONS),
    RequiresPolicy('placement:allocations:update'),
    failures=(
        _WRONG_GENERATION,
        _CHANGED,
        ErrorMapping(
            exception.ResourceClassNotFound,
            'Unable to allocate inventory for consumer {consumer_uuid}: {error}',
            exc.HTTPBadRequest,
        ),
    ),
    responses={204: None},
    path_error=_require_uuid,
)
def replace_consumer_allocations(
    req: Request, context: RequestContext, data: dict[str, Any], consumer_uuid: str
) -> Response:
    """Replace all allocations of one consumer."""
    _require_uuid(context, {'consumer_uuid': consumer_uuid})
    uuid = uuid_spelling.canonical_uuid(consumer_uuid)
    claim.replace_allocations(context.db, [_claim(context, uuid, data)])
    return http.empty_response(req, 204)


@operation(
    Microversions((1, 13)),
    JsonBody(requests.POST_ALLOCATIONS),
    RequiresPolicy('placement:allocations:manage'),
    failures=(
        _WRONG_GENERATION,
        _CHANGED,
        ErrorMapping(exception.ResourceClassNotFound, 'Unable to allocate inventory {error}', exc.HTTPBadRequest),
    ),
    responses={204: None},
)
def set_allocations(req: Request, context: RequestContext, data: dict[str, Any]) -> Response:
    """Replace all allocations of every consumer in the body, either for all consumers or for none."""
    claim.replace_allocations(context.db, claims_of(context, data))
    return http.empty_response(req, 204)


@operation(
    RequiresPolicy('placement:allocations:delete'),
    failures=(ErrorMapping(exception.AllocationsNotFound, "No allocations for consumer '{consumer_uuid}'"),),
    responses={204: None},
)
def delete_consumer_allocations(req: Request, context: RequestContext, consumer_uuid: str) -> Response:
    """Remove all allocations of a consumer, whatever its generation."""
    uuid = uuid_spelling.canonical_uuid(consumer_uuid)
    claim.delete_allocations(context.db, uuid)
    return http.empty_response(req, 204)
