"""What a rule of a request for candidates fails at, in numbers and names, where everything else is met."""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from placement.candidates.budget import Budget
from placement.candidates.parts import Part, compile_request
from placement.candidates.reasons import Reason
from placement.candidates.request import SHARING_TRAIT, CandidateRequest
from placement.candidates.search import search
from placement.mirror.block import Block
from placement.mirror.matching import Matching, holds
from placement.mirror.records import Record, Usage
from placement.mirror.sets import Sets
from placement.mirror.state import State
from placement.mirror.stock import Flags, Integers, Stock
from placement.reports.rules import Kind, Rule, resource_of, without

#: How many values of max_unit, min_unit or step_size to tell apart.
_VALUES = 3
#: The rules about units, and what they are called in an inventory.
_UNITS = {
    'max_unit': Reason.ABOVE_MAX_UNIT,
    'min_unit': Reason.BELOW_MIN_UNIT,
    'step_size': Reason.WRONG_STEP,
}
#: How many providers to name for one rule, and how many to try out for it.
_NAMED, _TRIED = 3, 8


@dataclass(frozen=True)
class Lack:
    """Providers that meet everything else and have the class, but not like that.

    ``kind`` is ``max_unit``, ``min_unit`` or ``step_size`` (``value`` is that of these ``providers``, or the least of
    theirs and ``upto`` the greatest), ``too_small`` (``value`` is the largest capacity of them), ``full`` (``value`` is
    the most that any of them has left), or ``room``: they would do alone, but not beside the rest of the request.
    """

    kind: str
    value: int
    asked: int
    providers: int
    upto: int | None = None

    def __str__(self) -> str:
        count = _providers(self.providers)
        if self.kind == 'too_small':
            return f'too small ever ({self.value} at most, asked {self.asked}): {count}'
        if self.kind == 'full':
            return f'full now ({max(self.value, 0)} left at most, asked {self.asked}): {count}'
        if self.kind == 'room':
            return f'room, but not beside the rest of the request: {count}'
        upto = '' if self.upto is None else f' to {self.upto}'
        return f'{self.kind} is {self.value}{upto}, asked {self.asked}: {count}'


@dataclass(frozen=True)
class Nearest:
    """A provider, or the root of a tree, with what it lacks and nothing else.

    ``wanted`` and ``left`` are amounts of ``resource_class`` where room is what it lacks: there would be a candidate if
    so much became free. Otherwise there would be one without the rules that ``lacks`` names.
    """

    name: str
    uuid: str
    lacks: str
    resource_class: str | None = None
    wanted: int | None = None
    left: int | None = None


@dataclass(frozen=True)
class Obstacle:
    """Why a rule alone leaves nothing: one clause for people, the numbers behind it, and what explains them.

    ``trees`` counts those that meet the rest as far as can be said without placing the groups together.
    """

    rule: Rule
    cause: str
    trees: int
    lacks: Sequence[Lack] = ()
    nearest: Sequence[Nearest] = ()
    notes: Sequence[str] = ()

    def as_data(self) -> dict[str, Any]:
        """It in the types of JSON, without the nearest."""
        return {
            'rule': str(self.rule),
            'cause': self.cause,
            'trees': self.trees,
            'lacks': [asdict(lack) for lack in self.lacks],
            'notes': list(self.notes),
        }


def called(record: Record) -> str:
    """What to call a provider."""
    return record.name or record.uuid


def obstacle(state: State, request: CandidateRequest, rule: Rule, budget: Budget) -> Obstacle:
    """Look at what meets everything that ``request`` asks for but one rule, which is about one provider.

    :param budget: what trying out providers may spend.
    """
    rest = _Rest(state, without(request, rule), request)
    if rule.kind is Kind.RESOURCES:
        return _of_resources(state, request, rule, rest, budget)
    return Obstacle(rule, _cause_of_names(state, request, rule, rest), rest.count)


def _cause_of_names(state: State, request: CandidateRequest, rule: Rule, rest: _Rest) -> str:
    """Say it for traits and aggregates."""
    nobody = _nobody(state, rule)
    if nobody:
        return nobody
    eligible = rest.eligible(rest.parts(rule))
    meeting = _count(_meeting(state, request, rule, rest, eligible))
    count = _count(eligible)
    if meeting:
        return f'of the {_could_serve(rule, count)}, {meeting} meet {rule}, but not beside the rest of the request'
    what = {
        Kind.FORBIDDEN: f'the forbidden trait {rule.subject}',
        Kind.REQUIRED: f'the trait {rule.subject}',
        Kind.MEMBER_OF: f'in {_aggregates(rule)}',
    }[rule.kind]
    if rule.kind is Kind.FORBIDDEN:
        return f'the {_could_serve(rule, count)} {"has" if count == 1 else "have"} {what}'
    return _none(rule, count, f'is not {what}' if rule.kind is Kind.MEMBER_OF else f'lacks {what}')


