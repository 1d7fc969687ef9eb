"""Divides a request into checks: what can be wrong with a provider or a root. Each is one bit of the matrix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from placement.cache.providers import SHARING_TRAIT
from placement.search.requirements import (
    AggregateCondition,
    Fault,
    ProviderCondition,
    ResourcePart,
    TreeCondition,
)

#: A provider that has inventory of one of these is a host, and no pool.
HOST_CLASSES = frozenset({'VCPU', 'PCPU', 'MEMORY_MB'})


@dataclass(frozen=True)
class Rule:
    """One part of a request: a condition, or a rule between groups."""

    #: The query parameter. ``forbidden`` stands for a forbidden trait, ``microversion`` for the rule that below 1.29 a
    #: candidate uses at most one provider of a tree.
    parameter: str
    #: The groups that have it; groups with equal requirements have common rules. A rule about roots has none.
    suffixes: tuple[str, ...] = ()
    #: The text of the query, such as ``VCPU:4``.
    subject: str = ''


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong with a provider: a rule, and for an amount the fault."""

    rule: Rule
    fault: Fault = Fault.VIOLATED
    #: What the provider, or the root, has to satisfy.
    condition: ProviderCondition = field(default=ProviderCondition(), compare=False)

    @property
    def is_membership(self) -> bool:
        """Whether it requires an aggregate."""
        return isinstance(self.condition, AggregateCondition) and not self.condition.forbidden

    @property
    def never_by_sharing(self) -> bool:
        """Whether every sharing provider fails in other trees: by ``in_tree`` of the unsuffixed group, or its trait."""
        if isinstance(self.condition, TreeCondition):
            return not self.condition.sharing
        return self.rule.parameter == 'forbidden' and self.rule.subject == SHARING_TRAIT

    @property
    def resource_class(self) -> str:
        """The class of an amount; empty for another check."""
        return self.condition.resource_class if isinstance(self.condition, ResourcePart) else ''

    @property
    def lacks_host_class(self) -> bool:
        """Whether a provider that fails has no inventory of a class of hosts."""
        return self.fault is Fault.ABSENT and self.resource_class in HOST_CLASSES


def checks_of(condition: ProviderCondition, suffixes: tuple[str, ...]) -> Iterator[Check]:
    """Divide a condition on a provider, or without ``suffixes`` on a root, into checks; the worst fault comes first."""
    # If the unsuffixed group forbids an aggregate, a root may not be in it either. This is one rule.
    suffixes = () if condition.of_roots_only else suffixes or ('',)
    for part in condition.parts():
        if isinstance(part, AggregateCondition):
            part = replace(part, or_root=False)  # noqa: PLW2901
        fault = part.fault if isinstance(part, ResourcePart) else Fault.VIOLATED
        yield Check(Rule(part.parameter, suffixes, part.subject), fault, part)
