"""The aggregates of a provider. Only here media types are checked before the microversion (api-ref/aggregates.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import webob

from placement import exception, policies, schemas
from placement.handlers.resource_provider import missing_provider_first
from placement.objects import aggregate
from placement.objects.provider_query import ProviderVersion
from placement.objects.resource_provider import ResourceProvider
from placement.schemas import aggregate as schema
from placement.schemas import responses
from placement.web import microversion, util
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.operation import JSON, Consumes, Produces, RequiresPolicy, SinceVersion, operation


def _with_generation(req: webob.Request) -> bool:
    return microversion.wanted(req) >= (1, 19)


def _response(
    req: webob.Request, provider: ResourceProvider | ProviderVersion, aggregates: Iterable[str]
) -> webob.Response:
    body: dict[str, Any] = {'aggregates': list(aggregates)}
    if _with_generation(req):
        body['resource_provider_generation'] = provider.generation
    return util.json_response(req, body, last_modified=util.now())


@operation(
    Consumes(JSON), SinceVersion('1.1'), RequiresPolicy(policies.AGGREGATES_LIST), responses={200: responses.AGGREGATES}
)
def get_aggregates(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the aggregates that a provider is in."""
    provider, aggregates = aggregate.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    return _response(req, provider, aggregates)


@operation(
    Produces(JSON, schema.PUT),
    SinceVersion('1.1'),
    RequiresPolicy(policies.AGGREGATES_UPDATE),
    failures=(
        ErrorMapping(exception.ProviderGenerationMismatch),
        ErrorMapping(exception.ConcurrentUpdate, 'Update conflict: {error}'),
    ),
    responses={200: responses.AGGREGATES},
)
def set_aggregates(req: webob.Request, context: RequestContext) -> webob.Response:
    """Replace the aggregates of a provider; from 1.19 its generation is compared and incremented."""
    uuid = util.wsgi_path_item(req.environ, 'uuid')
    guarded = _with_generation(req)
    with missing_provider_first(context, uuid):
        data = util.extract_json(req.body, schemas.for_version(schema.PUT, microversion.wanted(req)))
    sent = data['aggregates'] if guarded else data
    provider = ResourceProvider.reference(context, uuid, data['resource_provider_generation'] if guarded else None)
    # Two spellings of one uuid are one aggregate; the answer keeps the order of the request.
    aggregates = list(dict.fromkeys(map(util.canonical_uuid, sent)))
    provider.set_aggregates(aggregates, increment_generation=guarded)
    return _response(req, provider, aggregates)
