"""The default policy rules, one module per resource. Operators can override them in the policy file."""

from __future__ import annotations

import itertools

from oslo_policy import policy

from placement.policies import (
    aggregate,
    allocation,
    allocation_candidate,
    base,
    inventory,
    reshaper,
    resource_class,
    resource_provider,
    trait,
    usage,
)

_MODULES = (
    base,
    resource_provider,
    inventory,
    aggregate,
    trait,
    resource_class,
    usage,
    allocation,
    allocation_candidate,
    reshaper,
)


def list_rules() -> list[policy.RuleDefault]:
    """Return every rule, for the service and for ``oslopolicy-sample-generator --namespace placement``."""
    return list(itertools.chain.from_iterable(module.RULES for module in _MODULES))
