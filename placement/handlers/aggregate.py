"""The aggregates of a provider (contract A 5.6)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import webob

from placement import exception, schemas
from placement.handlers import answers, modified
from placement.handlers.answers import Answer
from placement.objects import aggregate
from placement.objects.provider_parts import Provider
from placement.objects.resource_provider import ResourceProvider
from placement.policies import aggregate as policies
from placement.schemas import aggregate as schema
from placement.web import microversion, util, wsgi_wrapper


def _with_generation(req: webob.Request) -> bool:
    return microversion.wanted(req) >= (1, 19)


def _response(req: webob.Request, provider: ResourceProvider | Provider, aggregates: Iterable[str]) -> webob.Response:
    body: dict[str, Any] = {'aggregates': list(aggregates)}
    if _with_generation(req):
        body['resource_provider_generation'] = provider.generation
    return util.json_response(req, body, last_modified=modified.now())


@wsgi_wrapper.PlacementWsgify
@util.check_accept('application/json')
@microversion.version_handler('1.1')
@answers.answered()
def get_aggregates(req: webob.Request) -> webob.Response:
    """Show the aggregates that a provider is in."""
    context = req.environ['placement.context']
    context.can(policies.LIST)
    provider, aggregates = aggregate.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    return _response(req, provider, aggregates)


@wsgi_wrapper.PlacementWsgify
@util.require_content('application/json')
@microversion.version_handler('1.1')
@answers.answered(
    Answer(exception.ProviderGenerationMismatch, "Resource provider's generation already changed."),
    Answer(exception.ConcurrentUpdate, 'Update conflict: {error}'),
)
def set_aggregates(req: webob.Request) -> webob.Response:
    """Replace the aggregates of a provider; from 1.19 guarded by, and moving, its generation."""
    context = req.environ['placement.context']
    context.can(policies.UPDATE)
    provider = ResourceProvider.get_by_uuid(context, util.wsgi_path_item(req.environ, 'uuid'))
    data = util.extract_json(req.body, schemas.for_version(schema.PUT, microversion.wanted(req)))
    guarded = _with_generation(req)
    if guarded:
        provider.check_generation(data['resource_provider_generation'])
    sent = data['aggregates'] if guarded else data
    # Two spellings of one uuid are one aggregate; the answer keeps the order of the request.
    aggregates = list(dict.fromkeys(map(util.canonical_uuid, sent)))
    provider.set_aggregates(aggregates, bump=guarded)
    return _response(req, provider, aggregates)
