"""Conditions on single providers, and the requirements that a request consists of.

A *condition* is about one provider: an amount of a resource class, all required or all forbidden traits or aggregates,
or the tree. A *requirement* has all conditions that one provider has to satisfy: the conditions of a suffixed group, or
of one resource class of the unsuffixed group. ``compile_request`` makes the requirements of a request; it is the only
place that resolves the uuid of ``in_tree``.

Conditions and requirements are evaluated in two ways:

* ``rejection(provider, root)`` returns the ``Reason`` for which a provider is rejected, or None if it is accepted.
* ``matches(partition)`` returns one flag for each provider of a partition of the cache.

Conditions and requirements are immutable and comparable, so ``dataclasses.replace`` on ``Requirement.conditions`` makes
"the request without this rule" or "all rules up to this one". The conditions are in the order in which they reject.
"""

from __future__ import annotations

import enum
import functools
import itertools
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement import capacity
from placement.cache.providers import Provider
from placement.capacity import InventoryRecord
from placement.search.request import CandidateRequest, RequestGroup

if TYPE_CHECKING:
    # The solver imports this module, and import-linter rejects every chain of imports from the solver to numpy.
    from placement.cache.inventory_columns import Flags
    from placement.cache.partition import Partition


class Reason(enum.Enum):
    """The rule that a provider or a combination violates. The value is its description."""

    NO_INVENTORY = 'has no inventory of the class'
    NO_CAPACITY = 'has too little free capacity'
    BELOW_MIN_UNIT = 'allows only larger amounts (min_unit)'
    ABOVE_MAX_UNIT = 'allows only smaller amounts (max_unit)'
    WRONG_STEP = 'allows only multiples of its step_size'
    MISSING_TRAIT = 'lacks a required trait'
    FORBIDDEN_TRAIT = 'has a forbidden trait'
    NOT_MEMBER = 'is not in the requested aggregates'
    FORBIDDEN_AGGREGATE = 'is in a forbidden aggregate'
    NOT_IN_TREE = 'is not in the requested tree'
    ROOT = 'has a root that violates a condition on roots'
    # The following are about several requirements, and not about one provider and one requirement.
    COMBINED_AMOUNT = 'a provider has too little free capacity for the sum of several groups'
    ISOLATED = 'a provider already serves another suffixed group'
    SUBTREE = 'a provider is not in one subtree with the providers of other groups'
    SAME_TREE = 'a provider is the second one of its tree (below 1.29)'
    COLLECTIVE_TRAITS = 'no provider of the combination has a required trait'
    OTHER_TREE = 'a provider is a sharing one, and the candidate would use no provider of the tree'
    TOO_LITTLE_CAPACITY = 'the tree has too little of the class for all groups together'
    TOO_FEW_WITH_CAPACITY = 'the tree has too few providers with enough capacity for all groups'
    TOO_FEW_PROVIDERS = 'the tree has too few providers for isolated groups'

    @property
    def between_groups(self) -> bool:
        """Whether the reason is about several requirements."""
        return self in _BETWEEN_GROUPS


#: The reasons for the parts of the capacity rule, in the order of ``capacity.violations``.
CAPACITY_REASONS = (Reason.ABOVE_MAX_UNIT, Reason.BELOW_MIN_UNIT, Reason.WRONG_STEP, Reason.NO_CAPACITY)
_BETWEEN_GROUPS = frozenset(itertools.dropwhile(lambda reason: reason is not Reason.COMBINED_AMOUNT, Reason))

#: The number of rejections by group suffix ('' is the unsuffixed group) and reason.
Rejections = Counter[tuple[str, Reason]]


@dataclass(frozen=True)
class ResourceCondition:
    """The provider can allocate ``amount`` (1 or more) of a resource class.

    Every condition has the methods ``rejection`` and ``matches``. ``root`` is the root of the search unit's tree; None
    if the provider is a sharing provider of another tree. ``matches`` returns which providers are accepted in their own
    trees.
    """

    resource_class: str
    amount: int

    def rejection(self, provider: Provider, _root: Provider | None) -> Reason | None:
        inventory = provider.inventories.get(self.resource_class)
        return Reason.NO_INVENTORY if inventory is None else capacity_rejection(inventory, self.amount)

    def matches(self, partition: Partition) -> Flags:
        return partition.with_capacity(self.resource_class, self.amount)


