"""The routes: from path and method to operation."""

from __future__ import annotations

from placement.handlers import (
    aggregate,
    allocation,
    allocation_candidate,
    inventory,
    reshaper,
    resource_class,
    resource_provider,
    root,
    trait,
    usage,
)
from placement.web import microversion
from placement.web.operation import Declarations

ROUTE_DECLARATIONS: Declarations = {
    '/': {'GET': root.list_versions},
    '/resource_classes': {'GET': resource_class.list_resource_classes, 'POST': resource_class.create_resource_class},
    '/resource_classes/{name}': {
        'GET': resource_class.get_resource_class,
        'PUT': resource_class.update_resource_class,
        'DELETE': resource_class.delete_resource_class,
    },
    '/resource_providers': {
        'GET': resource_provider.list_resource_providers,
        'POST': resource_provider.create_resource_provider,
    },
    '/resource_providers/{uuid}': {
        'GET': resource_provider.get_resource_provider,
        'PUT': resource_provider.update_resource_provider,
        'DELETE': resource_provider.delete_resource_provider,
    },
    '/resource_providers/{uuid}/inventories': {
        'GET': inventory.list_resource_provider_inventories,
        'POST': inventory.create_resource_provider_inventory,
        'PUT': inventory.replace_resource_provider_inventories,
        'DELETE': inventory.delete_resource_provider_inventories,
    },
    '/resource_providers/{uuid}/inventories/{resource_class}': {
        'GET': inventory.get_resource_provider_inventory,
        'PUT': inventory.update_resource_provider_inventory,
        'DELETE': inventory.delete_resource_provider_inventory,
    },
    '/resource_providers/{uuid}/usages': {'GET': usage.list_resource_provider_usages},
    '/resource_providers/{uuid}/aggregates': {
        'GET': aggregate.list_resource_provider_aggregates,
        'PUT': aggregate.replace_resource_provider_aggregates,
    },
    '/resource_providers/{uuid}/allocations': {'GET': allocation.list_resource_provider_allocations},
    '/resource_providers/{uuid}/traits': {
        'GET': trait.list_resource_provider_traits,
        'PUT': trait.replace_resource_provider_traits,
        'DELETE': trait.delete_resource_provider_traits,
    },
    '/traits': {'GET': trait.list_traits},
    '/traits/{name}': {'GET': trait.get_trait, 'PUT': trait.create_trait, 'DELETE': trait.delete_trait},
    '/allocations': {'POST': allocation.set_allocations},
    '/allocations/{consumer_uuid}': {
        'GET': allocation.list_consumer_allocations,
        'PUT': allocation.replace_consumer_allocations,
        'DELETE': allocation.delete_consumer_allocations,
    },
    '/reshaper': {'POST': reshaper.reshape},
    '/allocation_candidates': {'GET': allocation_candidate.list_allocation_candidates},
    '/usages': {'GET': usage.list_usages},
}


def declarations(newest: str) -> Declarations:
    """Return the ``ROUTE_DECLARATIONS`` without the paths that came after microversion ``newest``."""
    version = microversion.parse_version_string(newest)
    return {
        path: methods
        for path, methods in ROUTE_DECLARATIONS.items()
        if any(operation.window.first <= version for declared in methods.values() for operation in declared.operations)
    }
