"""A request for candidates: its groups, and the requirements that they are compiled into.

A *group* has the parameters with one suffix (api-ref/allocation-candidates.md#request-groups). A suffixed group is one
requirement. The unsuffixed group is one for each of its resource classes. ``compile_request`` makes the requirements of
a request, and ``requirements_of`` those of a group.

All of this is immutable and comparable, so ``dataclasses.replace`` makes "the request without this rule".
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement.cache.providers import Provider
from placement.search.conditions import (
    AggregateCondition,
    ProviderCondition,
    Requirement,
    ResourceCondition,
    RootTraitCondition,
    TraitCondition,
    TreeCondition,
)

if TYPE_CHECKING:
    # As in ``conditions``: the solver imports this module, too.
    from placement.cache.snapshot import Snapshot


@dataclass(frozen=True)
class NameSetFilter:
    """The traits, or the uuids of aggregates, that a provider must have and must not have.

    It must have one name of each set of ``any_of``, which are distinct, and none of ``forbidden``.
    """

    any_of: tuple[frozenset[str], ...] = ()
    forbidden: frozenset[str] = frozenset()

    @classmethod
    def all_of(cls, required: Iterable[str], forbidden: frozenset[str] = frozenset()) -> NameSetFilter:
        """Return the filter that requires each name of ``required``."""
        return cls(tuple([frozenset({name}) for name in required]), forbidden)

    @property
    def names(self) -> frozenset[str]:
        """Every name, required or forbidden."""
        return self.forbidden.union(*self.any_of)


@dataclass(frozen=True)
class RequestGroup:
    """The parameters with one suffix."""

    #: Empty for the unsuffixed group.
    suffix: str
    #: One provider has to satisfy all of it: suffixed groups, and the filters of a list of providers.
    use_same_provider: bool
    #: Amounts, 1 or more, by class. If there are none, the provider of the group supplies nothing.
    resources: Mapping[str, int] = field(default_factory=dict)
    #: The names in ``required``.
    traits: NameSetFilter = NameSetFilter()
    #: The uuids in ``member_of``.
    aggregates: NameSetFilter = NameSetFilter()
    #: The uuid of any provider of the tree that the provider has to be in.
    in_tree: str | None = None


@dataclass(frozen=True)
class CandidateRequest:
    """A whole query."""

    groups: tuple[RequestGroup, ...]
    group_policy: str | None = None
    #: The maximum number of candidates; None for all.
    limit: int | None = None
    #: Whether a candidate may use two different providers of one tree: since 1.29
    #: (api-ref/candidate-search.md#below-129).
    nested_aware: bool = True
    #: Whether candidates are also distinct if they differ only in which provider serves which group: since 1.34.
    with_mappings: bool = False
    #: The names in ``root_required``, for the root of an anchor.
    root_traits: NameSetFilter = NameSetFilter()
    #: For each ``same_subtree`` the suffixes of some groups. One of the providers of these groups must be at or above
    #: the providers of all of them.
    same_subtree: tuple[frozenset[str], ...] = ()

    @property
    def isolate(self) -> bool:
        """Whether no two suffixed groups may use the same provider."""
        return self.group_policy == 'isolate'

    @property
    def requested_classes(self) -> tuple[str, ...]:
        """The resource class of each amount in ``resources``, in order. Errors name the first unknown one."""
        return tuple(name for group in self.groups for name in group.resources)

    @property
    def trait_names(self) -> frozenset[str]:
        """Every trait named in any group or for the root, required or forbidden."""
        return self.root_traits.names.union(*[group.traits.names for group in self.groups])


@dataclass(frozen=True)
class CompiledRequest:
    """A request as requirements, compiled once for all search units."""

    request: CandidateRequest
    requirements: tuple[Requirement, ...]
    #: The providers of the unsuffixed group satisfy this together: they have one trait of each set.
    collective: TraitCondition
    #: The conditions that the root of a tree must satisfy.
    root: Requirement

    # These follow from the fields, also after ``dataclasses.replace``.

    @functools.cached_property
    def distinct(self) -> Mapping[Requirement, tuple[str, ...]]:
        """The distinct requirements, each with the suffixes of the groups that have it."""
        distinct: dict[Requirement, tuple[str, ...]] = {}
        for requirement in self.requirements:
            distinct[requirement] = (*distinct.get(requirement, ()), requirement.suffix)
        return distinct

    @functools.cached_property
    def indexes(self) -> Sequence[int]:
        """For each requirement its index in ``distinct``."""
        index_of = {requirement: index for index, requirement in enumerate(self.distinct)}
        return [index_of[requirement] for requirement in self.requirements]

    @functools.cached_property
    def subtrees(self) -> Sequence[Sequence[int]]:
        """For each ``same_subtree`` of several groups, the indexes of their requirements in ``requirements``."""
        subtrees = []
        for suffixes in self.request.same_subtree:
            indexes = [index for index, requirement in enumerate(self.requirements) if requirement.suffix in suffixes]
            if len(indexes) > 1:
                subtrees.append(indexes)
        return subtrees

    @functools.cached_property
    def requested_sums(self) -> Mapping[str, int]:
        """The sum of the amounts for each class that several requirements name. No candidate needs more."""
        amounts: dict[str, list[int]] = {}
        for requirement in self.requirements:
            for name, amount in requirement.resources:
                amounts.setdefault(name, []).append(amount)
        return {name: min(sum(amounts[name]), 2**62) for name in sorted(amounts) if len(amounts[name]) > 1}

    def bits(self, provider: Provider, root: Provider | None) -> int:
        """Return one bit for each distinct requirement, in the order of ``distinct``, that accepts ``provider``.

        One bit for each set of ``collective`` follows. A provider that satisfies no requirement has no bits.

        :param root: as for a condition.
        """
        requirements = enumerate(self.distinct)
        bits = sum([1 << number for number, requirement in requirements if requirement.accepts(provider, root)])
        return bits and bits | self.collective.satisfied_sets(provider.traits) << len(self.distinct)

    def bits_at(self, tree: Sequence[Provider], sharing: Sequence[Provider]) -> list[int]:
        """Return the bits of the providers of a search unit."""
        return [self.bits(provider, tree[0]) for provider in tree] + [self.bits(provider, None) for provider in sharing]


def compile_request(request: CandidateRequest, snapshot: Snapshot) -> CompiledRequest:
    """Divide the groups of ``request`` into requirements.

    :param snapshot: has the providers whose uuids are in the request.
    """
    requirements: list[Requirement] = []
    collective: set[frozenset[str]] = set()
    root = _trait_conditions(request.root_traits.any_of, request.root_traits.forbidden, RootTraitCondition)
    for group in request.groups:
        requirements += requirements_of(group, snapshot)
        if not group.use_same_provider:
            collective.update(group.traits.any_of)
            if group.aggregates.forbidden:
                root.append(AggregateCondition((group.aggregates.forbidden,), forbidden=True))
    return CompiledRequest(
        request=request,
        requirements=tuple(requirements),
        collective=TraitCondition(tuple(sorted(collective, key=sorted))),
        root=Requirement('', True, tuple(root)),
    )


def requirements_of(group: RequestGroup, snapshot: Snapshot) -> list[Requirement]:
    """Return the requirement of a group, or those of the unsuffixed group: one for each class.

    :param snapshot: as for ``compile_request``.
    """
    traits, aggregates = group.traits, group.aggregates
    # The providers of the unsuffixed group have its required traits together, so these are not conditions on each.
    conditions = _trait_conditions(traits.any_of if group.use_same_provider else (), traits.forbidden)
    if aggregates.any_of:
        conditions.append(AggregateCondition(aggregates.any_of, or_root=not group.use_same_provider))
    if aggregates.forbidden:
        conditions.append(AggregateCondition((aggregates.forbidden,), forbidden=True))
    if group.in_tree is not None:
        root_id, may_be_shared = snapshot.root_id_of(group.in_tree), group.use_same_provider
        conditions.append(TreeCondition(root_id, may_be_shared, group.in_tree))
    resources = [ResourceCondition(name, amount) for name, amount in group.resources.items()]
    if group.use_same_provider:
        return [Requirement(group.suffix, True, (*resources, *conditions))]
    return [Requirement(group.suffix, False, (condition, *conditions)) for condition in resources]


def _trait_conditions(
    any_of: Sequence[frozenset[str]], forbidden: frozenset[str], kind: type[TraitCondition] = TraitCondition
) -> list[ProviderCondition]:
    conditions: list[ProviderCondition] = []
    if any_of:
        # In one order, so that equal groups have equal requirements.
        conditions.append(kind(tuple(sorted(any_of, key=lambda names: (len(names) > 1, sorted(names))))))
    if forbidden:
        conditions.append(kind((forbidden,), forbidden=True))
    return conditions
