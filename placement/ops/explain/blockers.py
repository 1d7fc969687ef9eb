"""Finds out why a rule blocks a request: what is wrong with the providers that satisfy all other rules."""

from __future__ import annotations

import enum
import heapq
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.cache.inventory_columns import Flags, UsageColumns
from placement.cache.partition import Partition
from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.ops.explain.rules import Rule, rules, without
from placement.ops.explain.stages import Shortfall, ShortfallKind, count_flags, shortfalls, violations
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest
from placement.search.requirements import Condition, NameCondition, Requirement, ResourceCondition

#: For one rule, the maximum numbers of providers to name, and of providers to try in a search.
_MAX_NAMED, _MAX_TRIED = 3, 8


class CauseKind(enum.Enum):
    """What is wrong with the providers, roots or trees that satisfy the other rules."""

    #: No provider at all has what the rule requires.
    NONE_EXISTS = enum.auto()
    #: No provider satisfies the other rules of the group.
    NONE_LEFT = enum.auto()
    #: They do not satisfy the rule.
    REJECTED = enum.auto()
    ROOTS_REJECTED = enum.auto()
    #: Some satisfy the rule, but there is no candidate with them.
    NOT_TOGETHER = enum.auto()
    ROOTS_NOT_TOGETHER = enum.auto()
    #: The trees have no provider of the class, and none is shared with them.
    NOT_IN_TREES = enum.auto()
    #: They cannot allocate the amount, for the reasons in ``shortfalls``.
    INSUFFICIENT = enum.auto()
    #: No provider at all can allocate the amount, for the reasons in ``shortfalls``.
    INSUFFICIENT_ANYWHERE = enum.auto()
    #: Providers of other trees can allocate the amount, but lack the trait for sharing.
    UNSHARED_WITHOUT_TRAIT = enum.auto()
    #: Sharing providers can allocate the amount, but have no aggregate in common with the trees.
    UNSHARED_WITHOUT_AGGREGATE = enum.auto()


@dataclass(frozen=True)
class Cause:
    """A fact about a rule that blocks a request.

    ``providers`` counts the providers that the fact is about, or the trees if it is about roots or trees.
    ``satisfying`` counts how many of them also satisfy ``rule``. The kinds about sharing name some in ``names``.
    """

    kind: CauseKind
    rule: Rule
    providers: int = 0
    satisfying: int = 0
    shortfalls: Sequence[Shortfall] = ()
    names: Sequence[str] = ()


@dataclass(frozen=True)
class NearMiss:
    """A provider, or the root of a tree, that would be in a candidate without the rules in ``without``.

    If ``without`` is empty, the provider lacks capacity: it would be in a candidate if the amount ``requested`` were
    free, not only the amount ``free``.
    """

    provider: Provider
    without: Sequence[Rule] = ()
    resource_class: str | None = None
    requested: int | None = None
    free: int | None = None


@dataclass(frozen=True)
class Blocker:
    """A rule that blocks a request, for the reasons in ``causes``; ``notes`` are more facts.

    ``trees`` counts the trees that can satisfy every other part of the request, each part considered alone.
    """

    rule: Rule
    causes: Sequence[Cause]
    trees: int
    near_misses: Sequence[NearMiss] = ()
    notes: Sequence[Cause] = ()


def find_blocker(snapshot: Snapshot, request: CandidateRequest, rule: Rule, budget: SearchBudget) -> Blocker:
    """Return why no provider or tree that satisfies all other rules of ``request`` also satisfies ``rule``.

    :param rule: a rule with a ``condition``.
    :param budget: limits the searches that try providers.
    """
    condition, rest = rule.condition, without(request, rule)
    if condition is None:
        raise TypeError(rule)
    complete = Prefilter.for_request(snapshot, request)
    reduced = Prefilter.for_request(snapshot, rest) if rest else None
    partitions = snapshot.partitions
    flags = {partition: reduced.satisfied(partition) if reduced else partition.has_root for partition in partitions}
    trees = _Trees(snapshot, flags)
    # If the rule is also about roots, the roots of some of these trees may violate it.
    flags = {partition: flags[partition] & complete.accepted_roots(partition) for partition in partitions}
    accepted = _Trees(snapshot, flags)
    if isinstance(condition, ResourceCondition):
        # ``rest`` may be without the group of the amount, and so without the rules of this group about roots.
        trees = accepted
    if _is_absent(snapshot, condition):
        return Blocker(rule, [Cause(CauseKind.NONE_EXISTS, rule)], trees.count)
    if isinstance(condition, ResourceCondition):
        return _blocker_of_amount(complete, trees, rule, condition, budget)
    # A condition without a group is about the root.
    if not rule.suffixes:
        kind = CauseKind.ROOTS_NOT_TOGETHER if accepted.count else CauseKind.ROOTS_REJECTED
        return Blocker(rule, [Cause(kind, rule, trees.count, accepted.count)], trees.count)
    # The requirements of the unsuffixed group do not contain its traits, so the condition is added. If they contain it
    # already, this changes nothing.
    requirements = [replace(other, conditions=(*other.conditions, condition)) for other in _of_group(complete, rule)]
    providers = count_flags(trees.providers(_of_group(reduced, rule) if reduced else ()).values())
    satisfying = count_flags(accepted.providers(requirements).values())
    kind = CauseKind.REJECTED if providers else CauseKind.NONE_LEFT
    kind = CauseKind.NOT_TOGETHER if satisfying else kind
    return Blocker(rule, [Cause(kind, rule, providers, satisfying)], trees.count)


