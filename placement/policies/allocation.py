"""Policy rules of allocations."""

from __future__ import annotations

from placement.policies import base

RP_LIST = 'placement:resource_providers:allocations:list'
MANAGE = 'placement:allocations:manage'
LIST = 'placement:allocations:list'
UPDATE = 'placement:allocations:update'
DELETE = 'placement:allocations:delete'

RULES = [
    base.rule(
        RP_LIST, 'List the allocations on a resource provider.', ('GET', '/resource_providers/{uuid}/allocations')
    ),
    base.rule(MANAGE, 'Replace the allocations of several consumers at once.', ('POST', '/allocations')),
    base.rule(LIST, 'List the allocations of a consumer.', ('GET', '/allocations/{consumer_uuid}')),
    base.rule(UPDATE, 'Replace the allocations of a consumer.', ('PUT', '/allocations/{consumer_uuid}')),
    base.rule(DELETE, 'Delete the allocations of a consumer.', ('DELETE', '/allocations/{consumer_uuid}')),
]
