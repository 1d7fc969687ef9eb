"""The explanation of a search for candidates: one sentence, and the data behind it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from placement import units
from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.request import CandidateRequest
from placement.candidates.search import search
from placement.candidates.search_units import Family
from placement.candidates.selection import select
from placement.reports.blockers import Blocker, NearMiss, display_name, find_blocker
from placement.reports.combination_failures import CombinationFailure, combination_failures
from placement.reports.funnel import Stage, stages
from placement.reports.rules import Kind, Rule, rules, without, without_all

#: Maximum numbers of rules of a request that are left out one at a time, and that are left out all at once.
_MAX_RULES, _MAX_BLOCKING_RULES = 50, 20
#: Maximum number of candidates that all searches without a rule count in total.
_MAX_CANDIDATES = 5000
#: Maximum numbers of trees that are named for each rule, and of candidates that are shown.
_MAX_NAMED, _MAX_SHOWN = 3, 10

_LIMIT_REACHED = (
    'The search reached a limit before it found a candidate, so candidates may exist. In the part that was searched: '
)


@dataclass(frozen=True)
class Options:
    """The limits of an explanation.

    ``limits`` is for the search itself. All searches without a rule may spend as many steps again in total, and each of
    them a tenth of that. Each counts at most ``max_candidates``, and fewer when there are many rules.
    """

    limits: SearchLimits = field(default_factory=SearchLimits)
    max_candidates: int = 1000


@dataclass(frozen=True)
class WhatIf:
    """The number of candidates that a search without one rule of the request finds.

    ``candidates`` is None when the request would be empty without the rule. With ``lower_bound`` there may be more.
    """

    rule: Rule
    candidates: int | None
    lower_bound: bool = False

    def __str__(self) -> str:
        if self.candidates is None:
            return 'nothing else is requested'
        if self.lower_bound and not self.candidates:
            return 'unknown: the search reached a limit'
        return f'{"at least " if self.lower_bound else ""}{self.candidates:,}'

    def as_data(self) -> dict[str, Any]:
        """Return the search without the rule in JSON types."""
        return {**self.rule.as_data(), 'candidates': self.candidates, 'lower_bound': self.lower_bound}


@dataclass(frozen=True)
class Supply:
    """One provider of a candidate, with the amounts that it supplies. ``root`` is the uuid of the root of its tree."""

    name: str
    uuid: str
    root: str
    resources: dict[str, int]

    @property
    def amounts(self) -> list[str]:
        """The resources with their units."""
        return [f'{name} {units.amount(name, amount)}' for name, amount in self.resources.items()]

    def __str__(self) -> str:
        return f'{self.name} {",".join(f"{name}:{amount}" for name, amount in self.resources.items())}'


@dataclass(frozen=True)
class Explanation:
    """The explanation of one request.

    ``sentence`` is a summary. ``candidates`` is the number of candidates that the search finds, up to the ``limit`` of
    the request and the ``limits_reached``, and ``first_candidates`` has the providers of the first ones. ``stages``
    count what remains after each rule, applied one after the other. ``what_ifs`` are the searches without one rule, in
    the order of the request; ``rules_not_tried`` counts the others.

    The rest is for requests that find nothing. Without the rules in ``blocking_rules`` there would be candidates; that
    is a single rule if there is one. ``blockers`` explain these rules, and ``combination_failures`` why groups that can
    be placed alone cannot be placed together. ``near_misses`` names providers and trees that would give a candidate
    without one rule, or without those in ``blocking_rules``, or with a little more capacity.
    """

    sentence: str
    candidates: int
    limit: int | None
    limits_reached: frozenset[Limit]
    stages: Sequence[Stage]
    what_ifs: Sequence[WhatIf] = ()
    rules_not_tried: int = 0
    first_candidates: Sequence[Sequence[Supply]] = ()
    blocking_rules: Sequence[Rule] = ()
    blockers: Sequence[Blocker] = ()
    combination_failures: Sequence[CombinationFailure] = ()
    near_misses: Sequence[NearMiss] = ()

    def as_data(self) -> dict[str, Any]:
        """Return the explanation in JSON types."""
        return {
            'sentence': self.sentence,
            'candidates': self.candidates,
            'first_candidates': [[asdict(supply) for supply in one] for one in self.first_candidates],
            'limit': self.limit,
            'limits_reached': [limit.value for limit in Limit if limit in self.limits_reached],
            'stages': [stage.as_data() for stage in self.stages],
            'what_if': [one.as_data() for one in self.what_ifs],
            'rules_not_tried': self.rules_not_tried,
            'blocking_rules': [str(rule) for rule in self.blocking_rules],
            'blockers': [one.as_data() for one in self.blockers],
            'conflicting_groups': [one.as_data() for one in self.combination_failures],
            'near_misses': [asdict(one) for one in self.near_misses],
        }


def explain(state: Snapshot, request: CandidateRequest, options: Options) -> Explanation:
    """Make the search of a request and explain its result.

    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    state.names.check([name for group in request.groups for name in group.resources], request.traits)
    limits = replace(options.limits, reached=set())
    prefilter = Prefilter(state, request)
    families = select(search(prefilter.search_units(), prefilter.compiled, limits), request, limits)
    found = list(itertools.chain.from_iterable(families))
    all_rules = list(rules(prefilter.compiled))
    trials = _Trials(state, options, min(len(all_rules), _MAX_RULES))
    without_one = [(rule, *trials.search(without(request, rule))) for rule in all_rules[:_MAX_RULES]]
    result = Explanation(
        sentence=_summary(len(found), request, limits.reached),
        candidates=len(found),
        limit=request.limit,
        limits_reached=frozenset(limits.reached),
        stages=stages(state, Prefilter(state, request, with_keys=False)),
        what_ifs=[WhatIf(rule, None if some is None else len(some), bounded) for rule, some, bounded in without_one],
        rules_not_tried=len(all_rules) - len(without_one),
        first_candidates=[_supplies(one) for one in found[:_MAX_SHOWN]],
    )
    if found:
        return result
    if not state.partitions:
        return replace(result, sentence='No resource providers are stored.')
    result = _explain_empty(request, trials, result, [(rule, some) for rule, some, _ in without_one if some])
    return replace(result, sentence=_LIMIT_REACHED + result.sentence) if limits.reached else result


