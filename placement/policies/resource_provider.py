"""Policy rules of resource providers."""

from __future__ import annotations

from placement.policies import base

LIST = 'placement:resource_providers:list'
CREATE = 'placement:resource_providers:create'
SHOW = 'placement:resource_providers:show'
UPDATE = 'placement:resource_providers:update'
DELETE = 'placement:resource_providers:delete'

RULES = [
    base.rule(LIST, 'List resource providers.', ('GET', '/resource_providers')),
    base.rule(CREATE, 'Create a resource provider.', ('POST', '/resource_providers')),
    base.rule(SHOW, 'Show a resource provider.', ('GET', '/resource_providers/{uuid}')),
    base.rule(UPDATE, 'Rename a resource provider or change its parent.', ('PUT', '/resource_providers/{uuid}')),
    base.rule(DELETE, 'Delete a resource provider.', ('DELETE', '/resource_providers/{uuid}')),
]
