"""Finds out what each rule of a candidate request leaves over, with the conditions that the search itself uses."""

from __future__ import annotations

import functools
import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.candidates.budget import Budget
from placement.candidates.funnel import Funnel, Miss, Stage
from placement.candidates.reasons import Reason, Rejections
from placement.candidates.request import CandidateRequest
from placement.candidates.rows import Provider
from placement.candidates.search import chosen, search
from placement.candidates.steps import Step
from placement.mirror.block import Block, any_of_tree
from placement.mirror.matching import Matching, holds
from placement.mirror.state import State
from placement.mirror.stock import Flags, Stock

#: How many near misses to name.
_MISSES = 3

#: How many rules to account for, and classes to look for near misses of; a query may have thousands.
_MOST_RULES = 50


def account(state: State, request: CandidateRequest, budget: Budget) -> Funnel:
    """Run a request and tell what became of it.

    :param request: names classes and traits that exist.
    :param budget: what the search may spend.
    :returns: the funnel, whether or not anything was found.
    """
    matching = Matching(state, request, alike=False)
    stages = list(itertools.islice(_stages(state, matching), _MOST_RULES))
    rejections: Rejections = Counter()
    found = len(chosen(search(matching.sites(), request, budget, rejections), request, budget))
    grouping = {} if found else {key: n for key, n in rejections.items() if key[1].between_groups}
    misses = [] if found else _misses(state, request)
    return Funnel(stages, grouping, found, request.limit, misses, frozenset(budget.met))


@dataclass(frozen=True)
class _Rule:
    """One more condition of a step. ``step`` has all conditions up to this one; ``resource`` is set for an amount."""

    rule: str
    subject: str
    step: Step
    resource: tuple[str, int] | None = None


def _rules(step: Step) -> Iterator[_Rule]:
    """Take a step apart, in the order in which its conditions are accounted for."""
    so_far = replace(step, resources=(), required=frozenset(), forbidden=frozenset(), member_of=())
    for name, amount in step.resources:
        so_far = replace(so_far, resources=(*so_far.resources, (name, amount)))
        yield _Rule('resources', f'{name}:{amount}', so_far, (name, amount))
    for name in sorted(step.required):
        so_far = replace(so_far, required=so_far.required | {name})
        yield _Rule('required', name, so_far)
    if step.forbidden:
        so_far = replace(so_far, forbidden=step.forbidden)
        yield _Rule('forbidden', ','.join(sorted(step.forbidden)), so_far)
    if step.member_of:
        subject = ' and '.join(','.join(sorted(any_of)) for any_of in step.member_of)
        yield _Rule('member_of', subject, replace(so_far, member_of=step.member_of))


class _Left:
    """The trees that can still satisfy all rules so far, by themselves or through sharing providers."""

    def __init__(self, state: State, matching: Matching) -> None:
        self._state = state
        self._matching = matching
        self._flags = [block.whole for block in state.blocks]

    def after(self, takes: Sequence[Flags], shared: Callable[[Provider], bool] | None) -> Sequence[Flags]:
        """Return which trees also have a provider of ``takes``, or are reached by a sharing one that is ``shared``."""
        return [
            left & (any_of_tree(block, own) | self._reached(block, shared))
            for block, left, own in zip(self._state.blocks, self._flags, takes, strict=True)
        ]

    def _reached(self, block: Block, shared: Callable[[Provider], bool] | None) -> Flags:
        carrying = self._matching.sharing.aggregates
        if shared is None or not carrying:
            return np.zeros(len(block.whole), np.bool_)
        reaching = self._matching.sharing.reaching
        return block.tree_aggregates.where(lambda names: any(map(shared, reaching(names & carrying))))

    def keep(self, flags: Sequence[Flags]) -> None:
        """Go on from what ``after`` returned."""
        self._flags = list(flags)


def _stages(state: State, matching: Matching) -> Iterator[Stage]:
    """Apply one rule after the other and count what is left."""
    left = _Left(state, matching)
    for step in matching.steps:
        for rule in _rules(step):
            takes = [matching.takers(block, rule.step) for block in state.blocks]
            flags = left.after(takes, functools.partial(_takes, rule.step))
            refused = _refused(state, *rule.resource) if rule.resource else {}
            yield Stage(step.group, rule.rule, rule.subject, _count(takes), _count(flags), refused)
        left.keep(flags)
    for name in matching.collective:
        takes = [block.traits.where(functools.partial(holds, name)) for block in state.blocks]
        flags = left.after(takes, functools.partial(_has, name))
        yield Stage('', 'required', name, _count(takes), _count(flags))
        left.keep(flags)
    own = [step for step in matching.steps if not any(_takes(step, one) for one in matching.sharing.providers)]
    if len(own) > 1 and not matching.nested_aware:
        takes = [np.logical_and.reduce([matching.takers(block, step) for step in own]) for block in state.blocks]
        subject = 'for all of this (below 1.29)'
        yield Stage('', 'same provider', subject, _count(takes), _count(left.after(takes, None)))


def _takes(step: Step, provider: Provider) -> bool:
    return step.refusal(provider, None) is None


def _has(name: str, provider: Provider) -> bool:
    return name in provider.traits


def _count(flags: Iterable[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


def _stocks(state: State, name: str) -> Iterator[tuple[Block, Stock]]:
    class_id = state.names.class_ids[name]
    return ((block, block.stocks[class_id]) for block in state.blocks if class_id in block.stocks)


def _refused(state: State, name: str, amount: int) -> dict[Reason, int]:
    """Count the inventories of a class that have no room for an amount, by the first rule that they break."""
    counted: Counter[Reason] = Counter()
    for _block, stock in _stocks(state, name):
        counted.update(stock.refusals(amount))
    return dict(counted)


def _misses(state: State, request: CandidateRequest) -> list[Miss]:
    """Name the providers that lack least of a class, relative to nothing but the amount itself."""
    asked: dict[tuple[str, int], str] = {}
    for group in request.groups:
        for resource in group.resources.items():
            asked.setdefault(resource, group.suffix)
    found = [
        miss
        for (name, amount), suffix in itertools.islice(asked.items(), _MOST_RULES)
        for miss in _misses_of(state, suffix, name, amount)
    ]
    found.sort(key=lambda miss: (miss.wanted - miss.left) / miss.wanted)
    return found[:_MISSES]


def _misses_of(state: State, group: str, name: str, amount: int) -> Iterator[Miss]:
    nearest = heapq.nlargest(
        _MISSES,
        (
            (left, -block.records[row].id, block.records[row])
            for block, stock in _stocks(state, name)
            for row, left in stock.short_of(amount, _MISSES)
        ),
    )
    for left, _, record in nearest:
        yield Miss(record.name or record.uuid, record.uuid, group, name, amount, left)