def _summary(found: int, request: CandidateRequest, limits_reached: set[Limit]) -> str:
    count = f'There {"is 1 candidate" if found == 1 else f"are {found:,} candidates"}'
    if limits_reached:
        return f'{count}, and there may be more: the search reached a limit.'
    return f'{count}, as many as the limit allows.' if found == request.limit else f'{count}.'


def _supplies(candidate: Family) -> list[Supply]:
    found: dict[int, Supply] = {}
    for position, name, amount in candidate.assignment.amounts:
        provider = candidate.search_unit.provider(position)
        root = provider.root_provider_uuid or provider.uuid
        supply = found.setdefault(provider.id, Supply(display_name(provider), provider.uuid, root, {}))
        supply.resources[name] = amount
    return list(found.values())


class _Trials:
    """Searches for candidates of changed requests, which share the steps of one search.

    :param count: how many searches without one rule are made.
    """

    def __init__(self, state: Snapshot, options: Options, count: int) -> None:
        self.state = state
        self._total = options.limits
        self._max_candidates = min(options.max_candidates, max(_MAX_CANDIDATES // max(count, 1), 1))
        self._used: list[SearchLimits] = []

    def limits(self) -> SearchLimits:
        """Return the limits of the next search."""
        left = self._total.max_steps - sum(one.steps_taken for one in self._used)
        steps = max(min(left, self._total.max_steps // 10), 0)
        self._used.append(SearchLimits(self._max_candidates, steps, self._total.max_tree_steps // 10))
        return self._used[-1]

    def search(self, request: CandidateRequest | None) -> tuple[list[Family] | None, bool]:
        """Return the first candidates, whatever the request's limit, and whether there may be more.

        Without a request the candidates are None.
        """
        if request is None:
            return None, False
        limits = self.limits()
        prefilter = Prefilter(self.state, request)
        families = search(prefilter.search_units(), prefilter.compiled, limits)
        found = list(itertools.chain.from_iterable(families))
        return found, bool(limits.reached)


# If nothing is found ---------------------------------------------------------------------------------------------

#: A rule, and the candidates that a search without it finds.
_Trial = tuple[Rule, Sequence[Family]]

#: The rules that are blocking first when each part of the request can be served alone, in this order.
_BETWEEN_GROUPS = {Kind.GROUP_POLICY: 0, Kind.SAME_SUBTREE: 1, Kind.MICROVERSION: 2, Kind.GROUP: 3}


def _explain_empty(
    request: CandidateRequest, trials: _Trials, result: Explanation, helping: list[_Trial]
) -> Explanation:
    """Complete the explanation of a request that finds nothing.

    :param helping: the rules without which there are candidates.
    """
    satisfiable = result.stages[-1].trees > 0 and result.rules_not_tried == 0
    # First the rule after which ``stages`` have no tree left, then those without which most candidates are found.
    emptying = _emptying_rule(result.stages)
    helping.sort(key=lambda one: (one[0] != emptying, one[0].condition is None, -len(one[1])))
    if satisfiable:
        helping.sort(key=lambda one: _BETWEEN_GROUPS.get(one[0].kind, len(_BETWEEN_GROUPS)))
        result = replace(result, combination_failures=combination_failures(trials.state, request, trials.limits()))
    if helping:
        blocking = [helping[0][0]]
        explained = [(rule, request) for rule, _ in helping[: 1 if satisfiable else _MAX_NAMED]]
        # Trees that lack a class or an amount are not named, unless the blocker names them.
        near_misses = [
            near
            for rule, found in helping[:_MAX_NAMED]
            if rule.kind is not Kind.RESOURCES and (rule in blocking or rule.condition)
            for near in _trees(found, [rule])
        ]
    else:
        blocking, found = _blocking_together(request, trials)
        explained = [
            (rule, without_all(request, [one for one in blocking if one != rule]) or request) for rule in blocking
        ]
        near_misses = _trees(found, blocking)
    blockers = [find_blocker(trials.state, base, rule, trials.limits()) for rule, base in explained if rule.condition]
    if len(blocking) == 1:
        near_misses = [near for one in blockers for near in one.near_misses] + near_misses
    result = replace(result, blocking_rules=blocking, blockers=blockers, near_misses=near_misses)
    return replace(result, sentence=_sentence(result, satisfiable))


def _emptying_rule(counted: Iterable[Stage]) -> Rule | None:
    """Return the rule after which no tree is left; None when some trees are left."""
    return next((stage.rule for stage in counted if not stage.trees), None)


def _trees(found: Sequence[Family], rules_left_out: Sequence[Rule]) -> list[NearMiss]:
    """Return the first trees that have candidates without some rules."""
    roots = (
        one.search_unit.tree[0]
        for one in found
        # Its own providers may serve only groups without resources, while sharing providers supply all amounts.
        if any(position < one.search_unit.tree_size for position, _, _ in one.assignment.amounts)
    )
    missing = f'would be a candidate without {_joined(rules_left_out)}'
    named = {
        root.uuid: NearMiss(display_name(root), root.uuid, missing) for root in itertools.islice(roots, 20 * _MAX_NAMED)
    }
    return list(named.values())[:_MAX_NAMED]


def _joined(some: Sequence[Rule]) -> str:
    if len(some) > 1 and all(rule.kind is Kind.GROUP for rule in some):
        return f'{len(some)} of the groups'
    return ' and without '.join(map(str, some))


def _sentence(result: Explanation, satisfiable: bool) -> str:
    """Return the sentence about a request that finds nothing.

    :param satisfiable: whether each part of the request can be satisfied.
    """
    blocking = result.blocking_rules
    causes = {one.rule: one.cause for one in result.blockers}
    if not blocking:
        return 'No candidate was found, and the limits of the search were reached before the blocking rule was.'
    if len(blocking) > 1 and causes:
        some = '; and '.join(causes.get(rule, str(rule)) for rule in blocking[:_MAX_NAMED])
        more = '; and others' if len(blocking) > _MAX_NAMED else ''
        return f'{len(blocking)} rules block the request together: {some}{more}.'
    if satisfiable or len(blocking) > 1:
        together = _not_together(result.combination_failures)
        return f'{together}; there would be candidates without {_joined(blocking)}.'
    [rule] = blocking
    if rule in causes:
        return f'{causes[rule][0].upper()}{causes[rule][1:]}.'
    if rule.kind is Kind.MICROVERSION:
        return 'The resources would come from several providers of one tree, which needs microversion 1.29 or later.'
    if rule.kind is Kind.SAME_SUBTREE:
        return (
            f'No tree has a provider for one of the groups {rule.subject} at or above providers for the others;'
            f' there would be candidates without {rule}.'
        )
    return f'No tree has or can use a provider that satisfies {rule}; the other rules can be satisfied.'


def _not_together(failures: Sequence[CombinationFailure]) -> str:
    sentence = 'Each part of the request can be satisfied, but not all parts together'
    if not failures:
        return sentence
    first, example = failures[0], failures[0].examples[0]
    more = f' (and {first.trees - 1} more)' if first.trees > 1 else ''
    return f'{sentence}: in the tree of {example.name}{more} {example.detail}'


def _blocking_together(request: CandidateRequest, trials: _Trials) -> tuple[list[Rule], Sequence[Family]]:
    """Leave out one rule after the other until something is found, then put back those that make no difference.

    :returns: the rules left out, and the candidates found without them; no rules when nothing was found.
    """
    blocking: list[Rule] = []
    rest = request
    for _ in range(_MAX_BLOCKING_RULES):
        prefilter = Prefilter(trials.state, rest, with_keys=False)
        some = list(itertools.islice(rules(prefilter.compiled), _MAX_RULES))
        emptying = _emptying_rule(stages(trials.state, prefilter))
        between_groups = (one for one in reversed(some) if one.condition is None)
        blocking.append(emptying if emptying in some else next(between_groups, some[0]))
        left = without(rest, blocking[-1])
        if left is None:
            return blocking, []
        rest = left
        found, _ = trials.search(rest)
        if found:
            return _minimal(request, trials, blocking, found)
    return [], []


def _minimal(
    request: CandidateRequest, trials: _Trials, blocking: Sequence[Rule], found: Sequence[Family]
) -> tuple[list[Rule], Sequence[Family]]:
    """Put a rule back into the request if something is still found with it; return the others."""
    kept = list(blocking)
    while True:
        before = len(kept)
        for rule in list(kept):
            fewer = [one for one in kept if one != rule]
            again, _ = trials.search(without_all(request, fewer)) if fewer else (None, False)
            if again:
                kept, found = fewer, again
        # Without a group a same_subtree may be harder to satisfy, so a rule may be put back only after another.
        if len(kept) == before:
            return kept, found
