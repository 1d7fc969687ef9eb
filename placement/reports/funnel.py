"""Counts how many providers and trees each rule of a request for candidates leaves."""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from placement.cache.inventory_columns import Flags
from placement.cache.partition import Partition, combine_by_tree
from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.providers import Provider
from placement.candidates.request import CandidateRequest
from placement.candidates.requirements import Condition, Requirement, ResourceCondition
from placement.reports.combination_failures import combination_failures
from placement.reports.rules import Kind, Rule, divide, rule_of, subtree_rules
from placement.reports.shortfalls import KINDS, violations

#: Maximum number of rules that are counted; a query may have thousands.
_MAX_RULES = 50

#: Maximum number of characters of a rule in a log line; a list of aggregates may have thousands.
_MAX_RULE_LENGTH = 200


@dataclass(frozen=True)
class Stage:
    """The providers and trees that remain after one rule, which is applied after all rules before it.

    In the unsuffixed group each class may come from another provider; ``serving`` is the class that the providers of
    this stage are for, if ``rule`` does not name it, or ``the root`` if the aggregates of roots count.
    ``providers`` counts the providers that pass the rules of this group so far (for ``same_subtree`` those that could
    be the topmost, otherwise the roots for a rule of no group), ``trees`` the trees that can satisfy all rules so far,
    with their own or with sharing providers. For ``resources``, ``rejected`` counts the inventories of the class that
    cannot allocate the amount, by the ``shortfalls.KINDS``.
    """

    rule: Rule
    providers: int
    trees: int
    rejected: Mapping[str, int] = field(default_factory=dict)
    serving: str = ''

    @property
    def rejections(self) -> list[str]:
        """The counts of ``rejected`` in words, such as ``430 full``; the largest first."""
        counts = sorted(self.rejected.items(), key=lambda one: -one[1])
        return [f'{count:,} {KINDS[kind]}' for kind, count in counts]

    def __str__(self) -> str:
        """Return the stage as a part of a log line."""
        rule = str(self.rule)
        rule = rule if len(rule) <= _MAX_RULE_LENGTH else f'{rule[:_MAX_RULE_LENGTH]}...'
        serving = f' (for {self.serving})' if self.serving else ''
        counts = [f'{self.trees} trees', f'{self.providers} providers', *self.rejections]
        return f'{rule}{serving}: {", ".join(counts)}'

    def as_data(self) -> dict[str, Any]:
        """Return the stage in JSON types, with those of its rule."""
        counts = {'providers': self.providers, 'trees': self.trees, 'rejected': dict(self.rejected)}
        return {**self.rule.as_data(), 'serving': self.serving, **counts}


def explain_empty(
    state: Snapshot, request: CandidateRequest, limits: SearchLimits, limits_reached: Collection[Limit]
) -> str:
    """Explain in one line, for the log, why a search found nothing.

    That takes much less time than ``explanation.explain``, as no search with a changed request is made.

    :param request: all its classes and traits exist.
    :param limits: the limits for searching trees again.
    :param limits_reached: the limits at which the search stopped.
    """
    counted = stages(state, Prefilter(state, request, with_keys=False))
    parts = list(map(str, counted))
    if counted and counted[-1].trees:
        for failure in combination_failures(state, request, limits):
            example = failure.examples[0]
            parts.append(f'conflicting groups in {failure.trees} trees, such as {example.name}: {example.detail}')
    parts += [f'limit reached: {limit.value}' for limit in Limit if limit in limits_reached]
    return '; '.join(parts)


def stages(state: Snapshot, prefilter: Prefilter) -> list[Stage]:
    """Apply the first ``_MAX_RULES`` rules of a request one after the other, and count what each leaves."""
    return list(itertools.islice(_stages(state, prefilter), _MAX_RULES))


