"""The routes, from path and method to operation, and the dispatcher (api-ref/rules.md#paths-and-methods)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import routes
from webob import exc

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
from placement.web.operation import ByMicroversion, Operation

Declarations = Mapping[str, Mapping[str, Operation | ByMicroversion]]

ROUTE_DECLARATIONS: Declarations = {
    '/': {
        'GET': root.list_versions,
    },
    '/resource_classes': {
        'GET': resource_class.list_resource_classes,
        'POST': resource_class.create_resource_class,
    },
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
    '/resource_providers/{uuid}/usages': {
        'GET': usage.list_resource_provider_usages,
    },
    '/resource_providers/{uuid}/aggregates': {
        'GET': aggregate.list_resource_provider_aggregates,
        'PUT': aggregate.replace_resource_provider_aggregates,
    },
    '/resource_providers/{uuid}/allocations': {
        'GET': allocation.list_resource_provider_allocations,
    },
    '/resource_providers/{uuid}/traits': {
        'GET': trait.list_resource_provider_traits,
        'PUT': trait.replace_resource_provider_traits,
        'DELETE': trait.delete_resource_provider_traits,
    },
    '/traits': {
        'GET': trait.list_traits,
    },
    '/traits/{name}': {
        'GET': trait.get_trait,
        'PUT': trait.create_trait,
        'DELETE': trait.delete_trait,
    },
    '/allocations': {
        'POST': allocation.set_allocations,
    },
    '/allocations/{consumer_uuid}': {
        'GET': allocation.list_consumer_allocations,
        'PUT': allocation.replace_consumer_allocations,
        'DELETE': allocation.delete_consumer_allocations,
    },
    '/reshaper': {
        'POST': reshaper.reshape,
    },
    '/allocation_candidates': {
        'GET': allocation_candidate.list_allocation_candidates,
    },
    '/usages': {
        'GET': usage.list_usages,
    },
}


def declarations(newest: str) -> Declarations:
    """Return the ``ROUTE_DECLARATIONS`` without the paths that came after microversion ``newest``."""
    version = microversion.parse_version_string(newest)
    return {
        path: methods
        for path, methods in ROUTE_DECLARATIONS.items()
        if any(operation.window.first <= version for declared in methods.values() for operation in declared.operations)
    }


class PlacementHandler:
    """WSGI application that passes each request to the operation declared for it.

    It stores the declared path in ``environ['placement.route']`` and the variables of the path, decoded, in
    ``environ['wsgiorg.routing_args']``.
    """

    def __init__(self, declarations: Declarations) -> None:
        self._declarations = declarations
        self._mapper = routes.Mapper(controller_scan=None, explicit=True)
        for path in declarations:
            # By default a variable does not match a newline at the end.
            self._mapper.connect(None, path.replace('}', ':[^/]+}'), route=path)
        self._mapper.create_regs([])

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Pass the request on.

        :raises HTTPNotFound: the path is not declared, or has an encoded slash, which is indistinguishable from a
            separator once decoded.
        :raises HTTPMethodNotAllowed: the path is declared, but not with this method.
        """
        raw = environ.get('RAW_URI') or environ.get('REQUEST_URI') or ''
        if '%2f' in raw.partition('?')[0].lower():
            raise exc.HTTPNotFound
        # No stored name contains the replacement character, so a path with NUL or invalid UTF-8 finds nothing.
        path = environ.get('PATH_INFO', '').encode('latin-1', 'replace').decode(errors='replace')
        path = path.replace('\0', '\N{REPLACEMENT CHARACTER}') or '/'
        variables = self._mapper.match(path)
        # Routes also accepts a trailing slash or newline. The route filled in with its variables must equal the path.
        if not variables or (route := variables.pop('route')).format(**variables) != path:
            raise exc.HTTPNotFound
        environ['placement.route'] = route
        methods = self._declarations[route]
        if environ['REQUEST_METHOD'] not in methods:
            raise exc.HTTPMethodNotAllowed(headers={'Allow': ', '.join(methods)})
        environ['wsgiorg.routing_args'] = ((), variables)
        return methods[environ['REQUEST_METHOD']](environ, start_response)
