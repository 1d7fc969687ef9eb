"""Explains why a rule blocks a request for candidates, by the providers that satisfy all its other rules."""

from __future__ import annotations

import copy
import functools
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from placement.cache.dictionary_column import DictionaryColumn
from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import Partition, UsageUpdate
from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import SearchLimits
from placement.candidates.providers import Provider
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.requirements import (
    Reason,
    Requirement,
    ResourceCondition,
    TraitCondition,
    compile_request,
)
from placement.candidates.search import search
from placement.reports.rules import Kind, Rule, resource_of, rules, without

#: Most different values of max_unit, min_unit or step_size that are listed; of more only the range is given.
_VALUES = 3
#: The fields of an inventory for units, and the reason for which each refuses an amount.
_UNITS = {
    'max_unit': Reason.ABOVE_MAX_UNIT,
    'min_unit': Reason.BELOW_MIN_UNIT,
    'step_size': Reason.WRONG_STEP,
}
#: The kinds of rules of a group that name what may not exist.
_NAMING = (Kind.REQUIRED, Kind.MEMBER_OF, Kind.IN_TREE)
#: Most providers that are named for one rule, and most that are tried in a search.
_NAMED, _TRIED = 3, 8


@dataclass(frozen=True)
class Shortfall:
    """Providers that satisfy the other rules and have inventory of the class, but cannot allocate the amount.

    ``kind`` is the reason: ``max_unit``, ``min_unit`` or ``step_size`` (``value`` is that of all these ``providers``,
    or the smallest of theirs, with the largest in ``max_value``), ``total_capacity`` (``value`` is their largest
    capacity), ``free_capacity`` (``value`` is the most that any of them has free), or ``combined``: they can allocate
    the amount, but not in addition to what other parts of the request need from them.
    """

    kind: str
    value: int
    requested: int
    providers: int
    max_value: int | None = None

    def __str__(self) -> str:
        count = _providers(self.providers)
        if self.kind == 'total_capacity':
            return f'total capacity below {self.requested} (max {self.value}): {count}'
        if self.kind == 'free_capacity':
            return f'free capacity below {self.requested} (max {max(self.value, 0)}): {count}'
        if self.kind == 'combined':
            return f'sufficient, but not together with the rest of the request: {count}'
        values = f'{self.value}' if self.max_value is None else f'{self.value} to {self.max_value}'
        return f'{self.kind} is {values}, requested {self.requested}: {count}'


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
    """Why nothing satisfies a rule. ``cause`` is a clause of a sentence; ``notes`` are further sentences.

    ``trees`` counts the trees that can satisfy each other part of the request, each part considered alone.
    """

    rule: Rule
    cause: str
    trees: int
    shortfalls: Sequence[Shortfall] = ()
    near_misses: Sequence[NearMiss] = ()
    notes: Sequence[str] = ()

    def as_data(self) -> dict[str, Any]:
        """The blocker in JSON types, without ``near_misses``."""
        return {
            'rule': str(self.rule),
            'cause': self.cause,
            'trees': self.trees,
            'shortfalls': [asdict(one) for one in self.shortfalls],
            'notes': list(self.notes),
        }


def display_name(record: Provider) -> str:
    """The name of a provider, or its uuid if it has no name."""
    return record.name or record.uuid


def find_blocker(state: Snapshot, request: CandidateRequest, rule: Rule, limits: SearchLimits) -> Blocker:
    """Return why no provider or tree that satisfies all other rules of ``request`` satisfies ``rule``, too.

    :param rule: one for which ``about_one_provider`` is true.
    :param limits: the limits for the searches that try providers.
    """
    rest = _Rest(state, without(request, rule), request)
    if rule.kind is Kind.RESOURCES:
        # The conditions on roots remain, also those of a group that has no resources without the rule.
        return _of_resources(state, request, rule, rest.at_anchors(request), limits)
    if rule.kind is Kind.ROOT_REQUIRED:
        return Blocker(rule, _cause_of_roots(state, request, rule, rest), rest.count)
    return Blocker(rule, _cause_of_names(state, request, rule, rest), rest.count)


