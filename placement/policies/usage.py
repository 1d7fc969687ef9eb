"""Policy rules of usages."""

from __future__ import annotations

from placement.policies import base

PROVIDER_USAGES = 'placement:resource_providers:usages'
TOTAL_USAGES = 'placement:usages'

RULES = [
    base.rule(
        PROVIDER_USAGES, 'Show what is used of a resource provider.', ('GET', '/resource_providers/{uuid}/usages')
    ),
    base.rule(TOTAL_USAGES, 'Show what a project or one of its users uses.', ('GET', '/usages')),
]
