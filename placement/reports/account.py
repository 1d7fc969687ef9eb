"""How many providers and trees each rule of a request for candidates leaves, by the conditions of the search itself."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from placement.candidates.budget import Bound, Budget
from placement.candidates.parts import Part
from placement.candidates.providers import Provider
from placement.candidates.reasons import Reason
from placement.candidates.request import CandidateRequest
from placement.mirror.block import Block, any_of_tree
from placement.mirror.matching import Matching, holds
from placement.mirror.state import State
from placement.mirror.stock import Flags
from placement.reports.combination_failures import CombinationFailure, combination_failures
from placement.reports.rules import in_short

#: Most rules that are counted; a query may have thousands.
MOST_RULES = 50

#: Most characters of a subject in a line of text; a list of aggregates may have thousands.
_MAX_SUBJECT = 200


@dataclass(frozen=True)
class Stage:
    """What one rule leaves when it is applied after all rules before it.

    ``suffixes`` are those of the request group and of all groups that ask for the same. ``rule`` is ``resources``,
    ``required``, ``forbidden``, ``member_of`` or ``same provider``; ``subject`` is what it asks for, such as
    ``VCPU:2``. In the unnumbered group each class may come from another provider; ``serving`` is the class that the
    providers of this stage are for, if ``subject`` does not name it. ``providers`` counts the providers that pass the
    rules of this group so far, ``trees`` the trees that can satisfy all rules so far, with their own or with sharing
    providers. For ``resources``, ``refused`` counts the inventories of the class that have no room for the amount, by
    reason.
    """

    suffixes: tuple[str, ...]
    rule: str
    subject: str
    providers: int
    trees: int
    refused: Mapping[Reason, int] = field(default_factory=dict)
    serving: str = ''

    def __str__(self) -> str:
        """The stage as a part of a log line."""
        refused = ''.join(f', {n} {reason.name.lower()}' for reason, n in self.refused.items())
        subject = self.subject if len(self.subject) <= _MAX_SUBJECT else f'{self.subject[:_MAX_SUBJECT]}...'
        serving = f' (for {self.serving})' if self.serving else ''
        rule = f'{self.rule}{in_short(self.suffixes)} {subject}{serving}'
        return f'{rule}: {self.trees} trees, {self.providers} providers{refused}'

    def as_data(self) -> dict[str, Any]:
        """The stage in JSON types; ``groups`` are suffixes, of which that of the unnumbered group is empty."""
        return {
            'rule': self.rule,
            'groups': list(self.suffixes),
            'subject': self.subject,
            'serving': self.serving,
            'providers': self.providers,
            'trees': self.trees,
            'refused': {reason.name.lower(): count for reason, count in self.refused.items()},
        }


def account_of_empty(state: State, request: CandidateRequest, budget: Budget, bounds: Collection[Bound]) -> str:
    """Explain in one line, for the log, why a search found nothing.

    That takes much less time than ``explanation.explain``, as no search with a changed request is made.

    :param request: all its classes and traits exist.
    :param budget: the limits for searching trees again.
    :param bounds: the limits at which the search stopped.
    """
    counted = stages(state, Matching(state, request, alike=False))
    parts = list(map(str, counted))
    if counted and counted[-1].trees:
        parts += map(_combination_failure, combination_failures(state, request, budget))
    parts += [f'stopped at a bound: {bound.value}' for bound in Bound if bound in bounds]
    return '; '.join(parts)


def _combination_failure(failure: CombinationFailure) -> str:
    example = failure.examples[0]
    return f'not together in {failure.trees} trees: {failure.reason.value} ({example.name}: {example.detail})'


def stages(state: State, matching: Matching) -> list[Stage]:
    """Apply the first ``MOST_RULES`` rules of a request one after the other, and count what each leaves."""
    return list(itertools.islice(_stages(state, matching), MOST_RULES))


@dataclass(frozen=True)
class _Rule:
    """One condition of a part. ``part`` has all up to this one; ``resource`` is set if it asks for an amount."""

    rule: str
    subject: str
    part: Part
    resource: tuple[str, int] | None = None


def _rules(part: Part) -> Iterator[_Rule]:
    """Split a part into its conditions, in the order in which they are applied."""
    so_far = replace(part, resources=(), required=frozenset(), forbidden=frozenset(), member_of=())
    for name, amount in part.resources:
        so_far = replace(so_far, resources=(*so_far.resources, (name, amount)))
        yield _Rule('resources', f'{name}:{amount}', so_far, (name, amount))
    for name in sorted(part.required):
        so_far = replace(so_far, required=so_far.required | {name})
        yield _Rule('required', name, so_far)
    for name in sorted(part.forbidden):
        so_far = replace(so_far, forbidden=so_far.forbidden | {name})
        yield _Rule('forbidden', name, so_far)
    for any_of in part.member_of:
        so_far = replace(so_far, member_of=(*so_far.member_of, any_of))
        yield _Rule('member_of', ','.join(sorted(any_of)), so_far)


class _RemainingTrees:
    """The trees that can satisfy all rules so far, with their own or with sharing providers."""

    def __init__(self, state: State, matching: Matching) -> None:
        self._state = state
        self._matching = matching
        self._flags = [block.whole for block in state.blocks]

    def after(self, takes: Sequence[Flags], shared: Callable[[Provider], bool] | None) -> Sequence[Flags]:
        """Return which of these trees also meet another rule.

        :param takes: for each block, which of its providers meet the rule.
        :param shared: whether a sharing provider meets the rule; None if sharing providers do not count.
        """
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
        """Reduce the trees to those that ``after`` returned."""
        self._flags = list(flags)


def _stages(state: State, matching: Matching) -> Iterator[Stage]:
    """Apply one rule after the other and count what each leaves."""
    left = _RemainingTrees(state, matching)
    for part, suffixes in matching.suffixes.items():
        for rule in _rules(part):
            takes = [matching.takers(block, rule.part) for block in state.blocks]
            flags = left.after(takes, functools.partial(_takes, rule.part))
            refused = _refused(state, *rule.resource) if rule.resource else {}
            serving = '' if part.numbered or rule.resource else part.resources[0][0]
            yield Stage(suffixes, rule.rule, rule.subject, _count(takes), _count(flags), refused, serving)
        left.keep(flags)
    for name in matching.collective:
        takes = [block.traits.where(functools.partial(holds, name)) for block in state.blocks]
        flags = left.after(takes, functools.partial(_has, name))
        yield Stage(('',), 'required', name, _count(takes), _count(flags))
        left.keep(flags)
    own = [part for part in matching.parts if not any(_takes(part, one) for one in matching.sharing.providers)]
    if len(own) > 1 and not matching.nested_aware:
        takes = [np.logical_and.reduce([matching.takers(block, part) for part in own]) for block in state.blocks]
        subject = 'for all of this (below 1.29)'
        yield Stage((), 'same provider', subject, _count(takes), _count(left.after(takes, None)))


def _takes(part: Part, provider: Provider) -> bool:
    return part.rejection(provider, None) is None


def _has(name: str, provider: Provider) -> bool:
    return name in provider.traits


def _count(flags: Iterable[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


def _refused(state: State, name: str, amount: int) -> dict[Reason, int]:
    """Count the inventories of a class that have no room for an amount, by the first reason that applies to each."""
    counted: Counter[Reason] = Counter()
    for _block, stock in state.stocks(name):
        counted.update(stock.refusals(amount))
    return dict(counted)
