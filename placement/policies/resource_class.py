"""Policy rules of resource classes."""

from __future__ import annotations

from placement.policies import base

LIST = 'placement:resource_classes:list'
CREATE = 'placement:resource_classes:create'
SHOW = 'placement:resource_classes:show'
UPDATE = 'placement:resource_classes:update'
DELETE = 'placement:resource_classes:delete'

RULES = [
    base.rule(LIST, 'List resource classes.', ('GET', '/resource_classes')),
    base.rule(CREATE, 'Create a custom resource class.', ('POST', '/resource_classes')),
    base.rule(SHOW, 'Show a resource class.', ('GET', '/resource_classes/{name}')),
    base.rule(
        UPDATE,
        'Create a custom resource class, or rename it below microversion 1.7.',
        ('PUT', '/resource_classes/{name}'),
    ),
    base.rule(DELETE, 'Delete a custom resource class.', ('DELETE', '/resource_classes/{name}')),
]
