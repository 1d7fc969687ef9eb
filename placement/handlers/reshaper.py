"""The reshaper: inventories and allocations that move in one change."""

from __future__ import annotations

import webob
from webob import exc

from placement import exception, policies, schemas
from placement.handlers import allocation
from placement.objects import inventory as objects
from placement.objects.inventory import Inventory
from placement.schemas import reshaper as schema
from placement.web import error_document, microversion, util
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.operation import JSON, Produces, RequiresPolicy, SinceVersion, operation


@operation(
    SinceVersion('1.30'),
    Produces(JSON, schema.POST),
    RequiresPolicy(policies.RESHAPE),
    failures=(
        ErrorMapping(
            exception.ResourceProviderNotFound,
            'Resource provider {uuid} in inventories not found: {error}',
            exc.HTTPBadRequest,
            error_document.PROVIDER_NOT_FOUND,
        ),
        ErrorMapping(exception.Invalid, 'Unable to update inventory for resource provider {uuid}: {error}'),
        ErrorMapping(exception.ResourceClassNotFound, 'malformed reshaper data: {error}', exc.HTTPBadRequest),
        ErrorMapping(exception.InventoryInUse, 'update conflict: {error}'),
        # Nothing is put before these messages, because clients look for them at the start of the detail.
        ErrorMapping(exception.ReshapeGenerationConflict),
        ErrorMapping(exception.ConsumerGenerationConflict),
        ErrorMapping(exception.ConcurrentUpdate, 'update conflict: {error}'),
    ),
    responses={204: None},
)
def reshape(req: webob.Request, context: RequestContext) -> webob.Response:
    """Replace the inventories of several providers and the allocations of several consumers in one change."""
    data = util.extract_json(req.body, schemas.for_version(schema.POST, microversion.wanted(req)))
    claims = allocation.claims_of(context, data['allocations'])
    providers = [
        objects.ReshapedProvider(
            uuid,
            entry['resource_provider_generation'],
            [Inventory.from_request(name, record) for name, record in entry['inventories'].items()],
        )
        for uuid, entry in data['inventories'].items()
    ]
    objects.reshape(context, providers, claims)
    return util.empty_response(req, 204)
