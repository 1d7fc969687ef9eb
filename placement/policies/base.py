"""The policy rules to which those of the operations refer, and the function that declares a rule of an operation."""

from __future__ import annotations

from oslo_policy import policy

ADMIN_OR_SERVICE_API = 'admin_or_service_api'
ADMIN_OR_PROJECT_READER_OR_SERVICE_API = 'admin_or_project_reader_or_service_api'

#: Operations are for tokens of a project. A system-scoped token is refused if [oslo_policy] enforce_scope is set.
_SCOPES = ['project']

RULES = [
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
        description='The default for every operation but GET /usages.',
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
        description='The default for GET /usages.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        'reader_api',
        f'rule:{ADMIN_OR_SERVICE_API}',
        description='The rule of every operation that only reads, before there were rules for readers of a project.',
        scope_types=_SCOPES,
        deprecated_for_removal=True,
        deprecated_reason='No operation refers to it. Override admin_or_service_api or the rules of the operations.',
        deprecated_since='1.0.0',
    ),
    policy.RuleDefault(
        'placement',
        'role:admin',
        description='The rule of every operation before each had a rule of its own.',
        scope_types=_SCOPES,
        deprecated_for_removal=True,
        deprecated_reason='No operation refers to it. Override admin_or_service_api or the rules of the operations.',
        deprecated_since='1.0.0',
    ),
]


def rule(
    name: str, description: str, *operations: tuple[str, str], default: str = ADMIN_OR_SERVICE_API
) -> policy.DocumentedRuleDefault:
    """Declare the rule of one or more operations.

    :param name: the rule's name, which the error for a caller without permission contains.
    :param operations: pairs of method and path.
    :param default: name of the rule to which it refers by default.
    """
    return policy.DocumentedRuleDefault(
        name,
        f'rule:{default}',
        description,
        [{'method': method, 'path': path} for method, path in operations],
        scope_types=_SCOPES,
    )
