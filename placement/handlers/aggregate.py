"""The aggregates of a provider. Only here are media types checked before the microversion (api-ref/aggregates.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from webob import Request, Response

from placement import exception, uuid_spelling
from placement.handlers.resource_provider import require_provider
from placement.objects import aggregate
from placement.schemas import requests, responses
from placement.web import http, microversion
from placement.web.authentication import RequestContext
from placement.web.error_responses import ErrorMapping
from placement.web.operation import JsonBody, Microversions, RequiresPolicy, accepts_json, operation


def _with_generation(req: Request) -> bool:
    return microversion.requested(req) >= (1, 19)


def _response(req: Request, generation: int | None, aggregates: Iterable[str]) -> Response:
    body: dict[str, Any] = {'aggregates': list(aggregates)}
    if _with_generation(req):
        body['resource_provider_generation'] = generation
    return http.json_response(req, body, last_modified=http.now())


@operation(
    accepts_json,
    Microversions((1, 1)),
    RequiresPolicy('placement:resource_providers:aggregates:list'),
    responses={200: responses.AGGREGATES},
)
def list_resource_provider_aggregates(req: Request, context: RequestContext, uuid: str) -> Response:
    """Show the aggregates that a provider is in."""
    provider, aggregates = aggregate.get_with_provider(context, uuid)
    return _response(req, provider.generation, aggregates)


@operation(
    JsonBody(requests.PUT_AGGREGATES),
    Microversions((1, 1)),
    RequiresPolicy('placement:resource_providers:aggregates:update'),
    failures=(
        ErrorMapping(exception.ProviderGenerationMismatch),
        ErrorMapping(exception.ConcurrentUpdate, 'Update conflict: {error}'),
    ),
    responses={200: responses.AGGREGATES},
    path_error=require_provider,
)
def replace_resource_provider_aggregates(req: Request, context: RequestContext, data: Any, uuid: str) -> Response:
    """Replace the aggregates of a provider. From 1.19 on, compare and increment its generation."""
    guarded = _with_generation(req)
    sent = data['aggregates'] if guarded else data
    generation = data['resource_provider_generation'] if guarded else None
    # The response keeps the order of the request.
    aggregates = list(dict.fromkeys(map(uuid_spelling.aggregate_uuid, sent)))
    aggregate.replace(context, uuid, aggregates, generation)
    return _response(req, None if generation is None else generation + 1, aggregates)
