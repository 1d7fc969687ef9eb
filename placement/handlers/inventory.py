"""The inventories of a provider: all of them, or that of one resource class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import webob
from webob import exc

from placement import exception, policies
from placement.objects import inventory as objects
from placement.objects.inventory import Inventory, InventoryList
from placement.objects.provider_query import ProviderVersion
from placement.objects.resource_provider import ResourceProvider
from placement.schemas import inventory as schema
from placement.schemas import responses
from placement.web import error_document, microversion, util
from placement.web.context import RequestContext
from placement.web.error_mapping import ErrorMapping
from placement.web.operation import JSON, Consumes, Produces, RequiresPolicy, SinceVersion, operation

_FIELDS = ('total', 'reserved', 'min_unit', 'max_unit', 'step_size', 'allocation_ratio')


def _record(inventory: Inventory) -> dict[str, Any]:
    return {field: getattr(inventory, field) for field in _FIELDS}


def _single(provider: ResourceProvider | ProviderVersion, inventory: Inventory) -> dict[str, Any]:
    return {**_record(inventory), 'resource_provider_generation': provider.generation}


def _collection(provider: ResourceProvider | ProviderVersion, inventories: Iterable[Inventory]) -> dict[str, Any]:
    return {
        'resource_provider_generation': provider.generation,
        'inventories': {inventory.resource_class: _record(inventory) for inventory in inventories},
    }


def _provider(req: webob.Request, context: RequestContext) -> ResourceProvider:
    uuid = util.wsgi_path_item(req.environ, 'uuid')
    return ResourceProvider.get_with(context, uuid, objects.read_inventories)


def _make(req: webob.Request, provider: ResourceProvider, resource_class: str, record: dict[str, Any]) -> Inventory:
    """Make an inventory from a record of the body.

    :raises exception.InvalidInventoryCapacity: the microversion does not allow its capacity
        (api-ref/capacity.md#capacity-that-may-be-stored).
    """
    inventory = Inventory.from_request(resource_class, record)
    if error := inventory.capacity_error(provider.uuid, zero_allowed=microversion.wanted(req) >= (1, 26)):
        raise error
    return inventory


@operation(Consumes(JSON), RequiresPolicy(policies.INVENTORIES_LIST), responses={200: responses.INVENTORIES})
def get_inventories(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show all inventories of a provider."""
    provider, inventories = InventoryList.get_with_provider(context, util.wsgi_path_item(req.environ, 'uuid'))
    return util.json_response(req, _collection(provider, inventories), last_modified=util.last_modified(inventories))


@operation(
    Produces(JSON, schema.POST_ONE),
    RequiresPolicy(policies.INVENTORIES_CREATE),
    failures=(
        ErrorMapping(exception.Invalid, 'Unable to create inventory for resource provider {uuid}: {error}'),
        ErrorMapping(
            exception.ResourceClassNotFound,
            'Unable to create inventory for resource provider {uuid}: {error}',
            exc.HTTPBadRequest,
        ),
        ErrorMapping(exception.InventoryExists, 'Update conflict: {error}', code=error_document.CONCURRENT_UPDATE),
        ErrorMapping(exception.ConcurrentUpdate, 'Update conflict: {error}'),
    ),
    responses={201: responses.INVENTORY},
)
def create_inventory(req: webob.Request, context: RequestContext) -> webob.Response:
    """Add the inventory of one class."""
    provider = _provider(req, context)
    record = util.extract_json(req.body, schema.POST_ONE)
    inventory = _make(req, provider, record['resource_class'], record)
    provider.add_inventory(inventory)
    response = util.json_response(req, _single(provider, inventory), 201, last_modified=util.now())
    response.location = req.host_url + util.inventory_url(req.environ, provider.uuid, inventory.resource_class)
    return response


@operation(
    Produces(JSON, schema.PUT_ALL),
    RequiresPolicy(policies.INVENTORIES_UPDATE),
    failures=(
        ErrorMapping(exception.Invalid, 'Unable to update inventory for resource provider {uuid}: {error}'),
        ErrorMapping(
            exception.ResourceClassNotFound,
            'Unknown resource class in inventory for resource provider {uuid}: {error}',
            exc.HTTPBadRequest,
        ),
        ErrorMapping(exception.InventoryInUse, 'update conflict: {error}'),
        ErrorMapping(exception.ProviderGenerationMismatch, 'resource provider generation conflict: {error}'),
        ErrorMapping(exception.ConcurrentUpdate, 'update conflict: {error}'),
    ),
    responses={200: responses.INVENTORIES},
)
def set_inventories(req: webob.Request, context: RequestContext) -> webob.Response:
    """Replace all inventories of a provider by those in the body."""
    provider = _provider(req, context)
    data = util.extract_json(req.body, schema.PUT_ALL)
    provider.check_generation(data['resource_provider_generation'])
    inventories = [_make(req, provider, name, record) for name, record in data['inventories'].items()]
    provider.set_inventories(inventories)
    return util.json_response(req, _collection(provider, inventories), last_modified=util.now())


@operation(
    SinceVersion('1.5', otherwise=405),
    RequiresPolicy(policies.INVENTORIES_DELETE),
    failures=(
        ErrorMapping(exception.ConcurrentUpdate, 'Unable to delete inventory for resource provider {uuid}: {error}'),
    ),
    responses={204: None},
)
def delete_inventories(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove all inventories of a provider."""
    _provider(req, context).delete_inventories()
    return util.empty_response(req, 204)


@operation(Consumes(JSON), RequiresPolicy(policies.INVENTORIES_SHOW), responses={200: responses.INVENTORY})
def get_inventory(req: webob.Request, context: RequestContext) -> webob.Response:
    """Show the inventory of one class."""
    uuid, resource_class = (util.wsgi_path_item(req.environ, name) for name in ('uuid', 'resource_class'))
    provider, inventory = Inventory.get_with_provider(context, uuid, resource_class)
    return util.json_response(req, _single(provider, inventory), last_modified=inventory.modified)


@operation(
    Produces(JSON, schema.PUT_ONE),
    RequiresPolicy(policies.INVENTORIES_UPDATE),
    failures=(
        ErrorMapping(exception.Invalid, 'Unable to update inventory for resource provider {uuid}: {error}'),
        ErrorMapping(exception.ProviderGenerationMismatch, 'resource provider generation conflict: {error}'),
        ErrorMapping(exception.ConcurrentUpdate, 'update conflict: {error}'),
    ),
    responses={200: responses.INVENTORY},
)
def update_inventory(req: webob.Request, context: RequestContext) -> webob.Response:
    """Overwrite the inventory of one class, which must exist."""
    provider = _provider(req, context)
    record = util.extract_json(req.body, schema.PUT_ONE)
    provider.check_generation(record['resource_provider_generation'])
    inventory = _make(req, provider, util.wsgi_path_item(req.environ, 'resource_class'), record)
    provider.update_inventory(inventory)
    return util.json_response(req, _single(provider, inventory), last_modified=util.now())


@operation(
    RequiresPolicy(policies.INVENTORIES_DELETE),
    failures=(
        ErrorMapping(exception.ResourceClassNotFound, 'No inventory of class {resource_class} found for delete'),
        ErrorMapping(exception.InventoryNotFound, 'No inventory of class {resource_class} found for delete'),
        # Clients expect this code, not that of an inventory in use (api-ref/errors.md#codes-that-surprise).
        ErrorMapping(
            exception.InventoryInUse,
            'Unable to delete inventory of class {resource_class}: {error}',
            code=error_document.CONCURRENT_UPDATE,
        ),
        ErrorMapping(exception.ConcurrentUpdate, 'Unable to delete inventory of class {resource_class}: {error}'),
    ),
    responses={204: None},
)
def delete_inventory(req: webob.Request, context: RequestContext) -> webob.Response:
    """Remove the inventory of one class."""
    _provider(req, context).delete_inventory(util.wsgi_path_item(req.environ, 'resource_class'))
    return util.empty_response(req, 204)
