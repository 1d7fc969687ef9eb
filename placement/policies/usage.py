"""Policy rules of usages."""

from __future__ import annotations

from placement.policies import base

PROVIDER_USAGES = 'placement:resource_providers:usages'
TOTAL_USAGES = 'placement:usages'

RULES = [
    base.rule(PROVIDER_USAGES, 'Show the usages of a resource provider.', ('GET', '/resource_providers/{uuid}/usages')),
    base.rule(
        TOTAL_USAGES,
        'Show the usages of a project, or of a user in it. The target is the project that the query names.',
        ('GET', '/usages'),
        default=base.ADMIN_OR_PROJECT_READER_OR_SERVICE_API,
    ),
]
