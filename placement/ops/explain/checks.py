"""Divides a request into checks: what can be wrong with a provider or a root. Each is one bit of a mask."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from placement.search.conditions import AggregateCondition, Fault, ProviderCondition, ResourceCondition
from placement.search.request import CompiledRequest

#: A provider that has inventory of one of these is a host, and no pool.
HOST_CLASSES = frozenset({'VCPU', 'PCPU', 'MEMORY_MB'})


@dataclass(frozen=True)
class Rule:
    """One part of a request: a condition, or a rule between groups."""

    #: The query parameter. ``microversion`` stands for the rule that below 1.29 a candidate uses at most one provider
    #: of a tree.
    parameter: str
    #: The groups that have it; groups with equal requirements have common rules. One of the whole request has none.
    suffixes: tuple[str, ...] = ()
    #: The text of the query, such as ``VCPU:4``, without ``!``.
    subject: str = ''
    #: Whether the query has a ``!`` before it.
    forbids: bool = False
    #: The traits or aggregates in ``subject``.
    names: tuple[str, ...] = ()

    @property
    def in_output(self) -> tuple[str, str]:
        """The parameter and the subject as users see them: ``forbidden`` instead of ``required``, or with its ``!``."""
        if self.forbids and self.parameter == 'required':
            return 'forbidden', self.subject
        return self.parameter, f'{"!" if self.forbids else ""}{self.subject}'


class Scope(NamedTuple):
    """Which provider of a tree a sentence is about: that for some groups, or for some classes of the unsuffixed group.

    Without either, it is about the tree as a whole.
    """

    groups: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One thing that can be wrong with a provider: a rule, and for an amount the fault."""

    rule: Rule
    fault: Fault = Fault.VIOLATED
    #: What the provider, or the root, has to satisfy.
    condition: ProviderCondition = field(default=ProviderCondition(), compare=False)
    #: The scope of sentences about it, from ``TreeMatrix.scopes``. A fact about all providers has none.
    scope: Scope = field(default=Scope(), compare=False)

    @property
    def resource_class(self) -> str:
        """The class of the amount that it is about; empty if it is about no amount."""
        return self.condition.resource_class if isinstance(self.condition, ResourceCondition) else ''

    @property
    def is_membership(self) -> bool:
        """Whether it requires an aggregate."""
        return isinstance(self.condition, AggregateCondition) and not self.condition.forbidden

    @property
    def may_name_classes(self) -> bool:
        """Whether its scope may be classes. The words of an amount name its class; states and trees are of hosts."""
        is_of_host = self.condition.is_state or self.condition.selects_trees
        return self.rule.suffixes == ('',) and not self.resource_class and not is_of_host

    @property
    def lacks_host_class(self) -> bool:
        """Whether a provider that fails has no inventory of a class of hosts."""
        return self.fault is Fault.ABSENT and self.resource_class in HOST_CLASSES


def checks_of(condition: ProviderCondition, suffixes: tuple[str, ...]) -> Iterator[Check]:
    """Divide a condition of the groups with these suffixes into checks; the worst fault comes first."""
    if isinstance(condition, AggregateCondition):
        # The root may satisfy only all of ``member_of`` instead, so this is decided for all of it together.
        condition = replace(condition, or_root=False)
    of_groups = () if condition.of_whole_request else suffixes
    for single in condition.split():
        rule = Rule(single.parameter, of_groups, single.subject, single.forbidden, single.names)
        yield Check(rule, single.fault, single)


class RequestChecks:
    """The checks of a request in its order, and sets of them.

    A *mask* is such a set: an integer with bit n for check n. It tells what a provider, or a whole tree, fails.

    :raises ValueError: conditions of a group have the same subject, but differ.
    """

    def __init__(self, compiled: CompiledRequest) -> None:
        together = list(checks_of(compiled.collective, ('',)))
        #: If the unsuffixed group forbids an aggregate, a root may not be in it either. This is one rule.
        self.of_root = [check for condition in compiled.root.conditions for check in checks_of(condition, ('',))]
        of_conditions = {
            requirement: [check for condition in requirement.conditions for check in checks_of(condition, suffixes)]
            for requirement, suffixes in compiled.distinct.items()
        }
        #: The check of each bit.
        checks = list(itertools.chain(self.of_root, *of_conditions.values(), together))
        self.in_order = list(dict.fromkeys(checks))
        if len(self.in_order) < len({(check, check.condition) for check in checks}):
            raise ValueError('Different conditions of a group have the same parameter, subject and fault.')
        self.bit_of = {check: 1 << number for number, check in enumerate(self.in_order)}
        #: The checks of each requirement. All providers of the unsuffixed group have the traits ``together``.
        self.of_requirement = {
            requirement: checks if requirement.use_same_provider else checks + together
            for requirement, checks in of_conditions.items()
        }
        #: The checks about states.
        self.state = self.mask(check for check in self.in_order if check.condition.is_state)
        #: Those that require aggregates.
        self.membership = self.mask(check for check in self.in_order if check.is_membership)
        #: The traits that the providers of the unsuffixed group have together.
        self.together = self.mask(together)
        #: The checks for any inventory of a class.
        self.absent = self.mask(check for check in self.in_order if check.fault is Fault.ABSENT)
        #: A pool that fails one of these does not count for other trees: nobody would add inventory of the class to it,
        #: move it to the tree of ``in_tree`` or remove its trait for sharing.
        self.hides_pools = self.absent | self.mask(check for check in self.in_order if check.condition.hides_pools)

    def mask(self, checks: Iterable[Check]) -> int:
        """Return the set of some checks."""
        return functools.reduce(operator.or_, [self.bit_of[check] for check in checks], 0)

    def worst(self, mask: int) -> int:
        """Return the mask with only the worst fault of each amount.

        The faults of an amount are three adjacent bits, the worst one first. Who fails one fails those after it, so
        each removes the next: with the bits 0 (absent), 1 (too small) and 2 (full), 0b111 becomes 0b001, and 0b110
        becomes 0b010.
        """
        return mask & ~((mask & (self.absent | self.absent << 1)) << 1)

    def checks_in(self, mask: int) -> tuple[Check, ...]:
        """Return the checks of a mask, with only the worst fault of each amount."""
        return tuple(self.in_order[number] for number in bit_numbers(self.worst(mask)))

    def cost(self, mask: int) -> tuple[int, ...]:
        """Return the order of masks: by the checks about what a provider is, then by all. Each one adds to it."""
        worst = self.worst(mask)
        # Among equal ones, a provider that has inventory of the class is closer than another one.
        absent = (worst & self.absent).bit_count()
        return (worst & ~self.state).bit_count(), worst.bit_count(), absent, mask.bit_count(), mask

    def of_both(self, mask: int, other: int) -> int:
        """Return what two providers of the unsuffixed group fail together: a trait is missing if both lack it."""
        return (mask | other) & ~self.together | mask & other & self.together


def bit_numbers(mask: int) -> list[int]:
    """Return the numbers of the bits of a mask, ascending."""
    return [number for number in range(mask.bit_length()) if mask >> number & 1]
