"""The explanation of a search for candidates: one sentence, and the data behind it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from placement.cache.prefilter import Prefilter, TreeSearchUnit
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.request import CandidateRequest
from placement.candidates.search import search
from placement.candidates.search_units import Candidate
from placement.candidates.selection import select
from placement.reports.blockers import Blocker, NearMiss, display_name, find_blocker
from placement.reports.combination_failures import CombinationFailure, combination_failures
from placement.reports.funnel import Stage, stages
from placement.reports.rules import Kind, Rule, rules, without

#: Most rules of a request that are left out one at a time, and most rules that are left out all at once.
_MOST_RULES, _MOST_TOGETHER = 50, 20
#: Most candidates that all searches without a rule count in total.
_MOST_CANDIDATES = 5000
#: Most trees that are named for each rule.
_NAMED = 3

_GIVEN_UP = (
    'The search reached a limit before it found a candidate, so candidates may exist. In the part that was searched: '
)


@dataclass(frozen=True)
class Options:
    """The limits of an explanation.

    ``limits`` is for the search itself. All searches without a rule may spend as many steps again in total, and each of
    them a tenth of that. Each counts at most ``most_candidates``, and fewer when there are many rules.
    """

    limits: SearchLimits = field(default_factory=SearchLimits)
    most_candidates: int = 1000


class _TrialBudgets:
    """Divides the steps for the searches without a rule among them."""

    def __init__(self, options: Options, trials: int) -> None:
        self._total = options.limits
        self._most = min(options.most_candidates, max(_MOST_CANDIDATES // max(trials, 1), 1))
        self._budgets: list[SearchLimits] = []

    def next(self) -> SearchLimits:
        """The limits of the next search."""
        left = self._total.max_steps - sum(one.steps_taken for one in self._budgets)
        limits = SearchLimits(
            self._most, max(min(left, self._total.max_steps // 10), 0), self._total.max_tree_steps // 10
        )
        self._budgets.append(limits)
        return limits


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
        return f'{"at least " if self.lower_bound else ""}{self.candidates}'

    def as_data(self) -> dict[str, Any]:
        """It in JSON types."""
        return {**self.rule.as_data(), 'candidates': self.candidates, 'lower_bound': self.lower_bound}


@dataclass(frozen=True)
class Explanation:
    """The explanation of one request.

    ``sentence`` is a summary. ``candidates`` is the number of candidates that the search finds, up to the ``limit`` of
    the request and the ``limits_reached``. ``stages`` count what remains after each rule, applied one after the other.
    ``what_ifs`` are the searches without one rule, in the order of the request; ``rules_not_tried`` counts the others.

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
    blocking_rules: Sequence[Rule] = ()
    blockers: Sequence[Blocker] = ()
    combination_failures: Sequence[CombinationFailure] = ()
    near_misses: Sequence[NearMiss] = ()

    def as_data(self) -> dict[str, Any]:
        """The explanation in JSON types."""
        return {
            'sentence': self.sentence,
            'candidates': self.candidates,
            'limit': self.limit,
            'limits_reached': [bound.value for bound in Limit if bound in self.limits_reached],
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
    found = len(select(search(prefilter.search_units(), prefilter.compiled, limits), request, limits))
    bounds = frozenset(limits.reached)
    counted = stages(state, Prefilter(state, request, with_keys=False))
    parts = list(rules(request))
    budgets = _TrialBudgets(options, min(len(parts), _MOST_RULES))
    trials = [_Trial(state, request, rule, budgets) for rule in parts[:_MOST_RULES]]
    what_ifs = [trial.what_if for trial in trials]
    draft = Explanation('', found, request.limit, bounds, counted, what_ifs, len(parts) - len(trials))
    if found:
        return replace(draft, sentence=_found(found, request, bounds))
    if not state.partitions:
        return replace(draft, sentence='No resource providers are stored.')
    result = _empty(state, request, budgets, draft, trials)
    return replace(result, sentence=_GIVEN_UP + result.sentence) if bounds else result


def _found(found: int, request: CandidateRequest, bounds: frozenset[Limit]) -> str:
    count = f'There {"is 1 candidate" if found == 1 else f"are {found} candidates"}'
    if bounds:
        return f'{count}, and there may be more: the search reached a limit.'
    return f'{count}, as many as the limit allows.' if found == request.limit else f'{count}.'


class _Trial:
    """A search without one rule."""

    def __init__(self, state: Snapshot, request: CandidateRequest, rule: Rule, budgets: _TrialBudgets) -> None:
        self.rule = rule
        rest = without(request, rule)
        self.found: list[Candidate] = []
        self.what_if = WhatIf(rule, None)
        if rest is not None:
            self.found, bounded = _candidates(state, rest, budgets)
            self.what_if = WhatIf(rule, len(self.found), bounded)

    def trees(self) -> list[NearMiss]:
        """The first trees that have candidates without the rule."""
        return _trees(self.found, f'would be a candidate without {self.rule}')


def _candidates(state: Snapshot, request: CandidateRequest, budgets: _TrialBudgets) -> tuple[list[Candidate], bool]:
    """Return the first candidates, whatever the request's limit, and whether there may be more."""
    limits = budgets.next()
    prefilter = Prefilter(state, request)
    found = list(search(prefilter.search_units(), prefilter.compiled, limits))
    return found, bool(limits.reached)


def _trees(found: Sequence[Candidate], missing: str) -> list[NearMiss]:
    roots = (
        one.search_unit.partition.providers[one.search_unit.first]
        for one in found
        if isinstance(one.search_unit, TreeSearchUnit)
        # Its own providers may serve only groups without resources, while sharing providers supply all amounts.
        and any(position < one.search_unit.tree_size for position, _, _ in one.assignment.amounts)
    )
    named = {
        root.uuid: NearMiss(display_name(root), root.uuid, missing) for root in itertools.islice(roots, 20 * _NAMED)
    }
    return list(named.values())[:_NAMED]


# When nothing is found ------------------------------------------------------------------------------------------

#: The rules that are blocking first when each part of the request can be served alone, in this order.
_BETWEEN_GROUPS = {Kind.GROUP_POLICY: 0, Kind.SAME_SUBTREE: 1, Kind.MICROVERSION: 2, Kind.GROUP: 3}


def _empty(
    state: Snapshot, request: CandidateRequest, budgets: _TrialBudgets, draft: Explanation, trials: Sequence[_Trial]
) -> Explanation:
    """Complete ``draft``, the explanation of a request that finds nothing."""
    emptying = _emptying_rule(draft.stages, [trial.rule for trial in trials])
    each_served = draft.stages[-1].trees > 0 and draft.rules_not_tried == 0
    helping = [trial for trial in trials if trial.found]
    # First the rule after which ``stages`` have no tree left, then those without which most candidates are found.
    helping.sort(key=lambda one: (one.rule != emptying, not one.rule.about_one_provider, -len(one.found)))
    if each_served:
        helping.sort(key=lambda one: _BETWEEN_GROUPS.get(one.rule.kind, len(_BETWEEN_GROUPS)))
        draft = replace(draft, combination_failures=combination_failures(state, request, budgets.next()))
    if not helping:
        return _several(state, request, budgets, draft)
    blocking = helping[0].rule
    single = [one.rule for one in helping[: 1 if each_served else _NAMED] if one.rule.about_one_provider]
    blockers = [find_blocker(state, request, rule, budgets.next()) for rule in single]
    near_misses = [one for each in blockers for one in each.near_misses]
    for trial in helping[:_NAMED]:
        # Trees that lack a class or an amount are not named, unless the blocker names them.
        if trial.rule.kind is not Kind.RESOURCES and (trial.rule == blocking or trial.rule.about_one_provider):
            near_misses += trial.trees()
    sentence = _sentence(draft, blocking, blockers, each_served)
    return replace(draft, sentence=sentence, blocking_rules=[blocking], blockers=blockers, near_misses=near_misses)


def _emptying_rule(counted: Sequence[Stage], parts: Sequence[Rule]) -> Rule | None:
    """The rule after which no tree is left; None when some trees are left or it is not one of ``parts``."""
    stage = next((one for one in counted if not one.trees), None)
    if stage is None:
        return None
    if stage.rule == 'same provider':
        return next((rule for rule in parts if rule.kind is Kind.MICROVERSION), None)
    wanted = (stage.rule, stage.suffixes[0] if stage.suffixes else '', stage.subject)
    return next((one for one in parts if _key(one) == wanted), None)


def _key(rule: Rule) -> tuple[str, str, str]:
    return rule.kind.value, rule.suffix, rule.subject


def _sentence(draft: Explanation, blocking: Rule, blockers: Sequence[Blocker], each_served: bool) -> str:
    if each_served:
        return f'{_not_together(draft.combination_failures)}; there would be candidates without {blocking}.'
    if blockers and blockers[0].rule == blocking:
        return _capitalized(f'{blockers[0].cause}.')
    if blocking.kind is Kind.MICROVERSION:
        return 'The resources would come from several providers of one tree, which needs microversion 1.29 or later.'
    if blocking.kind is Kind.SAME_SUBTREE:
        return (
            f'No tree has a provider for one of the groups {blocking.subject} at or above providers for the others;'
            f' there would be candidates without {blocking}.'
        )
    return f'No tree has or can use a provider that satisfies {blocking}; the other rules can be satisfied.'


def _not_together(failures: Sequence[CombinationFailure]) -> str:
    sentence = 'Each part of the request can be satisfied, but not all parts together'
    if not failures:
        return sentence
    first, example = failures[0], failures[0].examples[0]
    more = f' (and {first.trees - 1} more)' if first.trees > 1 else ''
    return f'{sentence}: in the tree of {example.name}{more} {example.detail}'


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


# When no single rule is to blame ----------------------------------------------------------------------------------


def _several(state: Snapshot, request: CandidateRequest, budgets: _TrialBudgets, draft: Explanation) -> Explanation:
    """Complete ``draft`` with several rules of which all must be left out before anything is found."""
    blocking, found = _blocking_together(state, request, budgets)
    blockers = [
        find_blocker(
            state, _without_all(request, [one for one in blocking if one != rule]) or request, rule, budgets.next()
        )
        for rule in blocking
        if rule.about_one_provider
    ]
    near_misses = [one for each in blockers for one in each.near_misses] if len(blocking) == 1 else []
    if len(blocking) > 1:
        near_misses = _trees(found, f'would be a candidate without {_all_of(blocking)}')
    if not blocking:
        sentence = 'No candidate was found, and the limits of the search were reached before the blocking rule was.'
    elif not blockers:
        sentence = (
            f'{_not_together(draft.combination_failures)}; there would be candidates without {_all_of(blocking)}.'
        )
    elif len(blocking) == 1:
        sentence = _capitalized(f'{blockers[0].cause}.')
    else:
        cause_of = {one.rule: one.cause for one in blockers}
        causes = '; and '.join(cause_of.get(rule, str(rule)) for rule in blocking[:_NAMED])
        more = '; and others' if len(blocking) > _NAMED else ''
        sentence = f'{len(blocking)} rules block the request together: {causes}{more}.'
    return replace(draft, sentence=sentence, blocking_rules=blocking, blockers=blockers, near_misses=near_misses)


def _all_of(blocking: Sequence[Rule]) -> str:
    if all(rule.kind is Kind.GROUP for rule in blocking):
        return f'{len(blocking)} of the groups'
    return ' and without '.join(map(str, blocking))


def _blocking_together(
    state: Snapshot, request: CandidateRequest, budgets: _TrialBudgets
) -> tuple[list[Rule], Sequence[Candidate]]:
    """Leave out one rule after the other until something is found, then put back those that make no difference.

    :returns: the rules left out, and the candidates found without them; no rules when nothing was found.
    """
    blocking: list[Rule] = []
    rest = request
    for _ in range(_MOST_TOGETHER):
        parts = list(itertools.islice(rules(rest), _MOST_RULES))
        counted = stages(state, Prefilter(state, rest, with_keys=False))
        rule = _emptying_rule(counted, parts) or next(
            (one for one in reversed(parts) if not one.about_one_provider), parts[0]
        )
        blocking.append(rule)
        left = without(rest, rule)
        if left is None:
            return blocking, []
        rest = left
        found, _bounded = _candidates(state, rest, budgets)
        if found:
            return _minimal(state, request, budgets, blocking, found)
    return [], []


def _minimal(
    state: Snapshot,
    request: CandidateRequest,
    budgets: _TrialBudgets,
    blocking: Sequence[Rule],
    found: Sequence[Candidate],
) -> tuple[list[Rule], Sequence[Candidate]]:
    """Put a rule back into the request if something is still found with it; return the others."""
    kept = list(blocking)
    while True:
        before = len(kept)
        for rule in list(kept):
            fewer = [one for one in kept if one != rule]
            rest = _without_all(request, fewer) if fewer else None
            again = _candidates(state, rest, budgets)[0] if rest else []
            if again:
                kept, found = fewer, again
        # Without a group a same_subtree may be harder to meet, so a rule may be put back only after another.
        if len(kept) == before:
            return kept, found


def _without_all(request: CandidateRequest, some: Sequence[Rule]) -> CandidateRequest | None:
    rest: CandidateRequest | None = request
    for rule in some:
        rest = without(rest, rule) if rest else None
    return rest