def _of_group(prefilter: Prefilter, rule: Rule) -> list[Requirement]:
    """Return the requirements of the group of a rule."""
    return [requirement for requirement in prefilter.compiled.requirements if requirement.group == rule.suffix]


def _is_absent(snapshot: Snapshot, condition: Condition) -> bool:
    """Return whether no provider at all has what a condition requires; False if it forbids something."""
    match condition:
        case ResourceCondition(resource_class):
            return not any(True for _ in snapshot.inventory_columns(resource_class))
        case NameCondition(forbidden=True):
            return False
    return not any(condition.matches(partition).any() for partition in snapshot.partitions)


class _Trees:
    """Some trees of a snapshot: ``flags`` has for each partition one flag for each of its trees.

    ``count`` is their number. ``members`` tells which providers are in these trees, and ``aggregates`` has the
    aggregates of these providers.
    """

    def __init__(self, snapshot: Snapshot, flags: Mapping[Partition, Flags]) -> None:
        self._snapshot = snapshot
        self.count = count_flags(flags.values())
        self.members = {partition: selected[partition.tree_numbers] for partition, selected in flags.items()}
        self.aggregates = frozenset[str]().union(
            *(
                partition.tree_aggregates.values[code]
                for partition, selected in flags.items()
                for code in np.unique(partition.tree_aggregates.codes[selected]).tolist()
            )
        )

    def providers(self, requirements: Sequence[Requirement]) -> dict[Partition, Flags]:
        """Return which providers, in these trees or shared with them, satisfy one of ``requirements``."""
        matches = {}
        for partition, members in self.members.items():
            satisfied = [requirement.matches(partition) for requirement in requirements]
            matches[partition] = members & np.logical_or.reduce([np.zeros_like(members), *satisfied])
        for provider in self._snapshot.sharing:
            reaches = not provider.aggregates.isdisjoint(self.aggregates)
            if reaches and any(requirement.accepts(provider, None) for requirement in requirements):
                partition, position = self._snapshot.find_position(provider)
                matches[partition][position] = True
        return matches


# Rules about amounts ---------------------------------------------------------------------------------------------


def _blocker_of_amount(
    complete: Prefilter, trees: _Trees, rule: Rule, condition: ResourceCondition, budget: SearchBudget
) -> Blocker:
    """Return why an amount excludes all trees that satisfy the other rules, although some provider has the class.

    :param complete: the prefilter of the whole request.
    :param trees: the trees that satisfy the other rules.
    """
    snapshot, of_group = complete.snapshot, _of_group(complete, rule)
    with_amount = [requirement for requirement in of_group if condition in requirement.conditions]
    without_amount = [
        replace(requirement, conditions=tuple(other for other in requirement.conditions if other != condition))
        for requirement in with_amount
    ]
    # The providers that satisfy the other rules of the group.
    eligible = trees.providers(without_amount)
    providers, satisfying = (count_flags(flags.values()) for flags in (eligible, trees.providers(with_amount)))
    counts = shortfalls(condition, eligible)
    absences = _absences(complete, rule, of_group)
    if satisfying:
        causes = [Cause(CauseKind.NOT_TOGETHER, rule, providers, satisfying, counts)]
    elif counts:
        is_only_rule = without(complete.compiled.request, rule) is None and not complete.compiled.root.conditions
        kind = CauseKind.INSUFFICIENT_ANYWHERE if is_only_rule else CauseKind.INSUFFICIENT
        causes = [Cause(kind, rule, shortfalls=counts)]
    elif providers:
        in_trees = Cause(CauseKind.NOT_IN_TREES, rule, trees.count)
        causes = [Cause(CauseKind.REJECTED, rule, providers) if rule.suffix else in_trees]
    else:
        causes = absences or [Cause(CauseKind.NONE_LEFT, rule)]
        everywhere = {partition: partition.all_providers() for partition in snapshot.partitions}
        if not any(condition.matches(partition).any() for partition in everywhere):
            counts = shortfalls(condition, everywhere)
            causes = [*causes, Cause(CauseKind.INSUFFICIENT_ANYWHERE, rule, shortfalls=counts)]
    near_misses = itertools.islice(_near_misses(complete, condition, eligible, budget), _MAX_NAMED)
    unshared = [] if satisfying else _unshared(trees, without_amount, rule, condition)
    notes = [*unshared, *(absences if providers else ())]
    return Blocker(rule, causes, trees.count, list(near_misses), notes)


