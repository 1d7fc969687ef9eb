"""Policy rules of aggregates."""

from __future__ import annotations

from placement.policies import base

LIST = 'placement:resource_providers:aggregates:list'
UPDATE = 'placement:resource_providers:aggregates:update'

RULES = [
    base.rule(
        LIST, 'List the aggregates that a resource provider is in.', ('GET', '/resource_providers/{uuid}/aggregates')
    ),
    base.rule(
        UPDATE,
        'Replace the aggregates that a resource provider is in.',
        ('PUT', '/resource_providers/{uuid}/aggregates'),
    ),
]
