"""The default policy rules. Operators can override each of them in the policy file."""

from __future__ import annotations

from oslo_policy import policy

ADMIN_OR_SERVICE_API = 'admin_or_service_api'
ADMIN_OR_PROJECT_READER_OR_SERVICE_API = 'admin_or_project_reader_or_service_api'

#: Operations accept project-scoped tokens. They reject a system-scoped one unless [oslo_policy] enforce_scope is off.
_SCOPES = ['project']

_RULES: list[policy.RuleDefault] = [
    policy.RuleDefault(
        'admin_api',
        'role:admin',
        description='The role of administrators, for rules of the policy file.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        'service_api',
        'role:service',
        description='The role of the users of other OpenStack services, for rules of the policy file.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        ADMIN_OR_SERVICE_API,
        'role:admin or role:service',
        description='The default of every operation except GET /usages.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        'project_reader_api',
        'role:reader and project_id:%(project_id)s',
        description='Readers of the project that a request is about.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        ADMIN_OR_PROJECT_READER_OR_SERVICE_API,
        'role:admin or rule:project_reader_api or role:service',
        description='The default of GET /usages.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        'reader_api',
        f'rule:{ADMIN_OR_SERVICE_API}',
        description='The former rule of the operations that only read.',
        scope_types=_SCOPES,
        deprecated_for_removal=True,
        deprecated_reason='No operation refers to it. Override admin_or_service_api or the rules of the operations.',
        deprecated_since='1.0.0',
    ),
    policy.RuleDefault(
        'placement',
        'role:admin',
        description='The former rule of all operations.',
        scope_types=_SCOPES,
        deprecated_for_removal=True,
        deprecated_reason='No operation refers to it. Override admin_or_service_api or the rules of the operations.',
        deprecated_since='1.0.0',
    ),
]


def _declare(name: str, description: str, *operations: tuple[str, str], default: str = ADMIN_OR_SERVICE_API) -> str:
    """Declare the rule of one or more operations and return its name.

    :param name: the rule's name; the error for a caller without permission contains it.
    :param operations: pairs of method and path.
    :param default: the name of the rule that decides by default.
    """
    rule = policy.DocumentedRuleDefault(
        name,
        f'rule:{default}',
        description,
        [{'method': method, 'path': path} for method, path in operations],
        scope_types=_SCOPES,
    )
    _RULES.append(rule)
    return name


PROVIDERS_LIST = _declare(
    'placement:resource_providers:list', 'List resource providers.', ('GET', '/resource_providers')
)
PROVIDERS_CREATE = _declare(
    'placement:resource_providers:create', 'Create a resource provider.', ('POST', '/resource_providers')
)
PROVIDERS_SHOW = _declare(
    'placement:resource_providers:show', 'Show a resource provider.', ('GET', '/resource_providers/{uuid}')
)
PROVIDERS_UPDATE = _declare(
    'placement:resource_providers:update',
    'Rename a resource provider or change its parent.',
    ('PUT', '/resource_providers/{uuid}'),
)
PROVIDERS_DELETE = _declare(
    'placement:resource_providers:delete', 'Delete a resource provider.', ('DELETE', '/resource_providers/{uuid}')
)

INVENTORIES_LIST = _declare(
    'placement:resource_providers:inventories:list',
    'List the inventories of a resource provider.',
    ('GET', '/resource_providers/{uuid}/inventories'),
)
INVENTORIES_CREATE = _declare(
    'placement:resource_providers:inventories:create',
    'Add one inventory to a resource provider.',
    ('POST', '/resource_providers/{uuid}/inventories'),
)
INVENTORIES_SHOW = _declare(
    'placement:resource_providers:inventories:show',
    'Show one inventory of a resource provider.',
    ('GET', '/resource_providers/{uuid}/inventories/{resource_class}'),
)
INVENTORIES_UPDATE = _declare(
    'placement:resource_providers:inventories:update',
    'Replace one or all inventories of a resource provider.',
    ('PUT', '/resource_providers/{uuid}/inventories'),
    ('PUT', '/resource_providers/{uuid}/inventories/{resource_class}'),
)
INVENTORIES_DELETE = _declare(
    'placement:resource_providers:inventories:delete',
    'Delete one or all inventories of a resource provider.',
    ('DELETE', '/resource_providers/{uuid}/inventories'),
    ('DELETE', '/resource_providers/{uuid}/inventories/{resource_class}'),
)