def _absences(complete: Prefilter, rule: Rule, of_group: Sequence[Requirement]) -> list[Cause]:
    """Return the rules of the group that require something that no provider has, if it has no class besides this one.

    :param of_group: the requirements of the group of ``rule``.
    """
    if sum(len(requirement.resources) for requirement in of_group) > 1:
        return []
    return [
        Cause(CauseKind.NONE_EXISTS, other)
        for other in rules(complete.compiled)
        if rule.suffix in other.suffixes and other.condition and _is_absent(complete.snapshot, other.condition)
    ]


def _near_misses(
    complete: Prefilter, condition: ResourceCondition, eligible: Mapping[Partition, Flags], budget: SearchBudget
) -> Iterator[NearMiss]:
    """Yield the providers that lack least, if a search finds a candidate once the missing amount is free."""
    name, amount = condition.resource_class, condition.amount
    short = []
    for partition, columns in complete.snapshot.inventory_columns(name):
        is_full, free = violations(columns, amount)[ShortfallKind.FREE_CAPACITY]
        for entry in np.flatnonzero(eligible[partition][columns.positions] & is_full).tolist():
            provider = partition.providers[columns.positions[entry]]
            short.append((amount - int(free[entry]), provider.id, provider))
    for missing, _, provider in heapq.nsmallest(_MAX_TRIED, short, key=operator.itemgetter(0, 1)):
        snapshot = _with_less_used(complete.snapshot, provider, name, missing)
        units = Prefilter(snapshot, complete.compiled).search_units()
        if any(True for _ in find_candidate_sets(units, complete.compiled, budget)):
            yield NearMiss(provider, (), name, amount, amount - missing)


def _with_less_used(snapshot: Snapshot, provider: Provider, name: str, amount: int) -> Snapshot:
    """Return the snapshot with the usage of one inventory reduced by ``amount``."""
    used = provider.inventories[name].used - amount
    usages = UsageColumns.build(
        np.array([(provider.id, provider.generation, -1)]), np.array([(provider.id, 0, used)]), {0: name}
    )
    partitions = list(snapshot.partitions)
    index = partitions.index(snapshot.find_tree(provider.root_id)[0])
    partitions[index] = partitions[index].with_usages(usages)
    return replace(snapshot, partitions=tuple(partitions))


def _unshared(
    trees: _Trees, without_amount: Sequence[Requirement], rule: Rule, condition: ResourceCondition
) -> list[Cause]:
    """Return the providers with enough capacity that these trees cannot use for exactly one reason.

    They have an aggregate in common with the trees but lack the trait for sharing, or have the trait but no aggregate
    in common.
    """
    names: dict[CauseKind, list[str]] = {
        CauseKind.UNSHARED_WITHOUT_TRAIT: [],
        CauseKind.UNSHARED_WITHOUT_AGGREGATE: [],
    }
    for partition, members in trees.members.items():
        shares = partition.has_sharing_trait
        reaches = partition.aggregates.where(lambda aggregates: not aggregates.isdisjoint(trees.aggregates))
        unusable = condition.matches(partition) & ~members & (shares ^ reaches)
        for position in np.flatnonzero(unusable).tolist():
            provider = partition.providers[position]
            if any(requirement.accepts(provider, None) for requirement in without_amount):
                kind = CauseKind.UNSHARED_WITHOUT_AGGREGATE if shares[position] else CauseKind.UNSHARED_WITHOUT_TRAIT
                names[kind].append(provider.display_name)
    return [Cause(kind, rule, len(named), names=named[:_MAX_NAMED]) for kind, named in names.items() if named]
