"""Policy rules of inventories."""

from __future__ import annotations

from placement.policies import base

LIST = 'placement:resource_providers:inventories:list'
CREATE = 'placement:resource_providers:inventories:create'
SHOW = 'placement:resource_providers:inventories:show'
UPDATE = 'placement:resource_providers:inventories:update'
DELETE = 'placement:resource_providers:inventories:delete'

RULES = [
    base.rule(LIST, 'List the inventories of a resource provider.', ('GET', '/resource_providers/{uuid}/inventories')),
    base.rule(CREATE, 'Add one inventory to a resource provider.', ('POST', '/resource_providers/{uuid}/inventories')),
    base.rule(
        SHOW,
        'Show one inventory of a resource provider.',
        ('GET', '/resource_providers/{uuid}/inventories/{resource_class}'),
    ),
    base.rule(
        UPDATE,
        'Replace one or all inventories of a resource provider.',
        ('PUT', '/resource_providers/{uuid}/inventories'),
        ('PUT', '/resource_providers/{uuid}/inventories/{resource_class}'),
    ),
    base.rule(
        DELETE,
        'Delete one or all inventories of a resource provider.',
        ('DELETE', '/resource_providers/{uuid}/inventories'),
        ('DELETE', '/resource_providers/{uuid}/inventories/{resource_class}'),
    ),
]