AGGREGATES_LIST = _declare(
    'placement:resource_providers:aggregates:list',
    'List the aggregates that a resource provider is in.',
    ('GET', '/resource_providers/{uuid}/aggregates'),
)
AGGREGATES_UPDATE = _declare(
    'placement:resource_providers:aggregates:update',
    'Replace the aggregates that a resource provider is in.',
    ('PUT', '/resource_providers/{uuid}/aggregates'),
)

PROVIDER_TRAITS_LIST = _declare(
    'placement:resource_providers:traits:list',
    'List the traits of a resource provider.',
    ('GET', '/resource_providers/{uuid}/traits'),
)
PROVIDER_TRAITS_UPDATE = _declare(
    'placement:resource_providers:traits:update',
    'Replace the traits of a resource provider.',
    ('PUT', '/resource_providers/{uuid}/traits'),
)
PROVIDER_TRAITS_DELETE = _declare(
    'placement:resource_providers:traits:delete',
    'Remove all traits from a resource provider.',
    ('DELETE', '/resource_providers/{uuid}/traits'),
)
TRAITS_LIST = _declare('placement:traits:list', 'List traits.', ('GET', '/traits'))
TRAITS_SHOW = _declare('placement:traits:show', 'Check whether a trait exists.', ('GET', '/traits/{name}'))
TRAITS_UPDATE = _declare('placement:traits:update', 'Create a custom trait.', ('PUT', '/traits/{name}'))
TRAITS_DELETE = _declare('placement:traits:delete', 'Delete a custom trait.', ('DELETE', '/traits/{name}'))

CLASSES_LIST = _declare('placement:resource_classes:list', 'List resource classes.', ('GET', '/resource_classes'))
CLASSES_CREATE = _declare(
    'placement:resource_classes:create', 'Create a custom resource class.', ('POST', '/resource_classes')
)
CLASSES_SHOW = _declare(
    'placement:resource_classes:show', 'Show a resource class.', ('GET', '/resource_classes/{name}')
)
CLASSES_UPDATE = _declare(
    'placement:resource_classes:update',
    'Create a custom resource class, or rename it below microversion 1.7.',
    ('PUT', '/resource_classes/{name}'),
)
CLASSES_DELETE = _declare(
    'placement:resource_classes:delete', 'Delete a custom resource class.', ('DELETE', '/resource_classes/{name}')
)

PROVIDER_USAGES = _declare(
    'placement:resource_providers:usages',
    'Show the usages of a resource provider.',
    ('GET', '/resource_providers/{uuid}/usages'),
)
TOTAL_USAGES = _declare(
    'placement:usages',
    'Show the usages of a project, or of a user in it. The target is the project that the query names.',
    ('GET', '/usages'),
    default=ADMIN_OR_PROJECT_READER_OR_SERVICE_API,
)

PROVIDER_ALLOCATIONS_LIST = _declare(
    'placement:resource_providers:allocations:list',
    'List the allocations on a resource provider.',
    ('GET', '/resource_providers/{uuid}/allocations'),
)
ALLOCATIONS_MANAGE = _declare(
    'placement:allocations:manage', 'Replace the allocations of several consumers at once.', ('POST', '/allocations')
)
ALLOCATIONS_LIST = _declare(
    'placement:allocations:list', 'List the allocations of a consumer.', ('GET', '/allocations/{consumer_uuid}')
)
ALLOCATIONS_UPDATE = _declare(
    'placement:allocations:update', 'Replace the allocations of a consumer.', ('PUT', '/allocations/{consumer_uuid}')
)
ALLOCATIONS_DELETE = _declare(
    'placement:allocations:delete', 'Delete the allocations of a consumer.', ('DELETE', '/allocations/{consumer_uuid}')
)

CANDIDATES_LIST = _declare(
    'placement:allocation_candidates:list',
    'List the allocation candidates for a request.',
    ('GET', '/allocation_candidates'),
)

RESHAPE = _declare(
    'placement:reshaper:reshape', 'Replace inventories and allocations in one change.', ('POST', '/reshaper')
)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule, for the service and for ``oslopolicy-sample-generator --namespace placement``."""
    return list(_RULES)
