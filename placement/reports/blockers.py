"""Explains why a rule blocks a request for candidates, by the providers that satisfy all its other rules."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from placement.cache.inventory_columns import Flags, InventoryColumns, UsageColumns
from placement.cache.partition import Partition
from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import SearchLimits
from placement.candidates.providers import Provider
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.requirements import (
    AggregateCondition,
    Requirement,
    ResourceCondition,
    TraitCondition,
    TreeCondition,
)
from placement.candidates.search import search
from placement.reports.rules import Kind, Rule, rules, without
from placement.reports.shortfalls import Shortfall, amounts, shortfalls, violations

#: Maximum numbers of providers that are named for one rule, and that are tried in a search.
_MAX_NAMED, _MAX_TRIED = 3, 8
_NOT_TOGETHER = 'but not together with the rest of the request'


@dataclass(frozen=True)
class NearMiss:
    """A provider, or the root of a tree, that would be in a candidate but for what ``missing`` describes.

    If that is capacity, ``resource_class`` and the amounts ``requested`` and ``free`` are set, and there would be a
    candidate if the difference became free. Otherwise there would be one without the rules that ``missing`` names.
    """

    name: str
    uuid: str
    missing: str
    resource_class: str | None = None
    requested: int | None = None
    free: int | None = None


@dataclass(frozen=True)
class Blocker:
    """The reason why nothing satisfies a rule. ``cause`` is a clause of a sentence; ``notes`` are further sentences.

    ``trees`` counts the trees that can satisfy each other part of the request, each part considered alone.
    """

    rule: Rule
    cause: str
    trees: int
    shortfalls: Sequence[Shortfall] = ()
    near_misses: Sequence[NearMiss] = ()
    notes: Sequence[str] = ()

    def as_data(self) -> dict[str, Any]:
        """Return the blocker in JSON types, without ``near_misses``."""
        return {
            'rule': str(self.rule),
            'cause': self.cause,
            'trees': self.trees,
            'shortfalls': [asdict(one) for one in self.shortfalls],
            'notes': list(self.notes),
        }


def display_name(record: Provider) -> str:
    """Return the name of a provider, or its uuid if it has no name."""
    return record.name or record.uuid


def find_blocker(state: Snapshot, request: CandidateRequest, rule: Rule, limits: SearchLimits) -> Blocker:
    """Return why no provider or tree that satisfies all other rules of ``request`` satisfies ``rule``, too.

    :param rule: one with a ``condition``.
    :param limits: the limits for the searches that try providers.
    """
    others = _Others(state, request, rule)
    if isinstance(rule.condition, ResourceCondition):
        return _blocker_of_resources(others, rule.condition, limits)
    cause = _absence(state, rule)
    if not cause:
        cause = _cause_of_roots(others) if rule.kind is Kind.ROOT_REQUIRED else _cause_of_providers(others)
    return Blocker(rule, cause, others.trees.count)


class _Trees:
    """Some trees of a snapshot: for each partition a flag for each of its trees."""

    def __init__(self, state: Snapshot, flags: Sequence[Flags]) -> None:
        self._state = state
        self.flags = flags
        self.count = _count(flags)

    @functools.cached_property
    def aggregates(self) -> frozenset[str]:
        """The aggregates that providers of these trees are in."""
        found: set[str] = set()
        for partition, flags in zip(self._state.partitions, self.flags, strict=True):
            sets = partition.tree_aggregates
            found = found.union(*(sets.values[code] for code in np.unique(sets.codes[flags]).tolist()))
        return frozenset(found)

    def providers(self, requirements: Sequence[Requirement]) -> list[Flags]:
        """Return which providers of these trees, and sharing ones that reach them, satisfy one of ``requirements``."""
        found = []
        for partition, flags in zip(self._state.partitions, self.flags, strict=True):
            matched = np.zeros(len(partition.providers), np.bool_)
            for one in requirements:
                matched |= one.matches(partition)
            found.append(matched & flags[partition.tree_numbers])
        numbers = {id(partition): number for number, partition in enumerate(self._state.partitions)}
        for provider in self._state.sharing:
            reaches = not provider.aggregates.isdisjoint(self.aggregates)
            if reaches and any(one.rejection(provider, None) is None for one in requirements):
                partition, position = self._state.find_position(provider.root_id, provider.id)
                found[numbers[id(partition)]][position] = True
        return found


class _Others:
    """The providers and trees that satisfy all rules of a request but one.

    ``trees`` are those with own or sharing providers for every other rule; all trees if there is none. ``accepted`` are
    those of them whose roots satisfy the conditions on roots with the rule.
    """

    def __init__(self, state: Snapshot, request: CandidateRequest, rule: Rule) -> None:
        self.state, self.request, self.rule = state, request, rule
        rest = without(request, rule)
        whole = Prefilter(state, request, with_keys=False)
        prefilter = Prefilter(state, rest, with_keys=False) if rest else None
        trees = [prefilter.satisfied(one) if prefilter else one.has_root for one in state.partitions]
        roots = [whole.accepted_roots(one) for one in state.partitions]
        self.trees = _Trees(state, trees)
        self.accepted = _Trees(state, [flags & some for flags, some in zip(trees, roots, strict=True)])
        self.compiled = whole.compiled
        self.any = rest is not None or bool(self.compiled.root.conditions)
        #: The requirements of the group of the rule.
        self.requirements = [one for one in self.compiled.requirements if one.group == rule.suffix]
        compiled = prefilter.compiled.requirements if prefilter else ()
        #: The same without the rule. For a rule about an amount, the requirement with the amount.
        self.remaining = [one for one in compiled if one.group == rule.suffix]
        if isinstance(rule.condition, ResourceCondition):
            [with_amount] = [one for one in self.requirements if rule.condition in one.conditions]
            conditions = tuple(one for one in with_amount.conditions if one != rule.condition)
            self.remaining = [replace(with_amount, conditions=conditions)]

    @property
    def served(self) -> str:
        """The part of the request that the rule belongs to, in words."""
        return f'group {self.rule.suffix}' if self.rule.suffix else 'the request'

    def each(self, count: int, clause: str) -> str:
        """Return the clause that ``clause``, such as ``lacks the trait A``, is true for each of the providers."""
        if count == 1:
            return f'the one provider that satisfies the other rules of {self.served} {clause}'
        return f'each of the {count} providers that satisfy the other rules of {self.served} {clause}'


def _count(flags: Sequence[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


# Rules about traits, aggregates and trees ------------------------------------------------------------------------


def _absence(state: Snapshot, rule: Rule) -> str:
    """Return the clause that no provider at all has what a rule requires; empty if some have or the rule forbids it."""
    match rule.condition:
        case TreeCondition(root_id=None):
            return f'the provider {rule.subject} of in_tree does not exist'
        case TraitCondition(traits, forbidden=False) as condition:
            absent = f'has {"the trait " if len(traits) == 1 else "any of "}{_traits(traits)}'
        case AggregateCondition((aggregates,), forbidden=False) as condition:
            absent = f'is in {_aggregates(aggregates)}'
        case _:
            return ''
    return '' if any(condition.matches(one).any() for one in state.partitions) else f'no provider {absent}'


def _traits(traits: frozenset[str]) -> str:
    return f'{"" if len(traits) == 1 else "the traits "}{", ".join(sorted(traits))}'


def _aggregates(uuids: frozenset[str]) -> str:
    return f'aggregate {min(uuids)}' if len(uuids) == 1 else f'any of the {len(uuids)} requested aggregates'


def _cause_of_roots(others: _Others) -> str:
    """Return the cause for a trait of ``root_required``."""
    count, accepted = others.trees.count, others.accepted.count
    if accepted:
        of = f'{count} trees that satisfy' if count > 1 else 'one tree that satisfies'
        return f'of the {of} the other rules, {accepted} satisfy {others.rule}, {_NOT_TOGETHER}'
    trees = f'each of the {count} trees that satisfy' if count > 1 else 'the one tree that satisfies'
    return f'the root of {trees} the other rules {_rejection(others.rule)}'


def _cause_of_providers(others: _Others) -> str:
    """Return the cause for a rule about traits, aggregates or the tree of a provider."""
    rule = others.rule
    if rule.condition is None:
        raise TypeError(rule)
    count = _count(others.trees.providers(others.remaining))
    # The traits that the unsuffixed group requires are in none of its requirements; for others this changes nothing.
    whole = [replace(one, conditions=(*one.conditions, rule.condition)) for one in others.requirements]
    satisfying = _count(others.accepted.providers(whole))
    if satisfying:
        of = f'{count} providers that satisfy' if count > 1 else 'one provider that satisfies'
        return f'of the {of} the other rules of {others.served}, {satisfying} satisfy {rule}, {_NOT_TOGETHER}'
    if not count:
        return f'no provider satisfies the other rules of {others.served}'
    return others.each(count, _rejection(rule))


def _rejection(rule: Rule) -> str:
    """Return why providers are rejected, as a predicate."""
    match rule.condition:
        case TraitCondition(traits, forbidden=True):
            return f'has the forbidden trait {_traits(traits)}'
        case TraitCondition(traits):
            return f'lacks the trait {_traits(traits)}' if len(traits) == 1 else f'has none of {_traits(traits)}'
        case AggregateCondition((aggregates,), forbidden=True):
            or_root = '' if rule.suffix else ', or has a root that is,'
            return f'is{or_root} in the forbidden {_aggregates(aggregates)}'
        case AggregateCondition((aggregates,)):
            return f'is not in {_aggregates(aggregates)}'
    return f'is not in the tree of {rule.subject}'


# Rules about amounts ---------------------------------------------------------------------------------------------

#: The inventories of one class in one partition, and which of them are of eligible providers.
_Entry = tuple[Partition, InventoryColumns, Flags]


def _blocker_of_resources(others: _Others, condition: ResourceCondition, limits: SearchLimits) -> Blocker:
    state, rule, trees = others.state, others.rule, others.accepted
    name, amount = condition.resource_class, condition.amount
    if not any(True for _ in state.inventory_columns(name)):
        return Blocker(rule, f'no provider has inventory of {name}', trees.count)
    eligible = trees.providers(others.remaining)
    entries = list(_entries(state, name, eligible))
    found = list(shortfalls(name, amount, [(columns, flags) for _, columns, flags in entries]))
    notes = [] if any(one.kind == 'combined' for one in found) else list(_notes(others, condition))
    absences = list(_absences(others))
    if found:
        cause = _insufficient(rule, 'that satisfies the other rules ' if others.any else '', found)
    elif _count(eligible):
        cause = _none_has(others, name, _count(eligible))
    else:
        # No provider satisfies the other rules of the group, so all inventories of the class in the trees are counted.
        in_trees = [flags[one.tree_numbers] for one, flags in zip(state.partitions, trees.flags, strict=True)]
        all_entries = [(columns, flags) for _, columns, flags in _entries(state, name, in_trees)]
        found = list(shortfalls(name, amount, all_entries))
        cause = '; '.join(absences) or f'no provider satisfies the other rules of {others.served}'
        if found and found[0].kind != 'combined':
            cause = f'{cause}; and {_insufficient(rule, "", found)}'
        absences = []
    near_misses = list(_near_misses(others, condition, entries, limits))
    return Blocker(rule, cause, trees.count, found, near_misses, [*notes, *absences])


def _entries(state: Snapshot, name: str, providers: Sequence[Flags]) -> Iterator[_Entry]:
    flags_of = {id(partition): flags for partition, flags in zip(state.partitions, providers, strict=True)}
    for partition, columns in state.inventory_columns(name):
        yield partition, columns, flags_of[id(partition)][columns.positions]


def _absences(others: _Others) -> Iterator[str]:
    """Yield the clauses that no provider has what the group requires, if the rule is about its only class."""
    if sum(len(one.resources) for one in others.requirements) == 1:
        for rule in rules(others.compiled):
            if others.rule.suffix in rule.suffixes:
                yield from filter(None, [_absence(others.state, rule)])


def _insufficient(rule: Rule, others: str, found: Sequence[Shortfall]) -> str:
    if found[0].kind != 'combined':
        return f'no provider {others}can allocate {rule.subject}: {"; ".join(map(str, found))}'
    count = found[0].providers
    providers = f'{count} provider{"s" if count > 1 else ""}'
    if others:
        providers += f' that satisf{"y" if count > 1 else "ies"} the other rules'
    return f'{providers} can allocate {rule.subject} alone, {_NOT_TOGETHER}'


def _none_has(others: _Others, name: str, eligible: int) -> str:
    """Return the clause that no provider that could serve a group has inventory of the class, although others have."""
    requirement = others.requirements[0]
    if requirement.use_same_provider:
        return others.each(eligible, f'has no inventory of {name} itself')
    trees = others.accepted.count
    do = 'does' if trees == 1 else 'do'
    limited = ' under the rules about aggregates, traits and trees' if len(requirement.conditions) > 1 else ''
    return (
        f'no tree that satisfies the other rules ({trees} {do}) has {name} or can use a sharing provider of it{limited}'
    )


def _near_misses(
    others: _Others, condition: ResourceCondition, entries: Sequence[_Entry], limits: SearchLimits
) -> Iterator[NearMiss]:
    """Yield the providers with the least missing capacity for which there would be a candidate with it."""
    name, amount = condition.resource_class, condition.amount
    short = []
    for partition, columns, eligible in entries:
        for entry in np.flatnonzero(eligible & violations(columns, amount)['free_capacity']).tolist():
            free = int(columns.capacity_limit[entry] - columns.used[entry])
            position = int(columns.positions[entry])
            short.append((amount - free, partition.providers[position].id, partition, position, free))
    found = 0
    for missing, _, partition, position, free in heapq.nsmallest(_MAX_TRIED, short, key=lambda one: one[:2]):
        freed = Prefilter(_with_less_used(others.state, partition, position, name, missing), others.request)
        if found < _MAX_NAMED and any(True for _ in search(freed.search_units(), freed.compiled, limits)):
            found += 1
            provider = partition.providers[position]
            has, lacks, requested = amounts(name, free, missing, amount)
            text = f'has {has} {name} free, {lacks} less than the {requested} requested'
            yield NearMiss(display_name(provider), provider.uuid, text, name, amount, free)


def _with_less_used(state: Snapshot, partition: Partition, position: int, name: str, amount: int) -> Snapshot:
    """Return the snapshot in which ``amount`` less of a class are used on a provider."""
    provider = partition.providers[position]
    used = provider.inventories[name].used - amount
    usages = UsageColumns.build(
        np.array([(provider.id, provider.generation, -1)]), np.array([(provider.id, 0, used)]), {0: name}
    )
    changed = partition.with_usages(usages)
    return replace(state, partitions=tuple(changed if one is partition else one for one in state.partitions))


def _notes(others: _Others, condition: ResourceCondition) -> Iterator[str]:
    """Yield sentences about providers with enough capacity that these trees cannot use, for one reason only.

    They are in an aggregate with these trees but lack the trait for sharing, or they have the trait but are in no
    aggregate with the trees.
    """
    trees = others.accepted
    without_trait: list[str] = []
    without_aggregate: list[str] = []
    for partition, flags in zip(others.state.partitions, trees.flags, strict=True):
        sufficient = condition.matches(partition) & ~flags[partition.tree_numbers]
        shares = TraitCondition(frozenset({SHARING_TRAIT})).matches(partition)
        reaches = partition.aggregates.where(lambda names: not names.isdisjoint(trees.aggregates))
        for matched, names in (
            (sufficient & reaches & ~shares, without_trait),
            (sufficient & ~reaches & shares, without_aggregate),
        ):
            providers = [partition.providers[position] for position in np.flatnonzero(matched).tolist()]
            names += [
                display_name(provider)
                for provider in providers
                if any(one.rejection(provider, None) is None for one in others.remaining)
            ]
    common = 'an aggregate in common with the trees that satisfy the other rules'
    subject = others.rule.subject
    if without_trait:
        yield f'{_named(without_trait)} could provide {subject} with the trait {SHARING_TRAIT} (and has {common})'
    if without_aggregate:
        yield f'{_named(without_aggregate)} could provide {subject} with {common} (and has the trait {SHARING_TRAIT})'


def _named(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    more = f' and {len(names) - _MAX_NAMED} more' if len(names) > _MAX_NAMED else ''
    return ', '.join(names[:_MAX_NAMED]) + more
