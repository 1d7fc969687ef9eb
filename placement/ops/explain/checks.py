"""Divides a request into checks: what can be wrong with a provider or a root. Each is one bit of the matrix."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition
from placement.search.requirements import (
    AggregateCondition,
    CompiledRequest,
    Condition,
    NameCondition,
    ResourceCondition,
    TraitCondition,
    TreeCondition,
)

#: Required or forbidden, these traits tell what a provider is doing, not what it is: the compute service sets and
#: removes them while the host stays the same.
STATE_TRAITS = frozenset({'COMPUTE_STATUS_DISABLED'})

#: A provider that has inventory of one of these is a host, and no pool.
HOST_CLASSES = frozenset({'VCPU', 'PCPU', 'MEMORY_MB'})

#: The parameters of the rules that are not about a single provider.
ROOT_REQUIRED, GROUP_POLICY = 'root_required', 'group_policy'
SAME_SUBTREE, MICROVERSION = 'same_subtree', 'microversion'


class Fault(enum.StrEnum):
    """What is wrong with a provider that fails a check. An amount has the last three, from worst to best."""

    VIOLATED = 'violated'
    #: It has no inventory of the class.
    ABSENT = 'absent'
    #: It could not allocate the amount even if nothing was used: the total capacity or the units do not allow it.
    TOO_SMALL = 'too_small'
    #: It could allocate the amount, but too much is used.
    FULL = 'full'


@dataclass(frozen=True)
class Rule:
    """One part of a request. For a rule between groups, ``condition`` is None."""

    #: The query parameter. ``forbidden`` stands for a forbidden trait, ``microversion`` for the rule that below 1.29 a
    #: candidate uses at most one provider of a tree.
    parameter: str
    #: The groups that have it; groups with equal requirements have common rules. A rule about roots has none.
    suffixes: tuple[str, ...] = ()
    #: The text of the query, such as ``VCPU:4``.
    subject: str = ''
    #: What the provider, or the root, has to satisfy.
    condition: Condition | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong with a provider: a rule, and for an amount the fault."""

    rule: Rule
    fault: Fault = Fault.VIOLATED

    @property
    def is_state(self) -> bool:
        """Whether it is about the state of a provider, not about what the provider is."""
        condition = self.rule.condition
        of_state = isinstance(condition, TraitCondition) and condition.sets[0] <= STATE_TRAITS
        return of_state or self.fault is Fault.FULL

    @property
    def is_membership(self) -> bool:
        """Whether it requires an aggregate."""
        return isinstance(self.rule.condition, AggregateCondition) and not self.rule.condition.forbidden

    @property
    def is_place(self) -> bool:
        """Whether it requires an aggregate or a tree."""
        return self.is_membership or isinstance(self.rule.condition, TreeCondition)

    @property
    def resource_class(self) -> str:
        """The class of an amount; empty for another check."""
        return self.rule.condition.resource_class if isinstance(self.rule.condition, ResourceCondition) else ''

    @property
    def amount(self) -> int:
        """The requested amount; 0 for another check."""
        return self.rule.condition.amount if isinstance(self.rule.condition, ResourceCondition) else 0

    def count_steps(self, partition: Partition) -> int:
        """Return the steps of ``failing``."""
        condition = self.rule.condition
        names = len(condition.sets[0]) if isinstance(condition, NameCondition) else 0
        return 4 + names + (partition.size + partition.distinct_sets) // 64

    def failing(self, partition: Partition) -> Flags:
        """Return which providers of a partition fail. One that has a worse fault fails the better ones, too."""
        condition = self.rule.condition
        if condition is None:
            raise TypeError(self.rule)
        if isinstance(condition, NameCondition):
            # This takes a look-up for each name, and not a call for each set.
            column = partition.traits if isinstance(condition, TraitCondition) else partition.aggregates
            violating: Flags = column.values_with(condition.sets[0]) == condition.forbidden
            return violating[column.codes]
        if not isinstance(condition, ResourceCondition):
            return ~condition.matches(partition)
        failed = partition.all_providers()
        columns = partition.inventory_columns.get(condition.resource_class)
        if columns is not None:
            if self.fault is Fault.TOO_SMALL:
                columns = replace(columns, used=np.zeros_like(columns.used))
            absent = self.fault is Fault.ABSENT
            failed[columns.positions if absent else columns.positions_with_capacity(condition.amount)] = False
        return failed


def checks_of(condition: Condition, suffixes: tuple[str, ...]) -> Iterator[Check]:
    """Divide a condition on a provider, or without ``suffixes`` on a root, into checks; the worst fault comes first."""
    for part in condition.parts():
        rule = Rule(part.parameter, suffixes, part.subject, part)
        if isinstance(part, ResourceCondition):
            yield from (Check(rule, fault) for fault in (Fault.ABSENT, Fault.TOO_SMALL, Fault.FULL))
        elif isinstance(part, AggregateCondition):
            # If the unsuffixed group forbids an aggregate, a root may not be in it either. This is one rule.
            yield Check(replace(rule, suffixes=suffixes or ('',), condition=replace(part, or_root=False)))
        elif isinstance(part, TraitCondition) and not suffixes:
            yield Check(Rule(ROOT_REQUIRED, (), f'{"!" if part.forbidden else ""}{part.subject}', part))
        else:
            yield Check(rule)


def never_by_sharing(check: Check) -> bool:
    """Return whether every sharing provider fails in other trees: ``in_tree`` of the unsuffixed group excludes them."""
    return isinstance(check.rule.condition, TreeCondition) and not check.rule.condition.sharing


def rules_between(compiled: CompiledRequest) -> Sequence[tuple[Rule, CompiledRequest]]:
    """Return the rules between groups, each with the request without it."""
    request = compiled.request
    rules = []
    if not request.nested_aware:
        rules.append((Rule(MICROVERSION), replace(request, nested_aware=True)))
    if request.isolate and sum(group.use_same_provider for group in request.groups) > 1:
        rules.append((Rule(GROUP_POLICY, (), 'isolate'), replace(request, group_policy='none')))
    for subtree in dict.fromkeys(request.same_subtree):
        subtrees = tuple(other for other in request.same_subtree if other != subtree)
        rules.append((Rule(SAME_SUBTREE, (), ','.join(sorted(subtree))), replace(request, same_subtree=subtrees)))
    return [(rule, replace(compiled, request=rest)) for rule, rest in rules]
