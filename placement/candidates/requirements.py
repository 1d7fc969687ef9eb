"""Conditions on single providers, and the requirements that a request consists of.

A *condition* is one rule of a request about one provider: an amount of a resource class, a required or a forbidden
trait, aggregates, or the tree. A *requirement* is the conjunction of the conditions that one provider has to satisfy:
those of a whole suffixed group, or of one resource class of the unsuffixed group. ``compile_request`` makes the
requirements of a request; it is the only place that resolves the uuid of ``in_tree``.

Conditions and requirements are evaluated in two ways, for which each rule is written once:

* ``rejection(provider, root)`` returns the ``Reason`` for which one provider is rejected, None if it is accepted.
* ``matches(columns)`` returns a flag for each of many providers (``ProviderColumns``: a ``cache.partition.Partition``).

Both are immutable and can be compared, so that "the request without this rule" and "all rules up to this one" are made
with ``dataclasses.replace`` on ``Requirement.conditions``. The conditions are in the order in which they reject.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from placement import capacity
from placement.candidates.providers import InventoryRecord, Provider
from placement.candidates.request import CandidateRequest, RequestGroup
from placement.candidates.trait_coverage import TraitBits


class Reason(enum.Enum):
    """The rule that a provider or a combination breaks; the value says so in words."""

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
    MERGED = 'has too little free capacity for the sum of several groups'
    ISOLATED = 'already serves another suffixed group'
    SUBTREE = 'is not in one subtree with the providers of other groups'
    SAME_TREE = 'is a second provider of its tree (below 1.29)'
    COLLECTIVE_TRAITS = 'no provider of the combination has a required trait'
    OTHER_TREE = 'is a sharing provider, and the candidate would use no provider of the tree'
    TOO_LITTLE_CAPACITY = 'the tree has too little of the class for all groups together'
    TOO_FEW_WITH_CAPACITY = 'the tree has too few providers with enough capacity for all groups'
    TOO_FEW_PROVIDERS = 'the tree has too few providers for isolated groups'

    @property
    def between_groups(self) -> bool:
        """Whether it is about requirements that do not fit together, not about one provider and one requirement."""
        return self not in _ABOUT_ONE_PROVIDER


#: The reasons for the parts of the capacity rule, in the order of ``capacity.violations``.
CAPACITY_REASONS = (Reason.ABOVE_MAX_UNIT, Reason.BELOW_MIN_UNIT, Reason.WRONG_STEP, Reason.NO_CAPACITY)
_ABOUT_ONE_PROVIDER = frozenset(
    {
        *CAPACITY_REASONS,
        Reason.NO_INVENTORY,
        Reason.MISSING_TRAIT,
        Reason.FORBIDDEN_TRAIT,
        Reason.NOT_MEMBER,
        Reason.FORBIDDEN_AGGREGATE,
        Reason.NOT_IN_TREE,
        Reason.ROOT,
    }
)

#: The number of rejections by group suffix ('' is the unsuffixed group) and reason.
Rejections = Counter[tuple[str, Reason]]

#: A vector with a boolean for each provider of some columns.
_Flags = Any


class ProviderColumns(Protocol):
    """Many providers, as columns. Every method returns a flag for each of them."""

    def all_providers(self) -> _Flags:
        """Return true for each provider."""

    def with_capacity(self, resource_class: str, amount: int) -> _Flags:
        """Return whether each provider can allocate ``amount`` of a resource class."""

    def with_traits(self, predicate: Callable[[frozenset[str]], bool]) -> _Flags:
        """Return whether the traits of each provider satisfy ``predicate``."""

    def with_aggregates(self, predicate: Callable[[frozenset[str]], bool]) -> _Flags:
        """Return whether the aggregates of each provider satisfy ``predicate``."""

    def of_roots(self, flags: _Flags) -> _Flags:
        """Return for each provider the flag of the root of its tree."""

    def in_tree(self, root_id: int | None) -> _Flags:
        """Return whether each provider is in the tree with this root id; None is the id of no tree."""


class Condition(Protocol):
    """One rule about a single provider."""

    def rejection(self, provider: Provider, root: Provider | None, /) -> Reason | None:
        """Return why ``provider`` is rejected, None if it is accepted.

        :param root: the root of the tree of the search unit if the provider is in that tree; None for a sharing
            provider of another tree.
        """

    def matches(self, columns: ProviderColumns) -> _Flags:
        """Return which providers are accepted, each in its own tree."""


@dataclass(frozen=True)
class ResourceCondition:
    """The provider can allocate ``amount`` (1 or more) of a resource class."""

    resource_class: str
    amount: int

    def rejection(self, provider: Provider, _root: Provider | None) -> Reason | None:
        inventory = provider.inventories.get(self.resource_class)
        return Reason.NO_INVENTORY if inventory is None else capacity_rejection(inventory, self.amount)

    def matches(self, columns: ProviderColumns) -> _Flags:
        return columns.with_capacity(self.resource_class, self.amount)


def capacity_rejection(inventory: InventoryRecord, amount: int) -> Reason | None:
    """Return the first part of the capacity rule that ``amount`` violates, None if it can be allocated."""
    violations = capacity.violations(inventory, capacity.capacity_limit(inventory), amount)
    return CAPACITY_REASONS[violations.index(True)] if True in violations else None


@dataclass(frozen=True)
class TraitCondition:
    """The provider has at least one of ``traits``, or if they are ``forbidden``, none of them."""

    traits: frozenset[str]
    forbidden: bool = False

    def accepts(self, traits: Collection[str]) -> bool:
        """Return whether a provider with these traits satisfies the condition."""
        return self.traits.isdisjoint(traits) is self.forbidden

    def rejection(self, provider: Provider, _root: Provider | None) -> Reason | None:
        if self.accepts(provider.traits):
            return None
        return Reason.FORBIDDEN_TRAIT if self.forbidden else Reason.MISSING_TRAIT

    def matches(self, columns: ProviderColumns) -> _Flags:
        return columns.with_traits(self.accepts)


@dataclass(frozen=True)
class AggregateCondition:
    """The provider is in at least one aggregate of each of ``sets``, or if they are ``forbidden``, in none of them.

    With ``or_root`` the root of the tree may satisfy the whole condition in the provider's place.
    """

    sets: tuple[frozenset[str], ...]
    forbidden: bool = False
    or_root: bool = False

    def accepts(self, aggregates: Collection[str]) -> bool:
        """Return whether a provider in these aggregates satisfies the condition."""
        return all(one.isdisjoint(aggregates) is self.forbidden for one in self.sets)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        if self.accepts(provider.aggregates) or (self.or_root and root is not None and self.accepts(root.aggregates)):
            return None
        return Reason.FORBIDDEN_AGGREGATE if self.forbidden else Reason.NOT_MEMBER

    def matches(self, columns: ProviderColumns) -> _Flags:
        own = columns.with_aggregates(self.accepts)
        return own | columns.of_roots(own) if self.or_root else own


@dataclass(frozen=True)
class TreeCondition:
    """The provider is in one tree; ``root_id`` is None if that does not exist.

    Without ``sharing`` it must also be in the tree of the search unit: in the tree of ``in_tree`` the unsuffixed group
    uses no sharing providers of other trees. ``uuid`` is that of the provider in ``in_tree``.
    """

    root_id: int | None
    sharing: bool
    uuid: str = field(compare=False)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        accepted = provider.root_id == self.root_id and (self.sharing or root is not None)
        return None if accepted else Reason.NOT_IN_TREE

    def matches(self, columns: ProviderColumns) -> _Flags:
        return columns.in_tree(self.root_id)


@dataclass(frozen=True)
class Requirement:
    """The conditions that one provider has to satisfy, all of them.

    ``group`` is the suffix of its group. Requirements that differ only in it are equal. ``use_same_provider`` is that
    of the group: true for a whole suffixed group, false for one class of the unsuffixed group.
    """

    group: str = field(compare=False)
    use_same_provider: bool
    conditions: tuple[Condition, ...]

    @functools.cached_property
    def resources(self) -> tuple[tuple[str, int], ...]:
        """Pairs of class name and amount; none for a group without resources."""
        return tuple((one.resource_class, one.amount) for one in self.conditions if isinstance(one, ResourceCondition))

    @functools.cached_property
    def tree(self) -> TreeCondition | None:
        """The condition on the tree, if there is one."""
        return next((one for one in self.conditions if isinstance(one, TreeCondition)), None)

    def rejection(self, provider: Provider, root: Provider | None) -> Reason | None:
        """Return the reason of the first condition that rejects ``provider``; None if all accept it.

        :param root: as for ``Condition.rejection``.
        """
        for condition in self.conditions:
            reason = condition.rejection(provider, root)
            if reason is not None:
                return reason
        return None

    def matches(self, columns: ProviderColumns) -> _Flags:
        """Return which providers satisfy all conditions, each in its own tree."""
        if not self.conditions:
            return columns.all_providers()
        return functools.reduce(operator.and_, [condition.matches(columns) for condition in self.conditions])


@dataclass(frozen=True)
class CompiledRequest:
    """A request as requirements, compiled once for all search units.

    ``collective`` are the traits that the unsuffixed group requires of all its providers together, and ``traits`` the
    same with a bit for each. ``root`` has the conditions that the root of a tree must satisfy.
    """

    request: CandidateRequest
    requirements: tuple[Requirement, ...]
    collective: tuple[TraitCondition, ...]
    traits: TraitBits
    root: Requirement

    @functools.cached_property
    def suffixes(self) -> Mapping[Requirement, tuple[str, ...]]:
        """The distinct requirements, each with the suffixes of the groups that have it."""
        found: dict[Requirement, tuple[str, ...]] = {}
        for one in self.requirements:
            found[one] = (*found.get(one, ()), one.group)
        return found


def compile_request(
    request: CandidateRequest, root_id_of: Callable[[str], int | None] = lambda _uuid: None
) -> CompiledRequest:
    """Divide the groups of ``request`` into requirements.

    :param root_id_of: returns the id of the root of a provider, by its uuid; None if there is no such provider.
    """
    unsuffixed = [group for group in request.groups if not group.use_same_provider]
    collective = sorted({any_of for group in unsuffixed for any_of in group.required_sets}, key=sorted)
    root: list[Condition] = [
        *(TraitCondition(frozenset({name})) for name in sorted(request.root_required)),
        *(TraitCondition(frozenset({name}), forbidden=True) for name in sorted(request.root_forbidden)),
        *(one for group in unsuffixed for one in _forbidden_aggregates(group)),
    ]
    return CompiledRequest(
        request=request,
        requirements=tuple(one for group in request.groups for one in _requirements(group, root_id_of)),
        collective=tuple(map(TraitCondition, collective)),
        traits=TraitBits(collective),
        root=Requirement('', True, tuple(root)),
    )


def _requirements(group: RequestGroup, root_id_of: Callable[[str], int | None]) -> Iterator[Requirement]:
    resources = [ResourceCondition(name, amount) for name, amount in group.resources.items()]
    others = tuple(_conditions(group, root_id_of))
    if group.use_same_provider:
        yield Requirement(group.suffix, True, (*resources, *map(TraitCondition, group.required_sets), *others))
    else:
        # The traits that the unsuffixed group requires are those of all its providers together.
        yield from (Requirement(group.suffix, False, (one, *others)) for one in resources)


def _conditions(group: RequestGroup, root_id_of: Callable[[str], int | None]) -> Iterator[Condition]:
    """Yield the conditions on each provider of a group that are not about resources and required traits."""
    for name in sorted(group.forbidden):
        yield TraitCondition(frozenset({name}), forbidden=True)
    if group.member_of:
        yield AggregateCondition(tuple(dict.fromkeys(group.member_of)), or_root=not group.use_same_provider)
    yield from _forbidden_aggregates(group)
    if group.in_tree is not None:
        yield TreeCondition(root_id_of(group.in_tree), group.use_same_provider, group.in_tree)


def _forbidden_aggregates(group: RequestGroup) -> Iterator[AggregateCondition]:
    return (AggregateCondition((frozenset({uuid}),), forbidden=True) for uuid in sorted(group.forbidden_aggregates))
