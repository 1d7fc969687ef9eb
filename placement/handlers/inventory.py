"""The inventories of a provider: all of them, or the inventory of one resource class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from webob import Request, Response, exc

from placement import exception
from placement.capacity import FIELDS, InventoryRecord
from placement.handlers.resource_provider import require_provider
from placement.objects.inventory import Inventory, read_inventories
from placement.schemas import requests, responses
from placement.web import http, microversion
from placement.web.authentication import RequestContext
from placement.web.error_responses import CONCURRENT_UPDATE, ErrorMapping
from placement.web.operation import JsonBody, Microversions, RequiresPolicy, accepts_json, operation

if TYPE_CHECKING:
    # Handlers hold no SQL, so they import db only for annotations.
    from placement.db.generation import ProviderGeneration

_UPDATE_FAILURES = (
    ErrorMapping(exception.Invalid, 'Unable to update inventory for resource provider {uuid}: {error}'),
    ErrorMapping(exception.ProviderGenerationMismatch, 'resource provider generation conflict: {error}'),
    ErrorMapping(exception.ConcurrentUpdate, 'update conflict: {error}'),
)


def _fields(inventory: Inventory | InventoryRecord) -> dict[str, Any]:
    return {field: getattr(inventory, field) for field in FIELDS}


def _single(provider: ProviderGeneration, inventory: Inventory | InventoryRecord) -> dict[str, Any]:
    return {**_fields(inventory), 'resource_provider_generation': provider.generation}


def _collection(provider: ProviderGeneration, inventories: Mapping[str, Inventory | InventoryRecord]) -> dict[str, Any]:
    return {
        'resource_provider_generation': provider.generation,
        'inventories': {name: _fields(inventory) for name, inventory in inventories.items()},
    }


def record_of(entry: Mapping[str, Any]) -> InventoryRecord:
    """Make a record from an inventory in a valid body. Missing members have defaults."""
    values = {field: entry[field] for field in FIELDS if field in entry}
    # Adding 0.0 makes a float of an integer. It also makes 0.0 of -0.0, because some databases do not keep the sign.
    return InventoryRecord(**{**values, 'allocation_ratio': entry.get('allocation_ratio', 1.0) + 0.0})


def _checked(
    req: Request, provider: ProviderGeneration, resource_class: str, entry: Mapping[str, Any]
) -> InventoryRecord:
    """Make a record of an inventory in the body.

    :raises InvalidInventoryCapacity: the microversion does not allow its capacity
        (api-ref/capacity.md#capacity-that-may-be-stored).
    """
    record = record_of(entry)
    record.raise_unless_capacity_valid(
        resource_class, provider.uuid, zero_allowed=microversion.requested(req) >= (1, 26)
    )
    return record


@operation(
    accepts_json,
    RequiresPolicy('placement:resource_providers:inventories:list'),
    responses={200: responses.INVENTORIES},
)
def list_resource_provider_inventories(req: Request, context: RequestContext, uuid: str) -> Response:
    """Show all inventories of a provider."""
    provider, inventories = Inventory.get_all_with_provider(context, uuid)
    by_class = {inventory.resource_class: inventory for inventory in inventories}
    return http.json_response(req, _collection(provider, by_class), last_modified=http.last_modified(inventories))


@operation(
    JsonBody(requests.POST_INVENTORY),
    RequiresPolicy('placement:resource_providers:inventories:create'),
    failures=(
        ErrorMapping(exception.Invalid, 'Unable to create inventory for resource provider {uuid}: {error}'),
        ErrorMapping(
            exception.ResourceClassNotFound,
            'Unable to create inventory for resource provider {uuid}: {error}',
            exc.HTTPBadRequest,
        ),
        ErrorMapping(exception.InventoryExists, 'Update conflict: {error}', code=CONCURRENT_UPDATE),
        ErrorMapping(exception.ConcurrentUpdate, 'Update conflict: {error}'),
    ),
    responses={201: responses.INVENTORY},
    path_error=require_provider,
)
def create_resource_provider_inventory(
    req: Request, context: RequestContext, data: dict[str, Any], uuid: str
) -> Response:
    """Add the inventory of one class."""
    provider, _present = read_inventories(context, uuid)
    resource_class = data['resource_class']
    record = _checked(req, provider, resource_class, data)
    provider = Inventory.create(context, provider, resource_class, record)
    response = http.json_response(req, _single(provider, record), 201, last_modified=http.now())
    path = http.url(req.environ, 'resource_providers', provider.uuid, 'inventories', resource_class)
    response.location = req.host_url + path
    return response


@operation(
    JsonBody(requests.PUT_INVENTORIES),
    RequiresPolicy('placement:resource_providers:inventories:update'),
    failures=(
        ErrorMapping(
            exception.ResourceClassNotFound,
            'Unknown resource class in inventory for resource provider {uuid}: {error}',
            exc.HTTPBadRequest,
        ),
        ErrorMapping(exception.InventoryInUse, 'update conflict: {error}'),
        *_UPDATE_FAILURES,
    ),
    responses={200: responses.INVENTORIES},
    path_error=require_provider,
)
def replace_resource_provider_inventories(
    req: Request, context: RequestContext, data: dict[str, Any], uuid: str
) -> Response:
    """Replace all inventories of a provider by those in the body."""
    provider, present = read_inventories(context, uuid)
    provider.raise_unless_equal(data['resource_provider_generation'])
    inventories = {name: _checked(req, provider, name, entry) for name, entry in data['inventories'].items()}
    provider = Inventory.replace(context, provider, present, inventories)
    return http.json_response(req, _collection(provider, inventories), last_modified=http.now())


@operation(
    Microversions((1, 5), otherwise=405),
    RequiresPolicy('placement:resource_providers:inventories:delete'),
    failures=(
        ErrorMapping(exception.ConcurrentUpdate, 'Unable to delete inventory for resource provider {uuid}: {error}'),
    ),
    responses={204: None},
)
def delete_resource_provider_inventories(req: Request, context: RequestContext, uuid: str) -> Response:
    """Remove all inventories of a provider."""
    provider, present = read_inventories(context, uuid)
    Inventory.replace(context, provider, present, {})
    return http.empty_response(req, 204)


@operation(
    accepts_json, RequiresPolicy('placement:resource_providers:inventories:show'), responses={200: responses.INVENTORY}
)
def get_resource_provider_inventory(req: Request, context: RequestContext, uuid: str, resource_class: str) -> Response:
    """Show the inventory of one class."""
    provider, inventory = Inventory.get_with_provider(context, uuid, resource_class)
    return http.json_response(req, _single(provider, inventory), last_modified=inventory.modified)


@operation(
    JsonBody(requests.PUT_INVENTORY),
    RequiresPolicy('placement:resource_providers:inventories:update'),
    failures=_UPDATE_FAILURES,
    responses={200: responses.INVENTORY},
    path_error=require_provider,
)
def update_resource_provider_inventory(
    req: Request, context: RequestContext, data: dict[str, Any], uuid: str, resource_class: str
) -> Response:
    """Overwrite the inventory of one class, which must exist."""
    provider, present = read_inventories(context, uuid)
    provider.raise_unless_equal(data['resource_provider_generation'])
    record = _checked(req, provider, resource_class, data)
    provider = Inventory.update(context, provider, present, resource_class, record)
    return http.json_response(req, _single(provider, record), last_modified=http.now())


@operation(
    RequiresPolicy('placement:resource_providers:inventories:delete'),
    failures=(
        ErrorMapping(exception.ResourceClassNotFound, 'No inventory of class {resource_class} found for delete'),
        ErrorMapping(exception.InventoryNotFound, 'No inventory of class {resource_class} found for delete'),
        # Clients expect this code, not the code of an inventory in use (api-ref/errors.md#codes-that-surprise).
        ErrorMapping(
            exception.InventoryInUse,
            'Unable to delete inventory of class {resource_class}: {error}',
            code=CONCURRENT_UPDATE,
        ),
        ErrorMapping(exception.ConcurrentUpdate, 'Unable to delete inventory of class {resource_class}: {error}'),
    ),
    responses={204: None},
)
def delete_resource_provider_inventory(
    req: Request, context: RequestContext, uuid: str, resource_class: str
) -> Response:
    """Remove the inventory of one class."""
    provider, present = read_inventories(context, uuid)
    Inventory.delete(context, provider, present, resource_class)
    return http.empty_response(req, 204)
