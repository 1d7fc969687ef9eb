"""How many providers and trees each rule of a request for candidates leaves, by the conditions of the search itself."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.providers import Provider
from placement.candidates.request import CandidateRequest
from placement.candidates.requirements import (
    AggregateCondition,
    Condition,
    Reason,
    Requirement,
    ResourceCondition,
    TraitCondition,
)
from placement.reports.combination_failures import CombinationFailure, combination_failures
from placement.reports.rules import in_short, same_subtrees, trait_subject

#: Most rules that are counted; a query may have thousands.
MOST_RULES = 50

#: Most characters of a subject in a line of text; a list of aggregates may have thousands.
_MAX_SUBJECT = 200


@dataclass(frozen=True)
class Stage:
    """What one rule leaves when it is applied after all rules before it.

    ``suffixes`` are those of the request group and of all groups that ask for the same, none for a rule of no group.
    ``rule`` is the query parameter, or ``forbidden`` or ``same provider``; ``subject`` is what it asks for, such as
    ``VCPU:2``. In the unnumbered group each class may come from another provider; ``serving`` is the class that the
    providers of this stage are for, if ``subject`` does not name it, or ``the root`` if the aggregates of roots count.
    ``providers`` counts the providers that pass the rules of this group so far (for ``same_subtree`` those that could
    be the topmost, otherwise the roots for a rule of no group), ``trees`` the trees that can satisfy all rules so far,
    with their own or with sharing providers. For ``resources``, ``rejected`` counts the inventories of the class that
    have no room for the amount, by reason.
    """

    suffixes: tuple[str, ...]
    rule: str
    subject: str
    providers: int
    trees: int
    rejected: Mapping[Reason, int] = field(default_factory=dict)
    serving: str = ''

    def __str__(self) -> str:
        """The stage as a part of a log line."""
        rejected = ''.join(f', {n} {reason.name.lower()}' for reason, n in self.rejected.items())
        subject = self.subject if len(self.subject) <= _MAX_SUBJECT else f'{self.subject[:_MAX_SUBJECT]}...'
        serving = f' (for {self.serving})' if self.serving else ''
        rule = f'{self.rule}{in_short(self.suffixes)} {subject}{serving}'
        return f'{rule}: {self.trees} trees, {self.providers} providers{rejected}'

    def as_data(self) -> dict[str, Any]:
        """The stage in JSON types; ``groups`` are suffixes, of which that of the unnumbered group is empty."""
        return {
            'rule': self.rule,
            'groups': list(self.suffixes),
            'subject': self.subject,
            'serving': self.serving,
            'providers': self.providers,
            'trees': self.trees,
            'rejected': {reason.name.lower(): count for reason, count in self.rejected.items()},
        }


def explain_empty(state: Snapshot, request: CandidateRequest, limits: SearchLimits, bounds: Collection[Limit]) -> str:
    """Explain in one line, for the log, why a search found nothing.

    That takes much less time than ``explanation.explain``, as no search with a changed request is made.

    :param request: all its classes and traits exist.
    :param limits: the limits for searching trees again.
    :param bounds: the limits at which the search stopped.
    """
    counted = stages(state, Prefilter(state, request, with_keys=False))
    parts = list(map(str, counted))
    if counted and counted[-1].trees:
        parts += map(_combination_failure, combination_failures(state, request, limits))
    parts += [f'limit reached: {bound.value}' for bound in Limit if bound in bounds]
    return '; '.join(parts)


def _combination_failure(failure: CombinationFailure) -> str:
    example = failure.examples[0]
    return f'conflicting groups in {failure.trees} trees: {failure.reason.value} ({example.name}: {example.detail})'


def stages(state: Snapshot, matching: Prefilter) -> list[Stage]:
    """Apply the first ``MOST_RULES`` rules of a request one after the other, and count what each leaves."""
    return list(itertools.islice(_stages(state, matching), MOST_RULES))


@dataclass(frozen=True)
class _Rule:
    """One condition of a part. ``part`` has all up to this one; ``resource`` is set if it asks for an amount."""

    rule: str
    subject: str
    part: Requirement
    resource: tuple[str, int] | None = None


def _rules(part: Requirement, in_tree: str) -> Iterator[_Rule]:
    """Split a part into its conditions, in the order in which they are applied.

    :param in_tree: the uuid in the ``in_tree`` of its group, if any.
    """
    before: tuple[Condition, ...] = ()
    for condition in part.conditions:
        for name, subject, up_to in _named(condition, in_tree):
            resource = (
                (condition.resource_class, condition.amount) if isinstance(condition, ResourceCondition) else None
            )
            yield _Rule(name, subject, replace(part, conditions=(*before, up_to)), resource)
        before = (*before, condition)
    if not part.conditions:
        yield _Rule('same_subtree', 'any provider', part)


def _named(condition: Condition, in_tree: str) -> Iterator[tuple[str, str, Condition]]:
    """Yield the parameter and the subject of each rule in a condition, and the condition up to it."""
    if isinstance(condition, ResourceCondition):
        yield 'resources', f'{condition.resource_class}:{condition.amount}', condition
    elif isinstance(condition, TraitCondition):
        yield 'forbidden' if condition.forbidden else 'required', trait_subject(condition.traits), condition
    elif isinstance(condition, AggregateCondition):
        for number, aggregates in enumerate(condition.sets, start=1):
            subject = f'{"!" if condition.forbidden else ""}{",".join(sorted(aggregates))}'
            yield 'member_of', subject, replace(condition, sets=condition.sets[:number])
    else:
        yield 'in_tree', in_tree, condition


class _RemainingTrees:
    """The trees that can satisfy all rules so far, with their own or with sharing providers."""

    def __init__(self, state: Snapshot, matching: Prefilter) -> None:
        self._state = state
        self._matching = matching
        self._flags = [block.has_root for block in state.partitions]

    def after(self, takes: Sequence[Flags], shared: Callable[[Sequence[Provider]], bool] | None) -> Sequence[Flags]:
        """Return which of these trees also meet another rule.

        :param takes: for each block, which of its providers meet the rule.
        :param shared: whether the sharing providers that reach a tree meet the rule; None if they do not count.
        """
        return [
            left & (combine_by_tree(block, own) | self._reached(block, shared))
            for block, left, own in zip(self._state.partitions, self._flags, takes, strict=True)
        ]

    def _reached(self, block: Partition, shared: Callable[[Sequence[Provider]], bool] | None) -> Flags:
        carrying = self._matching.sharing.aggregates
        if shared is None or not carrying:
            return np.zeros(len(block.has_root), np.bool_)
        reaching = self._matching.sharing.reaching
        return block.tree_aggregates.where(lambda names: shared(reaching(names & carrying)))

    def keep(self, flags: Sequence[Flags]) -> None:
        """Reduce the trees to those that ``after`` returned."""
        self._flags = list(flags)


def _stages(state: Snapshot, matching: Prefilter) -> Iterator[Stage]:
    """Apply one rule after the other and count what each leaves."""
    left = _RemainingTrees(state, matching)
    in_tree = {group.suffix: group.in_tree or '' for group in matching.compiled.request.groups}
    yield from _root_stages(state, matching, left)
    for part, suffixes in matching.compiled.suffixes.items():
        for rule in _rules(part, in_tree[part.group]):
            takes = [rule.part.matches(block) for block in state.partitions]
            flags = left.after(takes, functools.partial(_any_takes, rule.part))
            rejected = _rejected(state, *rule.resource) if rule.resource else {}
            serving = '' if part.use_same_provider or rule.resource else part.resources[0][0]
            yield Stage(suffixes, rule.rule, rule.subject, _count(takes), _count(flags), rejected, serving)
        left.keep(flags)
    for condition in matching.compiled.collective:
        takes = [condition.matches(block) for block in state.partitions]
        flags = left.after(takes, functools.partial(_any_takes, condition))
        yield Stage(('',), 'required', trait_subject(condition.traits), _count(takes), _count(flags))
        left.keep(flags)
    yield from _subtree_stages(state, matching, left)
    own = [part for part in matching.requirements if not _any_takes(part, matching.sharing.providers)]
    if len(own) > 1 and not matching.compiled.request.nested_aware:
        takes = [np.logical_and.reduce([part.matches(block) for part in own]) for block in state.partitions]
        subject = 'for all of this (below 1.29)'
        yield Stage((), 'same provider', subject, _count(takes), _count(left.after(takes, None)))


def _any_takes(part: Condition, sharing: Sequence[Provider]) -> bool:
    return any(part.rejection(provider, None) is None for provider in sharing)


def _root_stages(state: Snapshot, matching: Prefilter, left: _RemainingTrees) -> Iterator[Stage]:
    """Count the trees whose root is accepted, for each rule about roots."""
    accepted = [block.has_root for block in state.partitions]
    for condition in matching.compiled.root.conditions:
        for _, subject, _ in _named(condition, ''):
            if isinstance(condition, TraitCondition):
                rule = Stage((), 'root_required', f'{"!" if condition.forbidden else ""}{subject}', 0, 0)
            else:
                rule = Stage(('',), 'member_of', subject, 0, 0, serving='the root')
        for number, block in enumerate(state.partitions):
            accepted[number] = accepted[number] & condition.matches(block)[block.starts[:-1]]
        # Sharing providers may be used at other anchors, so their own trees do not count here.
        takes = [flags[block.tree_numbers] for block, flags in zip(state.partitions, accepted, strict=True)]
        flags = left.after(takes, None)
        yield replace(rule, providers=_count(accepted), trees=_count(flags))
        left.keep(flags)


def _subtree_stages(state: Snapshot, matching: Prefilter, left: _RemainingTrees) -> Iterator[Stage]:
    """Count the providers that could be the topmost of each ``same_subtree``, and the trees that have one."""
    part_of = {suffix: part for part, suffixes in matching.compiled.suffixes.items() for suffix in suffixes}
    for suffixes in same_subtrees(matching.compiled.request):
        parts = list(dict.fromkeys(part_of[suffix] for suffix in sorted(suffixes) if suffix in part_of))
        tops = [_tops(block, [part.matches(block) for part in parts]) for block in state.partitions]
        flags = left.after(tops, functools.partial(_have_top, parts))
        yield Stage((), 'same_subtree', ','.join(sorted(suffixes)), _count(tops), _count(flags))
        left.keep(flags)


def _tops(block: Partition, takers: Sequence[Flags]) -> Flags:
    """Return which providers take one of some parts and have a provider for each of the others at or below them."""
    inside = np.flatnonzero(block.parents >= 0)
    parents = block.parents[inside] + block.starts[:-1][block.tree_numbers[inside]]
    tops: Flags = np.logical_or.reduce(takers)
    for takes in takers:
        at_or_below, count = takes.copy(), -1
        while count != (count := int(at_or_below.sum())):
            at_or_below[parents[at_or_below[inside]]] = True
        tops = tops & at_or_below
    return tops


def _have_top(parts: Sequence[Requirement], sharing: Sequence[Provider]) -> bool:
    """As ``_tops``, for the sharing providers that reach a tree: whether one of them could be the topmost."""
    takers = [[one for one in sharing if part.rejection(one, None) is None] for part in parts]
    return any(
        all(any(top.id in (one.id, *one.ancestors) for one in others) for others in takers)
        for top in itertools.chain.from_iterable(takers)
    )


def _count(flags: Iterable[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


def _rejected(state: Snapshot, name: str, amount: int) -> dict[Reason, int]:
    """Count the inventories of a class that have no room for an amount, by the first reason that applies to each."""
    counted: Counter[Reason] = Counter()
    for _block, stock in state.inventory_columns(name):
        counted.update(stock.count_violations(amount))
    return dict(counted)
