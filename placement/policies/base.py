"""The policy rules to which those of the operations refer, and the function that declares a rule of an operation."""

from __future__ import annotations

from oslo_policy import policy

ADMIN_API = 'admin_api'
READER_API = 'reader_api'

RULES = [
    policy.RuleDefault(
        ADMIN_API,
        'role:admin or role:service',
        description='The default for every operation that changes something. The role service is that of the users of'
        ' other OpenStack services.',
        scope_types=['system'],
    ),
    policy.RuleDefault(
        READER_API,
        f'rule:{ADMIN_API}',
        description='The default for every operation that only reads.',
        scope_types=['system'],
    ),
    policy.RuleDefault(
        'placement',
        'role:admin',
        description='The rule of every operation before each had a rule of its own.',
        scope_types=['system'],
        deprecated_for_removal=True,
        deprecated_reason='No operation refers to it. Override admin_api or the rules of the operations instead.',
        deprecated_since='1.0.0',
    ),
]


def rule(name: str, description: str, *operations: tuple[str, str]) -> policy.DocumentedRuleDefault:
    """Declare the rule of one or more operations. It refers to ``reader_api`` if all are GET, else to ``admin_api``.

    :param name: the rule's name, which the error for a caller without permission contains.
    :param operations: pairs of method and path.
    """
    reads = all(method == 'GET' for method, _path in operations)
    return policy.DocumentedRuleDefault(
        name,
        f'rule:{READER_API if reads else ADMIN_API}',
        description,
        [{'method': method, 'path': path} for method, path in operations],
        scope_types=['system'],
    )