def capacity_rejection(inventory: InventoryRecord, amount: int) -> Reason | None:
    """Return the first part of the capacity rule that ``amount`` violates; None if it can be allocated."""
    violations = capacity.violations(inventory, capacity.capacity_limit(inventory), amount)
    return CAPACITY_REASONS[violations.index(True)] if True in violations else None


class NameBits:
    """One bit for each of several sets of names. For example, a provider must have at least one trait of each set.

    Regardless of the number of sets, one look-up for each name of a provider shows which sets contain it.
    """

    def __init__(self, sets: Sequence[frozenset[str]]) -> None:
        self._bits: dict[str, int] = {}
        for number, any_of in enumerate(sets):
            for name in any_of:
                self._bits[name] = self._bits.get(name, 0) | 1 << number
        #: The bits of all sets.
        self.all = (1 << len(sets)) - 1

    def mask(self, names: Collection[str]) -> int:
        """Return the bits of the sets that contain any of ``names``."""
        return functools.reduce(operator.or_, [self._bits[name] for name in self._bits.keys() & names], 0)


@dataclass(frozen=True)
class NameCondition:
    """The provider has at least one name of each set; if ``forbidden``, none of the names of the only set."""

    sets: tuple[frozenset[str], ...]
    forbidden: bool = False

    @functools.cached_property
    def _bits(self) -> NameBits:
        return NameBits(self.sets)

    def accepts(self, names: Collection[str]) -> bool:
        """Return whether a provider with these names satisfies the condition."""
        if len(self.sets) == 1:
            return self.sets[0].isdisjoint(names) is self.forbidden
        return self._bits.mask(names) == self._bits.all


@dataclass(frozen=True)
class TraitCondition(NameCondition):
    """A condition on the traits of the provider."""

    def rejection(self, provider: Provider, _root: Provider | None) -> Reason | None:
        if self.accepts(provider.traits):
            return None
        return Reason.FORBIDDEN_TRAIT if self.forbidden else Reason.MISSING_TRAIT

    def matches(self, partition: Partition) -> Flags:
        return partition.traits.where(self.accepts)


@dataclass(frozen=True)
class AggregateCondition(NameCondition):
    """A condition on the aggregates that the provider is in.

    With ``or_root``, the root of the tree may satisfy the whole condition instead of the provider.
    """

    or_root: bool = False

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        if self.accepts(provider.aggregates) or (self.or_root and root is not None and self.accepts(root.aggregates)):
            return None
        return Reason.FORBIDDEN_AGGREGATE if self.forbidden else Reason.NOT_MEMBER

    def matches(self, partition: Partition) -> Flags:
        flags = partition.aggregates.where(self.accepts)
        return flags | partition.of_roots(flags) if self.or_root else flags


@dataclass(frozen=True)
class TreeCondition:
    """The provider is in the tree of ``root_id``, which is None if there is no such tree.

    Without ``sharing``, this must also be the tree of the search unit: with ``in_tree`` the unsuffixed group uses no
    sharing providers of other trees. ``uuid`` is the value of ``in_tree``.
    """

    root_id: int | None
    sharing: bool
    uuid: str = field(compare=False)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        accepted = provider.root_id == self.root_id and (self.sharing or root is not None)
        return None if accepted else Reason.NOT_IN_TREE

    def matches(self, partition: Partition) -> Flags:
        return partition.in_tree(self.root_id)


#: One rule about a single provider.
Condition = ResourceCondition | TraitCondition | AggregateCondition | TreeCondition


