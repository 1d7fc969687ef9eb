"""The default policy rules. Operators can override each of them in the policy file.

The rules of the operations are made from their declarations (``RequiresPolicy``).
"""

from __future__ import annotations

import os
from typing import Any

from oslo_config import cfg
from oslo_policy import opts, policy

from placement import conf as configuration
from placement import handler
from placement.web.operation import Operation, RequiresPolicy
from placement.web.policy import Enforcer

#: Operations accept project-scoped tokens. They reject a system-scoped one unless [oslo_policy] enforce_scope is off.
_SCOPES = ['project']

#: Rules that other rules refer to: name, default and description.
_BASE_RULES = (
    ('admin_api', 'role:admin', 'The role of administrators, for rules of the policy file.'),
    ('service_api', 'role:service', 'The role of the users of other OpenStack services, for rules of the policy file.'),
    ('admin_or_service_api', 'role:admin or role:service', 'The default of every operation except GET /usages.'),
    (
        'project_reader_api',
        'role:reader and project_id:%(project_id)s',
        'Readers of the project that a request is about.',
    ),
    (
        'admin_or_project_reader_or_service_api',
        'role:admin or rule:project_reader_api or role:service',
        'The default of GET /usages.',
    ),
)
#: Rules that policy files may still refer to.
_FORMER_RULES = (
    ('reader_api', 'rule:admin_or_service_api', 'The former rule of the operations that only read.'),
    ('placement', 'role:admin', 'The former rule of all operations.'),
)
_UNUSED = 'No operation refers to it. Override admin_or_service_api or the rules of the operations.'


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule, for the service and for ``oslopolicy-sample-generator --namespace placement``."""
    protected: dict[RequiresPolicy, list[tuple[str, str, Operation]]] = {}
    for path, methods in handler.ROUTE_DECLARATIONS.items():
        for method, declared in methods.items():
            for operation in declared.operations:
                if operation.policy is not None:
                    protected.setdefault(operation.policy, []).append((method, path, operation))
    rules = [policy.RuleDefault(*rule, scope_types=_SCOPES) for rule in _BASE_RULES]
    former: dict[str, Any] = {'deprecated_for_removal': True, 'deprecated_reason': _UNUSED, 'deprecated_since': '1.0.0'}
    rules += [policy.RuleDefault(*rule, scope_types=_SCOPES, **former) for rule in _FORMER_RULES]
    for check, operations in protected.items():
        summary = ' '.join(operation.summary for _, _, operation in operations)
        # Two operations may be on one path, at different microversions.
        places = dict.fromkeys((method, path) for method, path, _ in operations)
        documented: list[policy.Operation] = [{'method': method, 'path': path} for method, path in places]
        rules.append(policy.DocumentedRuleDefault(check.rule, check.default, summary, documented, scope_types=_SCOPES))
    return rules


def get_enforcer() -> policy.Enforcer:
    """Return the rules in force with the default configuration, for ``oslopolicy-list-redundant`` and similar tools."""
    enforcer = Enforcer(configuration.load(), list_rules())
    # oslopolicy-validator reads one file, whose path it expects in the global configuration.
    opts.set_defaults(cfg.CONF)
    cfg.CONF.set_override('policy_file', next(iter(enforcer.loaded.sources), os.devnull), 'oslo_policy')
    return enforcer.loaded.rules