def _stages(state: Snapshot, prefilter: Prefilter) -> Iterator[Stage]:
    funnel = _Funnel(state, prefilter)
    compiled = prefilter.compiled
    for rule, up_to in divide(compiled.root, ()):
        matched = [up_to.matches(one) & _roots(one) for one in state.partitions]
        # Sharing providers may be used at other anchors, so their own trees do not count here.
        yield funnel.apply(rule, matched, serving='the root' if rule.suffixes else '')
    for requirement, suffixes in compiled.suffixes.items():
        for rule, up_to in divide(requirement, suffixes):
            matched = [up_to.matches(one) for one in state.partitions]
            details: dict[str, Any] = {}
            if isinstance(rule.condition, ResourceCondition):
                details['rejected'] = _count_rejected(state, rule.condition)
            elif not requirement.use_same_provider:
                details['serving'] = requirement.resources[0][0]
            yield funnel.apply(rule, matched, functools.partial(_any_accepted, up_to), **details)
    for condition in compiled.collective:
        matched = [condition.matches(one) for one in state.partitions]
        yield funnel.apply(rule_of(condition, ('',)), matched, functools.partial(_any_accepted, condition))
    requirement_of = {suffix: one for one, suffixes in compiled.suffixes.items() for suffix in suffixes}
    for rule in subtree_rules(compiled.request):
        named = [requirement_of[suffix] for suffix in rule.subject.split(',') if suffix in requirement_of]
        requirements = list(dict.fromkeys(named))
        matched = [_topmost(one, [each.matches(one) for each in requirements]) for one in state.partitions]
        yield funnel.apply(rule, matched, functools.partial(_any_topmost, requirements))
    own = [one for one in prefilter.requirements if not _any_accepted(one, prefilter.sharing.providers)]
    if len(own) > 1 and not compiled.request.nested_aware:
        matched = [np.logical_and.reduce([each.matches(one) for each in own]) for one in state.partitions]
        yield funnel.apply(Rule(Kind.MICROVERSION), matched)


class _Funnel:
    """Keeps the trees that can satisfy all rules so far, with their own or with sharing providers."""

    def __init__(self, state: Snapshot, prefilter: Prefilter) -> None:
        self._partitions = state.partitions
        self._sharing = prefilter.sharing
        self._trees = [one.has_root for one in state.partitions]

    def apply(
        self,
        rule: Rule,
        matched: Sequence[Flags],
        accepts: Callable[[Sequence[Provider]], bool] | None = None,
        **details: Any,
    ) -> Stage:
        """Drop the trees that cannot satisfy ``rule``, and return the stage.

        :param matched: for each partition, which of its providers satisfy the rule.
        :param accepts: whether the sharing providers that reach a tree satisfy the rule; None if they do not count.
        :param details: further fields of the stage.
        """
        for number, (partition, own) in enumerate(zip(self._partitions, matched, strict=True)):
            satisfied = combine_by_tree(partition, own)
            if accepts is not None and self._sharing.aggregates:
                satisfied = satisfied | partition.tree_aggregates.where(
                    lambda aggregates: accepts(self._sharing.reaching(aggregates & self._sharing.aggregates))
                )
            self._trees[number] = self._trees[number] & satisfied
        return Stage(rule, _count(matched), _count(self._trees), **details)


def _any_accepted(condition: Condition, sharing: Sequence[Provider]) -> bool:
    return any(condition.rejection(provider, None) is None for provider in sharing)


def _roots(partition: Partition) -> Flags:
    """Return which providers are roots."""
    flags = np.zeros(len(partition.providers), np.bool_)
    flags[partition.starts[:-1][partition.has_root]] = True
    return flags


def _topmost(partition: Partition, matched: Sequence[Flags]) -> Flags:
    """Return which providers could be the topmost of a ``same_subtree``.

    They satisfy one of its requirements, and for each of the others a provider at or below them does.

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


def _any_topmost(requirements: Sequence[Requirement], sharing: Sequence[Provider]) -> bool:
    """Return whether one of the sharing providers that reach a tree could be the topmost, as in ``_topmost``."""
    accepted = [[one for one in sharing if each.rejection(one, None) is None] for each in requirements]
    return any(
        all(any(top.id in (one.id, *one.ancestors) for one in others) for others in accepted)
        for top in itertools.chain.from_iterable(accepted)
    )


def _count(flags: Sequence[Flags]) -> int:
    return sum(int(some.sum()) for some in flags)


def _count_rejected(state: Snapshot, condition: ResourceCondition) -> dict[str, int]:
    """Count the inventories of a class that cannot allocate an amount, by the first reason that applies to each."""
    counts: Counter[str] = Counter()
    for _partition, columns in state.inventory_columns(condition.resource_class):
        counts.update({kind: int(flags.sum()) for kind, flags in violations(columns, condition.amount).items()})
    return {kind: count for kind, count in counts.items() if count}
