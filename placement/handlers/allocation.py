"""Allocations of consumers and on providers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import webob
from webob import exc

from placement import exception, policies, schemas
from placement.claims.request import UNSET, ConsumerClaim
from placement.objects.allocation import Allocation, AllocationList
from placement.objects.consumer import Consumer
from placement.objects.provider_query import ProviderVersion
from placement.schemas import allocation as schema
from placement.schemas import responses
from placement.web import microversion, util
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.operation import JSON, Consumes, Produces, RequiresPolicy, SinceVersion, operation

_CHANGED = ErrorMapping(
    exception.ConcurrentUpdate, 'Inventory and/or allocations changed while attempting to allocate: {error}'
)
# Nothing is put before the message, because clients look for it at the start of the detail.
_WRONG_GENERATION = ErrorMapping(exception.ConsumerGenerationConflict)


def _consumer_body(req: webob.Request, consumer: Consumer | None, allocations: Iterable[Allocation]) -> dict[str, Any]:
    """Make the body for the allocations of one consumer; ``consumer`` is None when there is no such consumer."""
    version = microversion.wanted(req)
    entries: dict[str, dict[str, Any]] = {}
    body: dict[str, Any] = {'allocations': entries}
    for allocation in allocations:
        entry = entries.setdefault(
            allocation.resource_provider_uuid,
            {'generation': allocation.resource_provider_generation, 'resources': {}},
        )
        entry['resources'][allocation.resource_class] = allocation.used
    if consumer is not None and version >= (1, 12):
        body['project_id'], body['user_id'] = consumer.project_id, consumer.user_id
    if consumer is not None and version >= (1, 28):
        body['consumer_generation'] = consumer.generation
    if consumer is not None and version >= (1, 38):
        body['consumer_type'] = consumer.consumer_type
    return body


def _provider_body(req: webob.Request, provider: ProviderVersion, allocations: Iterable[Allocation]) -> dict[str, Any]:
    """Make the body for the allocations on one provider."""
    with_generation = microversion.wanted(req) >= (1, 28)
    entries: dict[str, dict[str, Any]] = {}
    for allocation in allocations:
        entry = entries.setdefault(allocation.consumer_uuid, {'resources': {}})
        entry['resources'][allocation.resource_class] = allocation.used
        if with_generation:
            entry['consumer_generation'] = allocation.consumer_generation
    return {'allocations': entries, 'resource_provider_generation': provider.generation}


def _amounts(allocations: Any) -> dict[str, dict[str, int]]:
    """Return the amounts by provider uuid and class name, from the list form or the object form of ``allocations``.

    When the list has several entries for a provider, the last one counts.
    """
    if isinstance(allocations, list):
        return {entry['resource_provider']['uuid']: entry['resources'] for entry in allocations}
    return {uuid: entry['resources'] for uuid, entry in allocations.items()}


def _claim(context: RequestContext, consumer_uuid: str, data: dict[str, Any]) -> ConsumerClaim:
    """Make the claim of one consumer from its part of a validated body."""
    defaults = context.conf.placement
    return ConsumerClaim(
        consumer_uuid=consumer_uuid,
        project_id=data.get('project_id', defaults.incomplete_consumer_project_id),
        user_id=data.get('user_id', defaults.incomplete_consumer_user_id),
        allocations=_amounts(data['allocations']),
        generation=data.get('consumer_generation', UNSET),
        consumer_type=data.get('consumer_type', UNSET),
    )


def claims_of(context: RequestContext, entries: Mapping[str, Any]) -> list[ConsumerClaim]:
    """Make the claims of several consumers, in the order of ``entries``.

    :param entries: by consumer uuid, as the schema of the operation allows them.
    :raises HTTPBadRequest: a key is no uuid, or two keys are one consumer in two spellings.
    """
    claims: dict[str, ConsumerClaim] = {}
    for key, entry in entries.items():
        if not util.is_uuid(key):
            raise exc.HTTPBadRequest(f"JSON does not validate: '{key}' is not a 'uuid'")
        consumer = util.canonical_uuid(key)
        if consumer in claims:
            raise exc.HTTPBadRequest(f'JSON does not validate: consumer {consumer} is named more than once')
        claims[consumer] = _claim(context, consumer, entry)
    return list(claims.values())


@operation(Consumes(JSON), RequiresPolicy(policies.ALLOCATIONS_LIST), responses={200: responses.CONSUMER_ALLOCATIONS})
def list_for_consumer(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the allocations of a consumer; an unknown consumer has none."""
    uuid = util.canonical_uuid(util.wsgi_path_item(req.environ, 'consumer_uuid'))
    consumer, allocations = Consumer.get_with_allocations(context, uuid)
    body = _consumer_body(req, consumer, allocations)
    return util.json_response(req, body, last_modified=util.last_modified(allocations))


@operation(
    Consumes(JSON),
    RequiresPolicy(policies.PROVIDER_ALLOCATIONS_LIST),
    failures=(ErrorMapping(exception.ResourceProviderNotFound, "Resource provider '{uuid}' not found: {error}"),),
    responses={200: responses.PROVIDER_ALLOCATIONS},
)
def list_for_resource_provider(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the allocations on a provider, by consumer."""
    provider, allocations = AllocationList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    body = _provider_body(req, provider, allocations)
    return util.json_response(req, body, last_modified=util.last_modified(allocations))


@operation(
    Produces(JSON, schema.PUT),
    RequiresPolicy(policies.ALLOCATIONS_UPDATE),
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
)
def set_allocations_for_consumer(req: webob.Request, context: RequestContext) -> webob.Response:
    """Replace all allocations of one consumer."""
    sent = util.wsgi_path_item(req.environ, 'consumer_uuid')
    if not util.is_uuid(sent):
        raise exc.HTTPBadRequest(f'Malformed consumer_uuid: {sent}')
    data = util.extract_json(req.body, schemas.for_version(schema.PUT, microversion.wanted(req)))
    AllocationList.replace_all(context, [_claim(context, util.canonical_uuid(sent), data)])
    return util.empty_response(req, 204)


@operation(
    SinceVersion('1.13'),
    Produces(JSON, schema.POST),
    RequiresPolicy(policies.ALLOCATIONS_MANAGE),
    failures=(
        _WRONG_GENERATION,
        _CHANGED,
        ErrorMapping(exception.ResourceClassNotFound, 'Unable to allocate inventory {error}', exc.HTTPBadRequest),
    ),
    responses={204: None},
)
def set_allocations(req: webob.Request, context: RequestContext) -> webob.Response:
    """Replace all allocations of every consumer that the body names, together or not at all."""
    data = util.extract_json(req.body, schemas.for_version(schema.POST, microversion.wanted(req)))
    AllocationList.replace_all(context, claims_of(context, data))
    return util.empty_response(req, 204)


@operation(
    RequiresPolicy(policies.ALLOCATIONS_DELETE),
    failures=(ErrorMapping(exception.AllocationsNotFound, "No allocations for consumer '{consumer_uuid}'"),),
    responses={204: None},
)
def delete_allocations(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove all allocations of a consumer, whatever its generation."""
    uuid = util.canonical_uuid(util.wsgi_path_item(req.environ, 'consumer_uuid'))
    AllocationList.delete_all_by_consumer(context, uuid)
    return util.empty_response(req, 204)
