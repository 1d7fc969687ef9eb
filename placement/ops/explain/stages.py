"""Counts what each rule of a request for candidates leaves, and why inventories cannot allocate an amount."""

from __future__ import annotations

import functools
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import NameSet, Partition, or_by_tree
from placement.cache.providers import Provider
from placement.ops.explain.rules import Kind, Rule, divide, rule_of, subtree_rules
from placement.search.prefilter import Prefilter
from placement.search.requirements import Condition, Requirement, ResourceCondition, TraitCondition
from placement.search.search_units import SharingIndex

#: Maximum number of rules that are counted; a query may have thousands.
_MAX_RULES = 50
#: Maximum number of different values of max_unit, min_unit or step_size to list. For more values the range is given.
_MAX_VALUES = 3

#: The inventories of one class in one partition, and which of them are counted.
Entry = tuple[Partition, InventoryColumns, Flags]


@dataclass(frozen=True)
class Stage:
    """The providers and trees that remain after one rule and all rules before it.

    ``providers`` counts the providers that pass the rules of this group so far. For ``same_subtree`` it counts the
    providers that could be the topmost; for rules about roots, the roots; for ``MICROVERSION``, the providers that
    satisfy all requirements that no sharing provider satisfies. ``trees`` counts the trees that can satisfy all rules
    so far with their own or with sharing providers. For ``resources``, ``rejected`` counts the inventories that cannot
    allocate the amount, by the kind of ``Shortfall``.

    In the unsuffixed group each class may come from another provider. ``serving`` is the class that the providers of
    the stage would supply, if ``rule`` does not name it; or ``the root``, if the rule is about the aggregates of roots.
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
    snapshot, sharing = prefilter.snapshot, prefilter.sharing
    trees = {partition: partition.has_root for partition in snapshot.partitions}
    counted = []
    for step in itertools.islice(_steps(prefilter), _MAX_RULES):
        for partition, flags in step.matched.items():
            satisfied = or_by_tree(partition, flags)
            if step.reached is not None and sharing.aggregates:
                satisfied = satisfied | partition.tree_aggregates.where(step.reached)
            trees[partition] = trees[partition] & satisfied
        rejected: Counter[str] = Counter()
        if isinstance(step.rule.condition, ResourceCondition):
            for _, columns in snapshot.inventory_columns(step.rule.condition.resource_class):
                for kind, flags in violations(columns, step.rule.condition.amount).items():
                    rejected[kind] += int(flags.sum())
        # Remove the kinds with a count of 0.
        rejected = +rejected
        counted.append(
            Stage(step.rule, count_flags(step.matched.values()), count_flags(trees.values()), rejected, step.serving)
        )
    return counted


class _Step(NamedTuple):
    """One rule, and for each partition flags for the providers that satisfy it and the rules of its group before it.

    ``reached`` returns whether a sharing provider that satisfies the rule reaches a tree, given the aggregates of the
    tree's providers; None if sharing providers do not count. ``serving`` is as in ``Stage``.
    """

    rule: Rule
    matched: Mapping[Partition, Flags]
    reached: Callable[[NameSet], bool] | None = None
    serving: str = ''


def _steps(prefilter: Prefilter) -> Iterator[_Step]:
    compiled, partitions = prefilter.compiled, prefilter.snapshot.partitions
    for rule, up_to in divide(compiled.root, ()):
        matched = {partition: np.zeros(len(partition.providers), np.bool_) for partition in partitions}
        for partition, flags in matched.items():
            roots = partition.starts[:-1][partition.has_root]
            flags[roots] = up_to.matches(partition)[roots]
        # The rule is about the root of the tree that uses a sharing provider, not about the root of that provider.
        yield _Step(rule, matched, serving='the root' if rule.suffixes else '')
    for requirement, suffixes in compiled.suffixes.items():
        for rule, up_to in divide(requirement, suffixes):
            matched = {partition: up_to.matches(partition) for partition in partitions}
            names_class = requirement.use_same_provider or isinstance(rule.condition, ResourceCondition)
            serving = '' if names_class else requirement.resources[0][0]
            yield _Step(rule, matched, _reached(prefilter, up_to), serving)
    for any_of in compiled.collective.sets:
        condition = TraitCondition((any_of,))
        matched = {partition: condition.matches(partition) for partition in partitions}
        yield _Step(rule_of(condition, ('',)), matched, _reached(prefilter, condition))
    requirement_of = {suffix: requirement for requirement, suffixes in compiled.suffixes.items() for suffix in suffixes}
    for rule in subtree_rules(compiled.request):
        named = [requirement_of[suffix] for suffix in rule.subject.split(',') if suffix in requirement_of]
        requirements = list(dict.fromkeys(named))
        matched = {
            partition: _topmost(partition, [requirement.matches(partition) for requirement in requirements])
            for partition in partitions
        }
        yield _Step(rule, matched, functools.partial(_any_topmost, requirements, prefilter.sharing))
    unshared = [requirement for requirement in prefilter.requirements if not _accepted_sharing(prefilter, requirement)]
    if len(unshared) > 1 and not compiled.request.nested_aware:
        matched = {
            partition: np.logical_and.reduce([requirement.matches(partition) for requirement in unshared])
            for partition in partitions
        }
        yield _Step(Rule(Kind.MICROVERSION), matched)


def _accepted_sharing(prefilter: Prefilter, condition: Condition | Requirement) -> list[Provider]:
    """Return the sharing providers that satisfy a condition on one provider."""
    return [provider for provider in prefilter.sharing.providers if condition.accepts(provider, None)]


def _reached(prefilter: Prefilter, condition: Condition | Requirement) -> Callable[[NameSet], bool]:
    """Return ``_Step.reached`` for a condition on one provider."""
    accepted = _accepted_sharing(prefilter, condition)
    aggregates: NameSet = frozenset().union(*(provider.aggregates for provider in accepted))
    return lambda names: not aggregates.isdisjoint(names)


def _topmost(partition: Partition, matched: Sequence[Flags]) -> Flags:
    """Return which providers could be the topmost of a ``same_subtree``.

    Such a provider satisfies one of the requirements, and has at or below it a provider for each of the others.

    :param matched: for each requirement, which providers satisfy it.
    """
    children = np.flatnonzero(partition.parents >= 0)
    parents = partition.parents[children] + partition.starts[:-1][partition.tree_numbers[children]]
    topmost: Flags = np.logical_or.reduce(matched)
    for flags in matched:
        at_or_below, count = flags.copy(), -1
        while count != (count := int(at_or_below.sum())):
            at_or_below[parents[at_or_below[children]]] = True
        topmost = topmost & at_or_below
    return topmost


def _any_topmost(requirements: Sequence[Requirement], index: SharingIndex, aggregates: NameSet) -> bool:
    """Return whether one of the sharing providers that reach a tree could be the topmost, as in ``_topmost``."""
    sharing = index.reaching(aggregates & index.aggregates)
    accepted = [
        [provider for provider in sharing if requirement.accepts(provider, None)] for requirement in requirements
    ]
    return any(
        all(any(top.id in (provider.id, *provider.ancestors) for provider in providers) for providers in accepted)
        for top in itertools.chain.from_iterable(accepted)
    )


# Inventories that cannot allocate an amount ---------------------------------------------------------------------


@dataclass(frozen=True)
class Shortfall:
    """Providers that satisfy the other rules and have inventory of the class, but cannot allocate the amount.

    ``providers`` counts them, and ``kind`` is the reason. For ``max_unit``, ``min_unit`` and ``step_size`` all have
    this ``value``, or if ``max_value`` is set, values from ``value`` to ``max_value``. For ``total_capacity`` and
    ``free_capacity``, ``value`` is the largest capacity or free capacity of any of them. ``combined`` means that they
    can allocate the amount, but not in addition to what other parts of the request need from them.
    """

    resource_class: str
    kind: str
    value: int
    requested: int
    providers: int
    max_value: int | None = None


def violations(inventories: InventoryColumns, amount: int) -> dict[str, Flags]:
    """Return which inventories have each kind of ``Shortfall`` except ``combined``. Only the first kind counts."""
    violated = inventories.first_violations(amount)
    too_small = inventories.capacity_limit < amount
    return {
        'max_unit': violated.above_max_unit,
        'min_unit': violated.below_min_unit,
        'step_size': violated.wrong_step,
        'total_capacity': violated.no_capacity & too_small,
        'free_capacity': violated.no_capacity & ~too_small,
    }


def shortfalls(resource_class: str, amount: int, entries: Sequence[Entry]) -> list[Shortfall]:
    """Count inventories of a class by the first reason for which they cannot allocate an amount."""
    limits_by_kind: defaultdict[str, list[Integers]] = defaultdict(list)
    sufficient = 0
    for _, columns, counted in entries:
        limits = {
            'max_unit': columns.max_unit,
            'min_unit': columns.min_unit,
            'step_size': columns.step_size,
            'total_capacity': columns.capacity_limit,
            'free_capacity': columns.capacity_limit - columns.used,
        }
        sufficient += int(counted.sum())
        for kind, violated in violations(columns, amount).items():
            limits_by_kind[kind].append(limits[kind][counted & violated])
            sufficient -= len(limits_by_kind[kind][-1])
    counts = [Shortfall(resource_class, 'combined', amount, amount, sufficient)] if sufficient else []
    for kind, parts in limits_by_kind.items():
        values, numbers = (column.tolist() for column in np.unique(np.concatenate(parts), return_counts=True))
        if kind in {'total_capacity', 'free_capacity'} and values:
            counts.append(Shortfall(resource_class, kind, values[-1], amount, sum(numbers)))
        elif len(values) > _MAX_VALUES:
            counts.append(Shortfall(resource_class, kind, values[0], amount, sum(numbers), max_value=values[-1]))
        else:
            counts += [
                Shortfall(resource_class, kind, value, amount, number)
                for value, number in zip(values, numbers, strict=True)
            ]
    return counts
