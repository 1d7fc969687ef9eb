"""The explanation of a search for candidates: facts about its result and about the rules of the request."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from placement.cache.snapshot import Snapshot
from placement.ops.explain.blockers import Blocker, NearMiss, find_blocker
from placement.ops.explain.combination_failures import CombinationFailure, combination_failures
from placement.ops.explain.rules import Kind, Rule, rules, without
from placement.ops.explain.stages import Stage, count_flags, stages
from placement.search import find_candidates
from placement.search.assignments import find_candidate_sets
from placement.search.budget import Limit, SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest
from placement.search.search_units import CandidateSet

#: Maximum numbers of rules to leave out one at a time, and of rules to leave out together.
_MAX_RULES, _MAX_BLOCKING_RULES = 50, 20
#: Maximum numbers of candidates to count in one search without a rule, and in all of them together.
_MAX_CANDIDATES, _MAX_TOTAL_CANDIDATES = 1000, 5000
#: Maximum numbers of trees to name for each rule, and of candidates to show.
_MAX_NAMED, _MAX_SHOWN = 3, 10


@dataclass(frozen=True)
class WhatIf:
    """A search without the rules in ``left_out``, and the ``first_candidates`` that it finds.

    They are None when the request would be empty without these rules. With ``lower_bound`` there may be more.
    """

    left_out: Sequence[Rule]
    first_candidates: Sequence[CandidateSet] | None = None
    lower_bound: bool = False

    @property
    def candidates(self) -> int | None:
        """The number of the candidates."""
        return None if self.first_candidates is None else len(self.first_candidates)


@dataclass(frozen=True)
class Explanation:
    """The explanation of one request.

    ``trees`` counts the stored trees. ``candidates`` counts the candidates that the search finds before it stops at the
    ``limit`` of the request or at one of the ``limits_reached``; ``first_candidates`` shows the first of them.
    ``stages`` tell what remains after each rule. ``what_ifs`` are searches without one rule, in the order of the
    stages; ``rules_not_tried`` counts the rules that were not left out.

    The other fields are for requests that find nothing. Without all of ``blocking_rules`` there would be
    candidates; if leaving out one rule is enough, this is the only one. ``blockers`` explain such rules.
    ``combination_failures`` say why groups that can be placed alone cannot be placed together. ``near_misses`` names
    providers and trees that would be in a candidate without one rule, without all ``blocking_rules``, or with a little
    more capacity.
    """

    trees: int
    candidates: int
    limit: int | None
    limits_reached: frozenset[Limit]
    stages: Sequence[Stage]
    what_ifs: Sequence[WhatIf] = ()
    rules_not_tried: int = 0
    first_candidates: Sequence[CandidateSet] = ()
    blocking_rules: Sequence[Rule] = ()
    blockers: Sequence[Blocker] = ()
    combination_failures: Sequence[CombinationFailure] = ()
    near_misses: Sequence[NearMiss] = ()

    @property
    def satisfiable(self) -> bool:
        """Whether each part of the request can be satisfied alone; False if some rules were not tried."""
        return self.stages[-1].trees > 0 and self.rules_not_tried == 0


def explain(snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget) -> Explanation:
    """Search for the candidates of a request and explain the result.

    :param budget: the budget of this search. The searches without a rule may together take as many steps again, and
        each of them at most a tenth.
    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    # What the search finds.
    candidates = list(itertools.chain.from_iterable(find_candidates(snapshot, request, budget).candidate_sets))
    # What it would find without each rule.
    prefilter = Prefilter.for_request(snapshot, request)
    all_rules = list(rules(prefilter.compiled))
    trials = _Trials(snapshot, request, budget, min(len(all_rules), _MAX_RULES))
    what_ifs = [trials.search_without([rule]) for rule in all_rules[:_MAX_RULES]]
    # What remains after each rule (``stages``).
    result = Explanation(
        trees=count_flags(partition.has_root for partition in snapshot.partitions),
        candidates=len(candidates),
        limit=request.limit,
        limits_reached=frozenset(budget.reached),
        stages=stages(prefilter),
        what_ifs=what_ifs,
        rules_not_tried=len(all_rules) - len(what_ifs),
        first_candidates=candidates[:_MAX_SHOWN],
    )
    # If nothing is found: which rules block the request, and why.
    return result if candidates or not snapshot.partitions else _complete_empty(result, trials)


