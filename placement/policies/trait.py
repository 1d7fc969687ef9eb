"""Policy rules of traits."""

from __future__ import annotations

from placement.policies import base

RP_LIST = 'placement:resource_providers:traits:list'
RP_UPDATE = 'placement:resource_providers:traits:update'
RP_DELETE = 'placement:resource_providers:traits:delete'
LIST = 'placement:traits:list'
SHOW = 'placement:traits:show'
UPDATE = 'placement:traits:update'
DELETE = 'placement:traits:delete'

RULES = [
    base.rule(RP_LIST, 'List the traits of a resource provider.', ('GET', '/resource_providers/{uuid}/traits')),
    base.rule(RP_UPDATE, 'Replace the traits of a resource provider.', ('PUT', '/resource_providers/{uuid}/traits')),
    base.rule(
        RP_DELETE, 'Remove all traits from a resource provider.', ('DELETE', '/resource_providers/{uuid}/traits')
    ),
    base.rule(LIST, 'List traits.', ('GET', '/traits')),
    base.rule(SHOW, 'Check whether a trait exists.', ('GET', '/traits/{name}')),
    base.rule(UPDATE, 'Create a custom trait.', ('PUT', '/traits/{name}')),
    base.rule(DELETE, 'Delete a custom trait.', ('DELETE', '/traits/{name}')),
]