@dataclass(frozen=True)
class Requirement:
    """All conditions that one provider has to satisfy.

    ``group`` is the suffix of its group. Requirements that differ only in ``group`` are equal. ``use_same_provider`` is
    true for a whole suffixed group, false for one class of the unsuffixed group.
    """

    group: str = field(compare=False)
    use_same_provider: bool
    conditions: tuple[Condition, ...]

    @functools.cached_property
    def resources(self) -> tuple[tuple[str, int], ...]:
        """Pairs of class name and amount; none for a group without resources."""
        return tuple(
            (condition.resource_class, condition.amount)
            for condition in self.conditions
            if isinstance(condition, ResourceCondition)
        )

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        """Return the reason of the first condition that rejects ``provider``; None if all conditions accept it.

        :param root: as for a condition.
        """
        for condition in self.conditions:
            reason = condition.rejection(provider, root)
            if reason is not None:
                return reason
        return None

    def matches(self, partition: Partition, evaluate: Callable[[Condition], Flags] | None = None) -> Flags:
        """Return which providers satisfy all conditions in their own trees.

        :param evaluate: returns which providers satisfy one condition; the default calls its ``matches``.
        """
        flags: Flags | None = None
        for condition in self.conditions:
            # Conditions on names take a call for each distinct set, so skip them if no provider is left.
            if flags is not None and not flags.any():
                break
            matched = evaluate(condition) if evaluate else condition.matches(partition)
            flags = matched if flags is None else flags & matched
        return partition.all_providers() if flags is None else flags


@dataclass(frozen=True)
class CompiledRequest:
    """A request as requirements, compiled once for all search units.

    ``collective`` are the trait conditions that the providers of the unsuffixed group satisfy together: one trait of
    each set. ``traits`` has one bit for each of these sets, in the same order. ``root`` has the conditions that the
    root of a tree must satisfy.
    """

    request: CandidateRequest
    requirements: tuple[Requirement, ...]
    collective: tuple[TraitCondition, ...]
    traits: NameBits
    root: Requirement

    @functools.cached_property
    def suffixes(self) -> Mapping[Requirement, tuple[str, ...]]:
        """The suffixes of the groups that have each distinct requirement."""
        suffixes: dict[Requirement, tuple[str, ...]] = {}
        for requirement in self.requirements:
            suffixes[requirement] = (*suffixes.get(requirement, ()), requirement.group)
        return suffixes


def compile_request(
    request: CandidateRequest, root_id_of: Callable[[str], int | None] = lambda _uuid: None
) -> CompiledRequest:
    """Divide the groups of ``request`` into requirements.

    :param root_id_of: returns the root id for the uuid of a provider; None if there is no such provider.
    """
    unsuffixed = [group for group in request.groups if not group.use_same_provider]
    collective = sorted({any_of for group in unsuffixed for any_of in group.required_sets}, key=sorted)
    root: list[Condition] = [
        *_trait_conditions([frozenset({name}) for name in sorted(request.root_required)], request.root_forbidden),
        *(condition for group in unsuffixed for condition in _forbidden_aggregates(group)),
    ]
    return CompiledRequest(
        request=request,
        requirements=tuple(itertools.chain(*[_requirements(group, root_id_of) for group in request.groups])),
        collective=tuple(TraitCondition((any_of,)) for any_of in collective),
        traits=NameBits(collective),
        root=Requirement('', True, tuple(root)),
    )


def _requirements(group: RequestGroup, root_id_of: Callable[[str], int | None]) -> Iterator[Requirement]:
    resources = [ResourceCondition(name, amount) for name, amount in group.resources.items()]
    # The providers of the unsuffixed group have its required traits together, so these are not conditions on each.
    conditions: list[Condition] = [
        *_trait_conditions(group.required_sets if group.use_same_provider else (), group.forbidden)
    ]
    if group.member_of:
        conditions.append(
            AggregateCondition(tuple(dict.fromkeys(group.member_of)), or_root=not group.use_same_provider)
        )
    conditions += _forbidden_aggregates(group)
    if group.in_tree is not None:
        conditions.append(TreeCondition(root_id_of(group.in_tree), group.use_same_provider, group.in_tree))
    if group.use_same_provider:
        yield Requirement(group.suffix, True, (*resources, *conditions))
    else:
        for condition in resources:
            yield Requirement(group.suffix, False, (condition, *conditions))


def _trait_conditions(required: Sequence[frozenset[str]], forbidden: frozenset[str]) -> Iterator[TraitCondition]:
    if required:
        yield TraitCondition(tuple(required))
    if forbidden:
        yield TraitCondition((forbidden,), forbidden=True)


def _forbidden_aggregates(group: RequestGroup) -> Iterator[AggregateCondition]:
    if group.forbidden_aggregates:
        yield AggregateCondition((group.forbidden_aggregates,), forbidden=True)
