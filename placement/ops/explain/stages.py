"""Counts what each rule of a request for candidates leaves, and why inventories cannot allocate an amount."""

from __future__ import annotations

import enum
import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import NameSet, Partition, or_by_tree
from placement.cache.providers import Provider
from placement.ops.explain.rules import Kind, Rule, Step, steps
from placement.search.prefilter import Prefilter
from placement.search.requirements import Requirement, ResourceCondition
from placement.search.sharing import SharingIndex

#: Maximum number of rules that are counted; a query may have thousands.
_MAX_RULES = 50
#: Maximum number of different values of max_unit, min_unit or step_size to list. For more values the range is given.
_MAX_VALUES = 3


@dataclass(frozen=True)
class Stage:
    """The providers and trees that remain after one rule and all rules before it.

    ``providers`` counts the providers that pass the rules of this group so far. For ``same_subtree`` it counts the
    providers that could be the topmost; for rules about roots, the roots; for ``MICROVERSION``, the providers that
    satisfy all requirements that no sharing provider satisfies. ``trees`` counts the trees that can satisfy all rules
    so far with their own or with sharing providers. For ``resources``, ``rejected`` counts the inventories that cannot
    allocate the amount, by the value of ``ShortfallKind``. ``serving`` is as in ``rules.Step``.
    """

    rule: Rule
    providers: int
    trees: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    serving: str = ''


def count_flags(flags: Iterable[Flags]) -> int:
    """Return how many flags are set in all partitions."""
    return sum(int(partition_flags.sum()) for partition_flags in flags)


def stages(prefilter: Prefilter) -> list[Stage]:
    """Apply the first ``_MAX_RULES`` rules of a request one after the other, and count what each leaves."""
    snapshot = prefilter.snapshot
    trees = {partition: partition.has_root for partition in snapshot.partitions}
    counted = []
    all_steps = itertools.chain(steps(prefilter.compiled), _one_provider_per_tree(prefilter))
    for step in itertools.islice(all_steps, _MAX_RULES):
        accepted = set() if step.about_roots else _accepted(step.requirements, prefilter.sharing.providers)
        is_reached = _reached_by(accepted, prefilter.sharing, step.requirements)
        providers = 0
        for partition in snapshot.partitions:
            matched = _topmost(step.requirements, partition)
            if step.about_roots:
                matched = satisfied = partition.has_root & matched[partition.starts[:-1]]
            else:
                satisfied = or_by_tree(partition, matched)
            if accepted:
                satisfied = satisfied | partition.tree_aggregates.where(is_reached)
            providers += int(matched.sum())
            trees[partition] = trees[partition] & satisfied
        rejected: Counter[str] = Counter()
        if isinstance(step.rule.condition, ResourceCondition):
            for _, columns in snapshot.inventory_columns(step.rule.condition.resource_class):
                for kind, (flags, _) in violations(columns, step.rule.condition.amount).items():
                    rejected[kind.value] += int(flags.sum())
        # Plus removes the kinds with a count of 0.
        counted.append(Stage(step.rule, providers, count_flags(trees.values()), +rejected, step.serving))
    return counted


def _one_provider_per_tree(prefilter: Prefilter) -> Iterator[Step]:
    """Yield the step for ``MICROVERSION`` below 1.29, if several requirements have no sharing provider."""
    sharing = prefilter.sharing.providers
    unshared = [requirement for requirement in prefilter.requirements if not _accepted([requirement], sharing)]
    if len(unshared) > 1 and not prefilter.compiled.request.nested_aware:
        conditions = tuple(condition for requirement in unshared for condition in requirement.conditions)
        yield Step(Rule(Kind.MICROVERSION), (Requirement('', True, conditions),))


def _accepted(requirements: Sequence[Requirement], sharing: Iterable[Provider]) -> set[Provider]:
    """Return the sharing providers that satisfy one of the requirements."""
    return {
        provider for provider in sharing if any(requirement.accepts(provider, None) for requirement in requirements)
    }


def _topmost(requirements: Sequence[Requirement], partition: Partition) -> Flags:
    """Return which providers could be the topmost of a subtree of providers for these requirements.

    Such a provider satisfies one of the requirements, and has at or below it a provider for each of the others.
    """
    matched = [requirement.matches(partition) for requirement in requirements]
    if len(matched) == 1:
        return matched[0]
    children = np.flatnonzero(partition.parents >= 0)
    parents = partition.parents[children] + partition.starts[:-1][partition.tree_numbers[children]]
    topmost: Flags = np.logical_or.reduce(matched)
    for flags in matched:
        at_or_below, count = flags.copy(), -1
        while count != (count := int(at_or_below.sum())):
            at_or_below[parents[at_or_below[children]]] = True
        topmost = topmost & at_or_below
    return topmost


