"""Divides a request into checks: what can be wrong with a provider or a root. Each is one bit of the matrix."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition
from placement.cache.providers import SHARING_TRAIT
from placement.search.requirements import (
    AggregateCondition,
    NameCondition,
    ProviderCondition,
    ResourceCondition,
    TraitCondition,
    TreeCondition,
)

#: A provider that has inventory of one of these is a host, and no pool.
HOST_CLASSES = frozenset({'VCPU', 'PCPU', 'MEMORY_MB'})


#: Required or forbidden, these traits tell what a provider is doing, not what it is: the compute service sets and
#: removes them while the host stays the same.
_STATE_TRAITS = frozenset({'COMPUTE_STATUS_DISABLED'})


class Fault(enum.StrEnum):
    """What is wrong with a provider that violates a condition. An amount has the last three, from worst to best.

    A provider that has one of these three also has the better ones.
    """

    VIOLATED = 'violated'
    #: It has no inventory of the class.
    ABSENT = 'absent'
    #: It could not allocate the amount even if nothing was used: the total capacity or the units do not allow it.
    TOO_SMALL = 'too_small'
    #: It could allocate the amount, but too much is used.
    FULL = 'full'


@dataclass(frozen=True)
class ResourcePart(ResourceCondition):
    """The provider has no ``fault`` that keeps it from allocating an amount, and no worse one."""

    fault: Fault

    def matches(self, partition: Partition) -> Flags:
        flags = ~partition.all_providers()
        columns = partition.inventory_columns.get(self.resource_class)
        if columns is not None:
            columns = columns.unused if self.fault is Fault.TOO_SMALL else columns
            absent = self.fault is Fault.ABSENT
            flags[columns.positions if absent else columns.positions_with_capacity(self.amount)] = True
        return flags


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
    def is_state(self) -> bool:
        """Whether it is about the state of a provider, which changes while the provider stays what it is."""
        condition = self.condition
        about_state = isinstance(condition, TraitCondition) and all(names <= _STATE_TRAITS for names in condition.sets)
        return about_state or self.fault is Fault.FULL

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
    for part in _parts(condition):
        if isinstance(part, AggregateCondition):
            part = replace(part, or_root=False)  # noqa: PLW2901
        fault = part.fault if isinstance(part, ResourcePart) else Fault.VIOLATED
        yield Check(Rule(part.parameter, suffixes, part.subject), fault, part)


def _parts(condition: ProviderCondition) -> Sequence[ProviderCondition]:
    """Divide a condition into those that a provider can violate one by one."""
    if isinstance(condition, ResourceCondition):
        faults = (Fault.ABSENT, Fault.TOO_SMALL, Fault.FULL)
        return [ResourcePart(condition.resource_class, condition.amount, fault) for fault in faults]
    if isinstance(condition, NameCondition):
        alone = [frozenset({name}) for name in sorted(condition.sets[0])] if condition.forbidden else condition.sets
        return [replace(condition, sets=(names,)) for names in alone]
    return [condition]