def _could_serve(rule: Rule, count: int) -> str:
    return f'{_providers(count)} that could otherwise serve {_served(rule)}'


def _none(rule: Rule, count: int, each: str) -> str:
    """Say what is true of each provider that could serve a group."""
    return (
        f'the one that could otherwise serve {_served(rule)} {each}'
        if count == 1
        else (f'each of the {_could_serve(rule, count)} {each}')
    )


def _meeting(
    state: State, request: CandidateRequest, rule: Rule, rest: _Rest, eligible: Sequence[Flags]
) -> Sequence[Flags]:
    """Return who of those that meet the rest also meets ``rule``."""
    if rule.kind is Kind.REQUIRED:
        has = functools.partial(holds, rule.subject)
        return [flags & block.traits.where(has) for block, flags in zip(state.blocks, eligible, strict=True)]
    return rest.eligible([part for part in compile_request(request).parts if part.group == rule.suffix])


def _count(flags: Sequence[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


def _providers(count: int) -> str:
    return f'{count} provider{"s" if count != 1 else ""}'


def _served(rule: Rule) -> str:
    return f'resources{rule.suffix}' if rule.suffix else 'the request'


def _nobody(state: State, rule: Rule) -> str:
    """Say that no provider at all has a trait or is in an aggregate; empty when some are."""
    if rule.kind is Kind.FORBIDDEN:
        return ''
    if rule.kind is Kind.REQUIRED:
        has = any(rule.subject in names for block in state.blocks for names in _present(block.traits))
        return '' if has else f'no provider has the trait {rule.subject}'
    wanted = rule.subject.split(',')
    alone = all(names.isdisjoint(wanted) for block in state.blocks for names in _present(block.aggregates))
    return f'no provider is in {_aggregates(rule)}' if alone else ''


def _aggregates(rule: Rule) -> str:
    wanted = rule.subject.split(',')
    return f'aggregate {wanted[0]}' if len(wanted) == 1 else f'any of the {len(wanted)} aggregates wanted'


def _present(sets: Sets) -> Iterator[frozenset[str]]:
    """The sets that any provider has."""
    return (sets.values[number] for number in np.unique(sets.of).tolist())


class _Rest:
    """The trees that have, or are reached by, a provider for every part of a request but one rule."""

    def __init__(self, state: State, rest: CandidateRequest | None, request: CandidateRequest) -> None:
        self._state = state
        self._rest = rest
        #: Whether anything else is asked for.
        self.asks = rest is not None
        self._matching = Matching(state, rest or request, alike=False)
        self.trees: list[Flags] = [self._matching.served(block) if rest else block.whole for block in state.blocks]
        self.count = sum(int(flags.sum()) for flags in self.trees)

    @functools.cached_property
    def touched(self) -> frozenset[str]:
        """The aggregates that any provider of these trees is in."""
        found: set[str] = set()
        for block, trees in zip(self._state.blocks, self.trees, strict=True):
            sets = block.tree_aggregates
            for number in np.unique(sets.of[trees]).tolist():
                found |= sets.values[number]
        return frozenset(found)

    def rows(self, block: Block) -> Flags:
        """Say which providers of a block are in these trees."""
        number = next(number for number, one in enumerate(self._state.blocks) if one is block)
        flags: Flags = self.trees[number][block.tree_of]
        return flags

    def parts(self, rule: Rule) -> list[Part]:
        """What one provider has to satisfy for the group of ``rule``, but for the rule itself."""
        parts = compile_request(self._rest).parts if self._rest else ()
        found = [part for part in parts if part.group == rule.suffix]
        if rule.kind is not Kind.RESOURCES or (found and found[0].numbered):
            return found
        return [replace(part, resources=()) for part in found[:1]]

    def eligible(self, parts: Sequence[Part]) -> list[Flags]:
        """Return who satisfies any of ``parts`` in these trees, or reaches one of them and shares."""
        found = []
        for block, trees in zip(self._state.blocks, self.trees, strict=True):
            flags = np.zeros(len(block.records), np.bool_)
            for part in parts:
                flags |= self._matching.takers(block, part)
            found.append(flags & trees[block.tree_of])
        numbers = {id(block): number for number, block in enumerate(self._state.blocks)}
        for provider, names in self._state.sharing.items():
            if not names.isdisjoint(self.touched) and any(part.rejection(provider, None) is None for part in parts):
                block, row = self._state.position(provider.root_id, provider.id)
                found[numbers[id(block)]][row] = True
        return found


def _of_resources(state: State, request: CandidateRequest, rule: Rule, rest: _Rest, budget: Budget) -> Obstacle:
    name, amount = resource_of(rule)
    stocks = list(state.stocks(name))
    if not stocks:
        return Obstacle(rule, f'no provider has inventory of {name}', rest.count)
    parts = rest.parts(rule) or [_bare(request, rule)]
    by_block = rest.eligible(parts)
    eligible = {id(block): flags for block, flags in zip(state.blocks, by_block, strict=True)}
    entries = [(block, stock, eligible[id(block)][stock.rows]) for block, stock in stocks]
    lacks = list(_lacks(entries, amount))
    absent = list(_absent(state, request, rule))
    others = 'that meets the rest ' if rest.asks else ''
    if lacks:
        cause = _no_room(rule, others, lacks)
    elif not any(flags.any() for flags in by_block):
        # Then whoever has the class matters, whatever else they lack.
        lacks = list(_lacks([(block, stock, rest.rows(block)[stock.rows]) for block, stock in stocks], amount))
        cause = '; '.join(absent) or f'no provider meets all that {_served(rule)} asks for besides {rule.subject}'
        if lacks and lacks[0].kind != 'room':
            cause = f'{cause}; and {_no_room(rule, "", lacks)}'
        absent = []
    else:
        cause = _none_has(name, rule, rest, parts[0], _count(by_block))
    crowded = any(lack.kind == 'room' for lack in lacks)
    notes = [*([] if crowded else _notes(state, name, amount, parts, rest)), *absent]
    nearest = list(_nearest(state, request, name, amount, entries, budget))
    return Obstacle(rule, cause, rest.count, lacks, nearest, notes)


def _no_room(rule: Rule, others: str, lacks: Sequence[Lack]) -> str:
    counts = '; '.join(map(str, lacks))
    if lacks[0].kind == 'room':
        alone = _providers(lacks[0].providers)
        return f'{alone} {others}would have room for {rule.subject} alone, but not beside the rest of the request'
    return f'no provider {others}has room for {rule.subject}: {counts}'


def _none_has(name: str, rule: Rule, rest: _Rest, part: Part, eligible: int) -> str:
    """Say that nobody who could serve a group has a class that others have."""
    if part.numbered:
        return _none(rule, eligible, f'has no {name} itself')
    do = 'does' if rest.count == 1 else 'do'
    trees = f'no tree that meets the rest ({rest.count} {do}) has {name}, or is reached by a provider that shares it'
    return f'{trees}, as far as its aggregates and traits allow' if part.member_of or part.forbidden else trees


def _absent(state: State, request: CandidateRequest, rule: Rule) -> Iterator[str]:
    """Name what else a group asks for that nobody has, when ``rule`` is about the only class it asks for."""
    group = next(group for group in request.groups if group.suffix == rule.suffix)
    if len(group.resources) == 1:
        wanted = [Rule(Kind.REQUIRED, rule.suffixes, name) for name in sorted(group.required)]
        wanted += [Rule(Kind.MEMBER_OF, rule.suffixes, ','.join(sorted(any_of))) for any_of in group.member_of]
        yield from (found for found in (_nobody(state, one) for one in wanted) if found)


def _bare(request: CandidateRequest, rule: Rule) -> Part:
    """The part of a group that asks for nothing else, without amounts."""
    part = next(part for part in compile_request(request).parts if part.group == rule.suffix)
    return replace(part, resources=())


#: Inventories of one class in one block, and which of them count.
_Entry = tuple[Block, Stock, Flags]


def _full(stock: Stock, amount: int) -> Flags:
    """Which inventories have no room for ``amount`` now, and would have if nothing of them was used."""
    full: Flags = stock.refused(amount)[Reason.NO_CAPACITY] & (amount <= stock.ceiling)
    return full


def _lacks(entries: Sequence[_Entry], amount: int) -> Iterator[Lack]:
    """Count why inventories have no room, by the first rule that each breaks."""
    refused = [stock.refused(amount) for _, stock, _ in entries]

    def values(column: str, reason: Reason) -> Integers:
        pairs = zip(entries, refused, strict=True)
        return np.concatenate([getattr(stock, column)[flags & by[reason]] for (_, stock, flags), by in pairs])

    eligible = sum(int(flags.sum()) for _, _, flags in entries)
    found = [lack for kind, reason in _UNITS.items() for lack in _by_value(kind, values(kind, reason), amount)]
    ceiling = values('ceiling', Reason.NO_CAPACITY)
    left = ceiling - values('used', Reason.NO_CAPACITY)
    small = ceiling < amount
    if small.any():
        found.append(Lack('too_small', int(ceiling[small].max()), amount, int(small.sum())))
    if not small.all():
        found.append(Lack('full', int(left[~small].max()), amount, int((~small).sum())))
    room = eligible - sum(lack.providers for lack in found)
    if room:
        yield Lack('room', amount, amount, room)
    yield from found


def _by_value(kind: str, values: Integers, amount: int) -> list[Lack]:
    """Tell a few values apart; of many, name the range."""
    units, counts = np.unique(values, return_counts=True)
    if len(units) > _VALUES:
        return [Lack(kind, int(units[0]), amount, len(values), upto=int(units[-1]))]
    return [Lack(kind, int(unit), amount, int(count)) for unit, count in zip(units, counts, strict=True)]


def _nearest(
    state: State, request: CandidateRequest, name: str, amount: int, entries: Sequence[_Entry], budget: Budget
) -> Iterator[Nearest]:
    """Name the full providers that lack least, as far as freeing that much gives a candidate."""
    short = []
    for block, stock, flags in entries:
        for entry in np.flatnonzero(flags & _full(stock, amount)).tolist():
            left = int(stock.ceiling[entry] - stock.used[entry])
            short.append((amount - left, block.records[stock.rows[entry]].id, block, int(stock.rows[entry]), left))
    named = 0
    for lack, _, block, row, left in heapq.nsmallest(_TRIED, short, key=lambda one: one[:2]):
        if named == _NAMED:
            return
        if _would_do(_freed(state, block, row, name, lack), request, budget):
            named += 1
            record = block.records[row]
            lacks = f'has {max(left, 0)} of {name} left, {lack} less than the {amount} asked for'
            yield Nearest(called(record), record.uuid, lacks, name, amount, left)


def _freed(state: State, block: Block, row: int, name: str, units: int) -> State:
    """Return the state after ``units`` of a class were given back to a provider."""
    record = block.records[row]
    class_id = state.names.class_ids[name]
    used = dict(record.inventories)[class_id].used - units
    freed = block.with_usages({row: Usage(record.generation, record.modified, {class_id: used})})
    return replace(state, blocks=tuple(freed if one is block else one for one in state.blocks))


def _would_do(state: State, request: CandidateRequest, budget: Budget) -> bool:
    return next(search(Matching(state, request).sites(), request, budget), None) is not None


def _notes(state: State, name: str, amount: int, parts: Sequence[Part], rest: _Rest) -> Iterator[str]:
    """Tell what has room but does not reach the trees that meet the rest."""
    unmarked: list[str] = []
    stranded: list[str] = []
    meets = rest.touched
    class_id = state.names.class_ids[name]
    for block, trees in zip(state.blocks, rest.trees, strict=True):
        room = block.with_room(class_id, amount) & ~trees[block.tree_of]
        marked = block.traits.where(functools.partial(holds, SHARING_TRAIT))
        near = block.aggregates.where(lambda names: not names.isdisjoint(meets))
        for rows, found in ((room & near & ~marked, unmarked), (room & ~near & marked, stranded)):
            for row in np.flatnonzero(rows).tolist():
                provider = state.provider(block.records[row])
                bare = (replace(part, resources=tuple(r for r in part.resources if r[0] != name)) for part in parts)
                if any(part.rejection(provider, None) is None for part in bare):
                    found.append(called(block.records[row]))
    common = 'in common with the trees that meet the rest'
    if unmarked:
        yield (
            f'{_named(unmarked)} room for {name}:{amount} and an aggregate {common}, but not the trait {SHARING_TRAIT}:'
            ' nothing is shared without it'
        )
    if stranded:
        yield f'{_named(stranded)} room for {name}:{amount} and the trait {SHARING_TRAIT}, but no aggregate {common}'


def _named(names: Sequence[str]) -> str:
    """Name the first few, with the verb."""
    shown = ', '.join(names[:_NAMED])
    if len(names) > _NAMED:
        return f'{shown} and {len(names) - _NAMED} more have'
    return f'{shown} {"has" if len(names) == 1 else "have"}'