class _Trials:
    """Searches without some rules of a request. Together they may take the steps of one search.

    :param budget: the budget of the search with all rules.
    :param count: the number of searches without one rule.
    """

    def __init__(self, snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget, count: int) -> None:
        self.snapshot = snapshot
        self.request = request
        self._total = budget
        self._max_candidates = min(_MAX_CANDIDATES, _MAX_TOTAL_CANDIDATES // max(count, 1))
        self._used: list[SearchBudget] = []

    def next_budget(self) -> SearchBudget:
        """Return the budget of the next search: the remaining steps, but at most a tenth of all."""
        remaining = self._total.max_steps - sum(budget.steps_taken for budget in self._used)
        steps = max(min(remaining, self._total.max_steps // 10), 0)
        self._used.append(SearchBudget(self._max_candidates, steps, self._total.max_tree_steps // 10))
        return self._used[-1]

    def search_without(self, left_out: Sequence[Rule]) -> WhatIf:
        """Search for the first candidates without some rules, and without regard to the request's limit."""
        request = without(self.request, *left_out)
        if request is None:
            return WhatIf(left_out)
        budget, prefilter = self.next_budget(), Prefilter.for_request(self.snapshot, request)
        candidate_sets = find_candidate_sets(prefilter.search_units(), prefilter.compiled, budget)
        return WhatIf(left_out, list(itertools.chain.from_iterable(candidate_sets)), bool(budget.reached))


# If nothing is found ---------------------------------------------------------------------------------------------

#: If each part of the request can be served alone, the kinds of rules to name as blocking first, in this order.
_BETWEEN_GROUPS = (Kind.GROUP_POLICY, Kind.SAME_SUBTREE, Kind.MICROVERSION, Kind.GROUP)


def _complete_empty(result: Explanation, trials: _Trials) -> Explanation:
    """Complete the explanation of a request that finds nothing."""
    snapshot, request = trials.snapshot, trials.request
    if result.satisfiable:
        failures = combination_failures(snapshot, request, trials.next_budget())
        result = replace(result, combination_failures=failures)
    helping = [what_if for what_if in _most_helpful_first(result) if what_if.first_candidates][:_MAX_NAMED]
    what_ifs = helping or [_blocking_together(trials)]
    blocking = what_ifs[0].left_out
    blockers = []
    for what_if in what_ifs[:1] if result.satisfiable else what_ifs:
        for rule in what_if.left_out:
            if rule.condition:
                # As if the others that block the request together with this rule were left out.
                base = without(request, *(other for other in what_if.left_out if other != rule)) or request
                blockers.append(find_blocker(snapshot, base, rule, trials.next_budget()))
    # Trees that lack a class or an amount are not named, unless the blocker names them.
    naming = [
        what_if
        for what_if in helping
        if (rule := what_if.left_out[0]).kind is not Kind.RESOURCES and (rule.condition or rule in blocking)
    ]
    near_misses = [near for what_if in (naming if helping else what_ifs) for near in _trees(what_if)]
    if len(blocking) == 1:
        near_misses = [near for blocker in blockers for near in blocker.near_misses] + near_misses
    return replace(result, blocking_rules=blocking, blockers=blockers, near_misses=near_misses)


def _most_helpful_first(result: Explanation) -> list[WhatIf]:
    """Sort the searches without one rule by how well these rules explain why nothing is found.

    If each part of the request can be served alone, rules between groups come first, otherwise the rule after which no
    tree is left in the stages. Then come conditions on providers, then rules between groups. Among equal rules, the one
    without which most candidates are found is first.
    """
    ranks = {kind: rank for rank, kind in enumerate(_BETWEEN_GROUPS if result.satisfiable else ())}
    emptying = _emptying_rule(result.stages)

    def rank(what_if: WhatIf) -> tuple[int, bool, bool, int]:
        [rule] = what_if.left_out
        return ranks.get(rule.kind, len(ranks)), rule != emptying, rule.condition is None, -(what_if.candidates or 0)

    return sorted(result.what_ifs, key=rank)


def _emptying_rule(counted: Iterable[Stage]) -> Rule | None:
    """Return the rule after which no tree is left; None when some trees are left."""
    return next((stage.rule for stage in counted if not stage.trees), None)


def _trees(what_if: WhatIf) -> list[NearMiss]:
    """Return the first trees that have candidates without some rules."""
    roots = (
        candidate.search_unit.tree[0]
        for candidate in what_if.first_candidates or ()
        # A tree whose providers serve only groups without resources is not named: sharing providers supply all amounts.
        if any(position < candidate.search_unit.tree_size for position, _, _ in candidate.assignment.amounts)
    )
    named = {root.uuid: NearMiss(root, what_if.left_out) for root in itertools.islice(roots, 20 * _MAX_NAMED)}
    return list(named.values())[:_MAX_NAMED]


def _blocking_together(trials: _Trials) -> WhatIf:
    """Leave out one rule after another until something is found, then put back the rules that make no difference.

    :returns: the search without the rules that block the request; no rules when no search finds anything.
    """
    blocking: list[Rule] = []
    rest: CandidateRequest | None = trials.request
    while rest and len(blocking) < _MAX_BLOCKING_RULES:
        prefilter = Prefilter.for_request(trials.snapshot, rest)
        candidate_rules = list(itertools.islice(rules(prefilter.compiled), _MAX_RULES))
        emptying = _emptying_rule(stages(prefilter))
        between_groups = (rule for rule in reversed(candidate_rules) if rule.condition is None)
        blocking.append(emptying if emptying in candidate_rules else next(between_groups, candidate_rules[0]))
        rest = without(rest, blocking[-1])
        what_if = trials.search_without(blocking)
        if what_if.first_candidates:
            return _minimal(trials, what_if)
    return WhatIf(() if rest else blocking)


def _minimal(trials: _Trials, what_if: WhatIf) -> WhatIf:
    """Put back each rule with which something is still found. Return the search without the others."""
    minimal = what_if
    for rule in what_if.left_out:
        fewer = [other for other in minimal.left_out if other != rule]
        again = trials.search_without(fewer) if fewer else minimal
        minimal = again if again.first_candidates else minimal
    # A same_subtree may be harder to satisfy without one of its groups. So a rule may need others put back before it.
    return minimal if minimal is what_if else _minimal(trials, minimal)