def _reached_by(
    accepted: set[Provider], index: SharingIndex, requirements: Sequence[Requirement]
) -> Callable[[NameSet], bool]:
    """Return the condition on the aggregates of a tree that a sharing provider may be topmost, as in ``_topmost``.

    :param accepted: the sharing providers that satisfy one of the requirements.
    """

    # Many trees have the same aggregates of sharing providers, and others besides.
    @functools.cache
    def is_reached(shared: NameSet) -> bool:
        sharing = [provider for provider in index.reaching(shared).providers if provider in accepted]
        if len(requirements) == 1:
            return bool(sharing)
        return any(
            all(
                any(top.id in (other.id, *other.ancestors) and requirement.accepts(other, None) for other in sharing)
                for requirement in requirements
            )
            for top in sharing
        )

    return lambda aggregates: is_reached(aggregates & index.aggregates)


# Inventories that cannot allocate an amount ---------------------------------------------------------------------


class ShortfallKind(enum.StrEnum):
    """The reason why providers cannot allocate an amount. Documents and users see these texts."""

    MAX_UNIT = 'max_unit'
    MIN_UNIT = 'min_unit'
    STEP_SIZE = 'step_size'
    TOTAL_CAPACITY = 'total_capacity'
    FREE_CAPACITY = 'free_capacity'


@dataclass(frozen=True)
class Shortfall:
    """Providers that satisfy the other rules and have inventory of the class, but cannot allocate the amount.

    ``providers`` counts them, and ``kind`` is the reason. For ``MAX_UNIT``, ``MIN_UNIT`` and ``STEP_SIZE`` all have
    this ``value``, or if ``max_value`` is set, values from ``value`` to ``max_value``. For ``TOTAL_CAPACITY`` and
    ``FREE_CAPACITY``, ``value`` is the largest capacity or free capacity of any of them.
    """

    resource_class: str
    kind: ShortfallKind
    value: int
    requested: int
    providers: int
    max_value: int | None = None


def violations(inventories: InventoryColumns, amount: int) -> dict[ShortfallKind, tuple[Flags, Integers]]:
    """Return for each kind which inventories have it, and the limit of every inventory.

    Only the first kind of an inventory counts.
    """
    violated = inventories.first_violations(amount)
    too_small = inventories.capacity_limit < amount
    free = inventories.capacity_limit - inventories.used
    return {
        ShortfallKind.MAX_UNIT: (violated.above_max_unit, inventories.max_unit),
        ShortfallKind.MIN_UNIT: (violated.below_min_unit, inventories.min_unit),
        ShortfallKind.STEP_SIZE: (violated.wrong_step, inventories.step_size),
        ShortfallKind.TOTAL_CAPACITY: (violated.no_capacity & too_small, inventories.capacity_limit),
        ShortfallKind.FREE_CAPACITY: (violated.no_capacity & ~too_small, free),
    }


def shortfalls(condition: ResourceCondition, providers: Mapping[Partition, Flags]) -> list[Shortfall]:
    """Count inventories of a class by the first reason for which they cannot allocate an amount.

    :param providers: which providers are counted.
    """
    resource_class, amount = condition.resource_class, condition.amount
    values_by_kind: defaultdict[ShortfallKind, Counter[int]] = defaultdict(Counter)
    for partition, flags in providers.items():
        if columns := partition.inventory_columns.get(resource_class):
            for kind, (violated, limits) in violations(columns, amount).items():
                values_by_kind[kind].update(limits[flags[columns.positions] & violated].tolist())
    counts = []
    for kind, values in values_by_kind.items():
        if kind in {ShortfallKind.TOTAL_CAPACITY, ShortfallKind.FREE_CAPACITY} and values:
            counts.append(Shortfall(resource_class, kind, max(values), amount, values.total()))
        elif len(values) > _MAX_VALUES:
            counts.append(Shortfall(resource_class, kind, min(values), amount, values.total(), max_value=max(values)))
        else:
            counts += [Shortfall(resource_class, kind, value, amount, values[value]) for value in sorted(values)]
    return counts
