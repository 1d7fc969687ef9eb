"""The reshaper: inventories and allocations that move in one change."""

from __future__ import annotations

from typing import Any

from webob import Request, Response, exc

from placement import exception
from placement.claims import claim
from placement.claims.requested import ReshapedProvider
from placement.handlers import allocation
from placement.handlers.inventory import record_of
from placement.schemas import requests
from placement.web import http
from placement.web.authentication import RequestContext
from placement.web.error_responses import PROVIDER_NOT_FOUND, ErrorMapping
from placement.web.operation import JsonBody, Microversions, RequiresPolicy, operation


@operation(
    Microversions((1, 30)),
    JsonBody(requests.POST_RESHAPER),
    RequiresPolicy('placement:reshaper:reshape'),
    failures=(
        ErrorMapping(
            exception.ResourceProviderNotFound,
            'Resource provider {uuid} in inventories not found: {error}',
            exc.HTTPBadRequest,
            PROVIDER_NOT_FOUND,
        ),
        ErrorMapping(exception.Invalid, 'Unable to update inventory for resource provider {uuid}: {error}'),
        ErrorMapping(exception.ResourceClassNotFound, 'malformed reshaper data: {error}', exc.HTTPBadRequest),
        ErrorMapping(exception.InventoryInUse, 'update conflict: {error}'),
        # There is no text before these messages, because clients look for them at the beginning of the reason.
        ErrorMapping(exception.ReshapeGenerationConflict),
        ErrorMapping(exception.ConsumerGenerationConflict),
        ErrorMapping(exception.ConcurrentUpdate, 'update conflict: {error}'),
    ),
    responses={204: None},
)
def reshape(req: Request, context: RequestContext, data: dict[str, Any]) -> Response:
    """Replace the inventories of several providers and the allocations of several consumers in one change."""
    claims = allocation.claims_of(context, data['allocations'])
    providers = [
        ReshapedProvider(
            uuid,
            entry['resource_provider_generation'],
            {name: record_of(inventory) for name, inventory in entry['inventories'].items()},
        )
        for uuid, entry in data['inventories'].items()
    ]
    claim.reshape(context.db, providers, claims)
    return http.empty_response(req, 204)