def _cause_of_roots(state: Snapshot, request: CandidateRequest, rule: Rule, rest: _Rest) -> str:
    """The cause for a trait of ``root_required``."""
    absent = _absent_everywhere(state, rule)
    if absent:
        return absent
    admitted = rest.at_anchors(request).count
    trees = (
        f'{rest.count} trees that satisfy the other rules'
        if rest.count != 1
        else 'the one tree that satisfies the other rules'
    )
    if admitted:
        of = trees.removeprefix('the ')
        return f'of the {of}, {admitted} satisfy {rule}, but not together with the rest of the request'
    each = trees if rest.count == 1 else f'each of the {trees}'
    return f'the root of {each} {"has the forbidden trait" if rule.forbids else "lacks the trait"} {rule.names[0]}'


def _cause_of_names(state: Snapshot, request: CandidateRequest, rule: Rule, rest: _Rest) -> str:
    """The cause for a rule about traits or aggregates."""
    absent = _absent_everywhere(state, rule)
    if absent:
        return absent
    eligible = rest.eligible(rest.requirements(rule))
    meeting = _count(_meeting(state, request, rule, rest, eligible))
    count = _count(eligible)
    if meeting:
        of = _could_serve(rule, count)
        return f'of the {of}, {meeting} satisfy {rule}, but not together with the rest of the request'
    if rule.kind is Kind.FORBIDDEN:
        return f'the {_could_serve(rule, count)} {"has" if count == 1 else "have"} the forbidden trait {rule.subject}'
    if rule.forbids:
        verb = 'is' if count == 1 else 'are'
        root = '' if rule.suffix else ', or has a root that is,' if count == 1 else ', or have roots that are,'
        return f'the {_could_serve(rule, count)} {verb}{root} in the forbidden aggregate {rule.names[0]}'
    if rule.kind is Kind.MEMBER_OF:
        return _none(rule, count, f'is not in {_aggregates(rule)}')
    if rule.kind is Kind.IN_TREE:
        return _none(rule, count, f'is not in the tree of {rule.subject}')
    lacks = f'lacks the trait {rule.subject}' if len(rule.names) == 1 else f'has none of {_traits(rule)}'
    return _none(rule, count, lacks)


def _could_serve(rule: Rule, count: int) -> str:
    return f'{_providers(count)} that satisf{"ies" if count == 1 else "y"} the other rules of {_served(rule)}'


def _none(rule: Rule, count: int, each: str) -> str:
    """Return the clause that ``each``, such as ``lacks the trait A``, applies to every eligible provider."""
    return (
        f'the one provider that satisfies the other rules of {_served(rule)} {each}'
        if count == 1
        else (f'each of the {_could_serve(rule, count)} {each}')
    )


def _meeting(
    state: Snapshot, request: CandidateRequest, rule: Rule, rest: _Rest, eligible: Sequence[Flags]
) -> Sequence[Flags]:
    """Return which of the providers in ``eligible`` also meet ``rule``."""
    if rule.kind is Kind.REQUIRED:
        has = TraitCondition(frozenset(rule.names))
        return [flags & has.matches(block) for block, flags in zip(state.partitions, eligible, strict=True)]
    requirements = [
        part for part in compile_request(request, state.root_id_of).requirements if part.group == rule.suffix
    ]
    return rest.at_anchors(request).eligible(requirements)


