"""What each rule of a request for candidates leaves over, found with the conditions that the search itself uses."""

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
from placement.reports.rules import in_short
from placement.reports.together import Together, together

#: How many rules to account for; a query may have thousands.
MOST_RULES = 50

#: Characters of a subject in a line of text; a list of aggregates may have thousands.
_MAX_SUBJECT = 200


@dataclass(frozen=True)
class Stage:
    """What one rule left, applied after all those before it.

    ``suffixes`` are those of the request group and of all that ask for the same, ``rule`` is one of ``resources``,
    ``required``, ``forbidden``, ``member_of`` and ``same provider``, ``subject`` what it is about (such as ``VCPU:2``).
    ``serving`` names the class for which the unnumbered group's provider is sought, when the subject does not.
    ``providers`` counts those that pass the rules of this group so far, ``trees`` those that can still satisfy
    everything so far, by themselves or through sharing providers. ``refused`` says for ``resources`` how many providers
    have the inventory and why it does not do.
    """

    suffixes: tuple[str, ...]
    rule: str
    subject: str
    providers: int
    trees: int
    refused: Mapping[Reason, int] = field(default_factory=dict)
    serving: str = ''

    def __str__(self) -> str:
        """The stage as a part of a line."""
        refused = ''.join(f', {n} {reason.name.lower()}' for reason, n in self.refused.items())
        subject = self.subject if len(self.subject) <= _MAX_SUBJECT else f'{self.subject[:_MAX_SUBJECT]}...'
        serving = f' (for {self.serving})' if self.serving else ''
        rule = f'{self.rule}{in_short(self.suffixes)} {subject}{serving}'
        return f'{rule}: {self.trees} trees, {self.providers} providers{refused}'

    def as_data(self) -> dict[str, Any]:
        """It in the types of JSON; ``groups`` are suffixes, empty for the unnumbered group."""
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
    """Tell in one line, for a log, what became of a request that found nothing.

    It costs much less than ``explanation.explain``, and tries nothing out.

    :param request: names classes and traits that exist.
    :param budget: what looking into trees may spend.
    :param bounds: those that the search met.
    """
    counted = stages(state, Matching(state, request, alike=False))
    parts = list(map(str, counted))
    if counted and counted[-1].trees:
        parts += map(_apart, together(state, request, budget))
    parts += [f'stopped at a bound: {bound.value}' for bound in Bound if bound in bounds]
    return '; '.join(parts)


def _apart(found: Together) -> str:
    example = found.examples[0]
    return f'not together in {found.trees} trees: {found.reason.value} ({example.name}: {example.detail})'


def stages(state: State, matching: Matching) -> list[Stage]:
    """Apply the first ``MOST_RULES`` rules of a request, one after the other, and count what each leaves."""
    return list(itertools.islice(_stages(state, matching), MOST_RULES))


@dataclass(frozen=True)
class _Rule:
    """One more condition of a part. ``part`` has all conditions up to this one; ``resource`` is set for an amount."""

    rule: str
    subject: str
    part: Part
    resource: tuple[str, int] | None = None


def _rules(part: Part) -> Iterator[_Rule]:
    """Take a part apart, in the order in which its conditions are accounted for."""
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
    """Count the inventories of a class that have no room for an amount, by the first rule that they break."""
    counted: Counter[Reason] = Counter()
    for _block, stock in state.stocks(name):
        counted.update(stock.refusals(amount))
    return dict(counted)
