"""The default policy rules. Operators can override each of them in the policy file.

The rules of the operations are made from their declarations (``RequiresPolicy``).
"""

from __future__ import annotations

from oslo_policy import policy

from placement import conf as configuration
from placement import handler
from placement.web.operation import Operation, RequiresPolicy
from placement.web.policy import Enforcer

#: Operations accept project-scoped tokens. They reject a system-scoped one unless [oslo_policy] enforce_scope is off.
_SCOPES = ['project']

_BASE_RULES: list[policy.RuleDefault] = [
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
        'admin_or_service_api',
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
        'admin_or_project_reader_or_service_api',
        'role:admin or rule:project_reader_api or role:service',
        description='The default of GET /usages.',
        scope_types=_SCOPES,
    ),
    policy.RuleDefault(
        'reader_api',
        'rule:admin_or_service_api',
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


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule, for the service and for ``oslopolicy-sample-generator --namespace placement``."""
    protected: dict[RequiresPolicy, list[tuple[str, str, Operation]]] = {}
    for path, methods in handler.ROUTE_DECLARATIONS.items():
        for method, declared in methods.items():
            for operation in declared.operations:
                if operation.policy is not None:
                    protected.setdefault(operation.policy, []).append((method, path, operation))
    rules = list(_BASE_RULES)
    for check, operations in protected.items():
        summary = ' '.join(operation.summary for _, _, operation in operations)
        # Two operations may be on one path, at different microversions.
        places = dict.fromkeys((method, path) for method, path, _ in operations)
        documented: list[policy.Operation] = [{'method': method, 'path': path} for method, path in places]
        rules.append(policy.DocumentedRuleDefault(check.rule, check.default, summary, documented, scope_types=_SCOPES))
    return rules


def get_enforcer() -> policy.Enforcer:
    """Return the rules in force with the default configuration, for ``oslopolicy-list-redundant`` and similar tools."""
    return Enforcer(configuration.load(), list_rules()).rules