def _count(flags: Sequence[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


def _providers(count: int) -> str:
    return f'{count} provider{"s" if count != 1 else ""}'


def _served(rule: Rule) -> str:
    return f'group {rule.suffix}' if rule.suffix else 'the request'


def _absent_everywhere(state: Snapshot, rule: Rule) -> str:
    """The clause that no provider at all has the trait or is in the aggregates of a rule; empty if some are."""
    if rule.forbids:
        return ''
    if rule.kind is Kind.IN_TREE:
        return '' if state.find_provider(rule.subject) else f'the provider {rule.subject} of in_tree does not exist'
    member_of = rule.kind is Kind.MEMBER_OF
    columns = (block.aggregates if member_of else block.traits for block in state.partitions)
    if not all(names.isdisjoint(rule.names) for column in columns for names in _present(column)):
        return ''
    if member_of:
        return f'no provider is in {_aggregates(rule)}'
    return f'no provider has {"the trait " if len(rule.names) == 1 else "any of "}{_traits(rule)}'


def _traits(rule: Rule) -> str:
    return rule.names[0] if len(rule.names) == 1 else f'the traits {", ".join(rule.names)}'


def _aggregates(rule: Rule) -> str:
    wanted = rule.names
    return f'aggregate {wanted[0]}' if len(wanted) == 1 else f'any of the {len(wanted)} requested aggregates'


def _present(sets: DictionaryColumn) -> Iterator[frozenset[str]]:
    """Those of the sets that at least one provider has."""
    return (sets.values[number] for number in np.unique(sets.codes).tolist())


class _Rest:
    """The trees with own or sharing providers for every part of a request without one rule.

    :param rest: the request without the rule; None if nothing else is requested, and then these are all trees.
    """

    def __init__(self, state: Snapshot, rest: CandidateRequest | None, request: CandidateRequest) -> None:
        self._state = state
        self._rest = rest
        #: Whether anything else is asked for.
        self.asks = rest is not None
        self._matching = Prefilter(state, rest or request, with_keys=False)
        self.trees: list[Flags] = [
            self._matching.satisfied(block) if rest else block.has_root for block in state.partitions
        ]
        self.count = sum(int(flags.sum()) for flags in self.trees)

    def at_anchors(self, request: CandidateRequest) -> _Rest:
        """Return a copy with those of the trees whose roots meet the conditions of ``request`` on roots."""
        matching = Prefilter(self._state, request, with_keys=False)
        found = copy.copy(self)
        found.__dict__.pop('touched', None)
        found.trees = [
            flags & matching.accepted_roots(block)
            for block, flags in zip(self._state.partitions, self.trees, strict=True)
        ]
        found.count = sum(int(flags.sum()) for flags in found.trees)
        found.asks = self.asks or bool(matching.compiled.root.conditions)
        return found

    @functools.cached_property
    def touched(self) -> frozenset[str]:
        """The aggregates that providers of these trees are in."""
        found: set[str] = set()
        for block, trees in zip(self._state.partitions, self.trees, strict=True):
            sets = block.tree_aggregates
            for number in np.unique(sets.codes[trees]).tolist():
                found |= sets.values[number]
        return frozenset(found)

    def rows(self, block: Partition) -> Flags:
        """Return which providers of a block are in these trees."""
        number = next(number for number, one in enumerate(self._state.partitions) if one is block)
        flags: Flags = self.trees[number][block.tree_numbers]
        return flags

    def requirements(self, rule: Rule) -> list[Requirement]:
        """The parts that a provider must satisfy to serve the group of ``rule``, without the rule itself."""
        requirements = self._matching.compiled.requirements if self._rest else ()
        found = [part for part in requirements if part.group == rule.suffix]
        if rule.kind is not Kind.RESOURCES or (found and found[0].use_same_provider):
            return found
        return [_without_resources(part) for part in found[:1]]

    def eligible(self, requirements: Sequence[Requirement]) -> list[Flags]:
        """Return which providers satisfy any of ``parts``: of these trees, or sharing providers that they can use."""
        found = []
        for block, trees in zip(self._state.partitions, self.trees, strict=True):
            flags = np.zeros(len(block.providers), np.bool_)
            for part in requirements:
                flags |= part.matches(block)
            found.append(flags & trees[block.tree_numbers])
        numbers = {id(block): number for number, block in enumerate(self._state.partitions)}
        for provider in self._state.sharing:
            if not provider.aggregates.isdisjoint(self.touched) and any(
                part.rejection(provider, None) is None for part in requirements
            ):
                block, row = self._state.find_position(provider.root_id, provider.id)
                found[numbers[id(block)]][row] = True
        return found


def _of_resources(state: Snapshot, request: CandidateRequest, rule: Rule, rest: _Rest, limits: SearchLimits) -> Blocker:
    name, amount = resource_of(rule)
    stocks = list(state.inventory_columns(name))
    if not stocks:
        return Blocker(rule, f'no provider has inventory of {name}', rest.count)
    requirements = rest.requirements(rule) or [_bare(state, request, rule)]
    by_block = rest.eligible(requirements)
    eligible = {id(block): flags for block, flags in zip(state.partitions, by_block, strict=True)}
    entries = [(block, stock, eligible[id(block)][stock.positions]) for block, stock in stocks]
    shortfalls = list(_shortfalls(entries, amount))
    absent = list(_absent(state, request, rule))
    others = 'that satisfies the other rules ' if rest.asks else ''
    if shortfalls:
        cause = _insufficient(rule, others, shortfalls)
    elif not any(flags.any() for flags in by_block):
        # No provider meets the other rules of the group, so all inventories of the class in these trees are counted.
        shortfalls = list(
            _shortfalls([(block, stock, rest.rows(block)[stock.positions]) for block, stock in stocks], amount)
        )
        cause = '; '.join(absent) or f'no provider satisfies the other rules of {_served(rule)}'
        if shortfalls and shortfalls[0].kind != 'combined':
            cause = f'{cause}; and {_insufficient(rule, "", shortfalls)}'
        absent = []
    else:
        cause = _none_has(name, rule, rest, requirements[0], _count(by_block))
    conflicting = any(one.kind == 'combined' for one in shortfalls)
    notes = [*([] if conflicting else _notes(state, name, amount, requirements, rest)), *absent]
    near_misses = list(_near_misses(state, request, name, amount, entries, limits))
    return Blocker(rule, cause, rest.count, shortfalls, near_misses, notes)


def _insufficient(rule: Rule, others: str, shortfalls: Sequence[Shortfall]) -> str:
    if shortfalls[0].kind == 'combined':
        alone = _providers(shortfalls[0].providers)
        if others:
            others = f'that satisf{"ies" if shortfalls[0].providers == 1 else "y"} the other rules '
        return f'{alone} {others}can allocate {rule.subject} alone, but not together with the rest of the request'
    return f'no provider {others}can allocate {rule.subject}: {"; ".join(map(str, shortfalls))}'


def _none_has(name: str, rule: Rule, rest: _Rest, part: Requirement, eligible: int) -> str:
    """The clause that no provider that could serve a group has inventory of the class, although others have."""
    if part.use_same_provider:
        return _none(rule, eligible, f'has no inventory of {name} itself')
    do = 'does' if rest.count == 1 else 'do'
    limited = len(part.conditions) > len(part.resources)
    trees = f'no tree that satisfies the other rules ({rest.count} {do}) has {name} or can use a sharing provider of it'
    return f'{trees} under the rules about aggregates, traits and trees' if limited else trees


def _absent(state: Snapshot, request: CandidateRequest, rule: Rule) -> Iterator[str]:
    """Clauses for traits and aggregates of the group that no provider has, if ``rule`` is for its only class."""
    group = next(group for group in request.groups if group.suffix == rule.suffix)
    if len(group.resources) == 1:
        wanted = [one for one in rules(replace(request, groups=(group,))) if one.kind in _NAMING and not one.forbids]
        yield from (clause for clause in (_absent_everywhere(state, one) for one in wanted) if clause)


def _bare(state: Snapshot, request: CandidateRequest, rule: Rule) -> Requirement:
    """The first part of the group of a rule, without its amounts."""
    part = next(part for part in compile_request(request, state.root_id_of).requirements if part.group == rule.suffix)
    return _without_resources(part)


def _without_resources(part: Requirement, name: str | None = None) -> Requirement:
    """Return ``part`` without its amounts, or without that of one class."""
    kept = (
        one
        for one in part.conditions
        if not isinstance(one, ResourceCondition) or name not in {None, one.resource_class}
    )
    return replace(part, conditions=tuple(kept))


#: The inventories of one class in one block, and which of them are of eligible providers.
_Entry = tuple[Partition, InventoryColumns, Flags]


def _full(stock: InventoryColumns, amount: int) -> Flags:
    """Return which inventories cannot allocate ``amount`` now, but could if nothing of them was used."""
    full: Flags = stock.violations(amount)[Reason.NO_CAPACITY] & (amount <= stock.capacity_limit)
    return full


def _shortfalls(entries: Sequence[_Entry], amount: int) -> Iterator[Shortfall]:
    """Count the inventories that cannot allocate an amount, by the first reason that applies to each."""
    rejected = [stock.violations(amount) for _, stock, _ in entries]

    def values(column: str, reason: Reason) -> Integers:
        pairs = zip(entries, rejected, strict=True)
        return np.concatenate([getattr(stock, column)[flags & by[reason]] for (_, stock, flags), by in pairs])

    eligible = sum(int(flags.sum()) for _, _, flags in entries)
    found = [one for kind, reason in _UNITS.items() for one in _by_value(kind, values(kind, reason), amount)]
    ceiling = values('capacity_limit', Reason.NO_CAPACITY)
    left = ceiling - values('used', Reason.NO_CAPACITY)
    small = ceiling < amount
    if small.any():
        found.append(Shortfall('total_capacity', int(ceiling[small].max()), amount, int(small.sum())))
    if not small.all():
        found.append(Shortfall('free_capacity', int(left[~small].max()), amount, int((~small).sum())))
    room = eligible - sum(one.providers for one in found)
    if room:
        yield Shortfall('combined', amount, amount, room)
    yield from found


def _by_value(kind: str, values: Integers, amount: int) -> list[Shortfall]:
    """One entry for each value if there are few, else one with the range."""
    units, counts = np.unique(values, return_counts=True)
    if len(units) > _VALUES:
        return [Shortfall(kind, int(units[0]), amount, len(values), max_value=int(units[-1]))]
    return [Shortfall(kind, int(unit), amount, int(count)) for unit, count in zip(units, counts, strict=True)]


def _near_misses(
    state: Snapshot, request: CandidateRequest, name: str, amount: int, entries: Sequence[_Entry], limits: SearchLimits
) -> Iterator[NearMiss]:
    """Yield the providers with the least missing capacity for which there would be a candidate with it."""
    short = []
    for block, stock, flags in entries:
        for entry in np.flatnonzero(flags & _full(stock, amount)).tolist():
            left = int(stock.capacity_limit[entry] - stock.used[entry])
            short.append(
                (amount - left, block.providers[stock.positions[entry]].id, block, int(stock.positions[entry]), left)
            )
    named = 0
    for lack, _, block, row, left in heapq.nsmallest(_TRIED, short, key=lambda one: one[:2]):
        if named == _NAMED:
            return
        if _would_do(_freed(state, block, row, name, lack), request, limits):
            named += 1
            record = block.providers[row]
            missing = f'has {max(left, 0)} {name} free, {lack} less than the {amount} requested'
            yield NearMiss(display_name(record), record.uuid, missing, name, amount, left)


def _freed(state: Snapshot, block: Partition, row: int, name: str, units: int) -> Snapshot:
    """Return the state in which ``units`` less of a class are used on a provider."""
    record = block.providers[row]
    used = record.inventories[name].used - units
    freed = block.with_usages({row: UsageUpdate(record.generation, record.modified, {name: used})})
    return replace(state, partitions=tuple(freed if one is block else one for one in state.partitions))


def _would_do(state: Snapshot, request: CandidateRequest, limits: SearchLimits) -> bool:
    prefilter = Prefilter(state, request)
    return next(search(prefilter.search_units(), prefilter.compiled, limits), None) is not None


def _notes(state: Snapshot, name: str, amount: int, requirements: Sequence[Requirement], rest: _Rest) -> Iterator[str]:
    """Yield sentences about providers with enough capacity that these trees cannot use, for one reason only.

    ``unmarked`` are in an aggregate with these trees but lack the trait for sharing; ``stranded`` have the trait but
    are in no aggregate with the trees.
    """
    unmarked: list[str] = []
    stranded: list[str] = []
    meets = rest.touched
    for block, trees in zip(state.partitions, rest.trees, strict=True):
        room = block.with_capacity(name, amount) & ~trees[block.tree_numbers]
        marked = TraitCondition(frozenset({SHARING_TRAIT})).matches(block)
        near = block.aggregates.where(lambda names: not names.isdisjoint(meets))
        for rows, found in ((room & near & ~marked, unmarked), (room & ~near & marked, stranded)):
            for row in np.flatnonzero(rows).tolist():
                provider = block.providers[row]
                bare = (_without_resources(part, name) for part in requirements)
                if any(part.rejection(provider, None) is None for part in bare):
                    found.append(display_name(block.providers[row]))
    common = 'an aggregate in common with the trees that satisfy the other rules'
    if unmarked:
        yield (f'{_named(unmarked)} could provide {name}:{amount} with the trait {SHARING_TRAIT} (and has {common})')
    if stranded:
        yield (f'{_named(stranded)} could provide {name}:{amount} with {common} (and has the trait {SHARING_TRAIT})')


def _named(names: Sequence[str]) -> str:
    """Return the first few names and the number of the others."""
    more = f' and {len(names) - _NAMED} more' if len(names) > _NAMED else ''
    return ', '.join(names[:_NAMED]) + more
