"""Why a request for candidates finds what it finds: one sentence, and all that is behind it, as plain data."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from placement.candidates.budget import Bound, Budget
from placement.candidates.request import CandidateRequest
from placement.candidates.search import chosen, search
from placement.candidates.sites import Candidate
from placement.mirror.matching import Matching, TreeSite
from placement.mirror.state import State
from placement.reports.account import Stage, stages
from placement.reports.obstacles import Nearest, Obstacle, called, obstacle
from placement.reports.rules import Kind, Rule, rules, without
from placement.reports.together import Together, together

#: How many parts of a request to leave out one at a time, and how many to name that only help together.
_MOST_RULES, _MOST_TOGETHER = 50, 20
#: How many candidates all questions "what if" together count.
_MOST_CANDIDATES = 5000
#: How many trees to name for each rule.
_NAMED = 3

_GIVEN_UP = 'The search stopped at a bound before it found anything, so there may be candidates. As far as it came: '


@dataclass(frozen=True)
class Options:
    """The bounds of an explanation.

    ``budget`` is that of the search itself. All questions "what if" together may spend as many steps again, each of
    them a tenth. Each counts up to ``most_candidates``, or fewer when there are many questions.
    """

    budget: Budget = field(default_factory=Budget)
    most_candidates: int = 1000


class _Purse:
    """What the questions "what if" of one explanation may spend together."""

    def __init__(self, options: Options, questions: int) -> None:
        self._whole = options.budget
        self._most = min(options.most_candidates, max(_MOST_CANDIDATES // max(questions, 1), 1))
        self._given: list[Budget] = []

    def budget(self) -> Budget:
        """What the next question may spend."""
        left = self._whole.steps - sum(one.spent for one in self._given)
        given = Budget(self._most, max(min(left, self._whole.steps // 10), 0), self._whole.tree_steps // 10)
        self._given.append(given)
        return given


@dataclass(frozen=True)
class WhatIf:
    """What a search without one part of the request finds.

    ``candidates`` is None when nothing would be asked for any more. ``bounded`` says that there may be more.
    """

    rule: Rule
    candidates: int | None
    bounded: bool = False

    def __str__(self) -> str:
        if self.candidates is None:
            return 'nothing else is asked for'
        if self.bounded and not self.candidates:
            return 'not known: the search was given up'
        return f'{"at least " if self.bounded else ""}{self.candidates}'

    def as_data(self) -> dict[str, Any]:
        """It in the types of JSON."""
        return {**self.rule.as_data(), 'candidates': self.candidates, 'at_least': self.bounded}


@dataclass(frozen=True)
class Explanation:
    """The account of one request.

    ``sentence`` is for a person in a hurry. ``candidates`` is what the search finds, cut off at ``limit`` or by
    ``bounds``. ``stages`` say what each part leaves, applied one after the other. The rest is about requests that find
    nothing: ``blamed`` are the parts without which, together, something would be found; one alone if there is such a
    one. ``what_ifs`` are in the order of the request; ``left_out`` is how many further parts were not tried.
    ``obstacles`` say what parts to blame fail at, ``together`` why groups do not go together, and ``nearest`` who lacks
    one thing only, or what ``blamed`` names.
    """

    sentence: str
    candidates: int
    limit: int | None
    bounds: frozenset[Bound]
    stages: Sequence[Stage]
    what_ifs: Sequence[WhatIf] = ()
    left_out: int = 0
    blamed: Sequence[Rule] = ()
    obstacles: Sequence[Obstacle] = ()
    together: Sequence[Together] = ()
    nearest: Sequence[Nearest] = ()

    def as_data(self) -> dict[str, Any]:
        """All of it in the types of JSON."""
        return {
            'sentence': self.sentence,
            'candidates': self.candidates,
            'limit': self.limit,
            'stopped_at': [bound.value for bound in Bound if bound in self.bounds],
            'stages': [stage.as_data() for stage in self.stages],
            'what_if': [one.as_data() for one in self.what_ifs],
            'rules_not_tried': self.left_out,
            'blamed': [str(rule) for rule in self.blamed],
            'obstacles': [one.as_data() for one in self.obstacles],
            'together': [one.as_data() for one in self.together],
            'nearest': [asdict(one) for one in self.nearest],
        }


def explain(state: State, request: CandidateRequest, options: Options) -> Explanation:
    """Run a request and tell why it finds what it finds.

    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    state.names.check([name for group in request.groups for name in group.resources], request.traits)
    budget = replace(options.budget, met=set())
    found = len(chosen(search(Matching(state, request).sites(), request, budget), request, budget))
    bounds = frozenset(budget.met)
    counted = stages(state, Matching(state, request, alike=False))
    parts = list(rules(request))
    purse = _Purse(options, min(len(parts), _MOST_RULES))
    tried = [_Trial(state, request, rule, purse) for rule in parts[:_MOST_RULES]]
    what_ifs = [trial.told for trial in tried]
    plain = Explanation('', found, request.limit, bounds, counted, what_ifs, len(parts) - len(tried))
    if found:
        return replace(plain, sentence=_found(found, request, bounds))
    if not state.blocks:
        return replace(plain, sentence='No resource providers are stored.')
    told = _empty(state, request, purse, plain, tried)
    return replace(told, sentence=_GIVEN_UP + told.sentence) if bounds else told


def _found(found: int, request: CandidateRequest, bounds: frozenset[Bound]) -> str:
    count = f'There {"is 1 candidate" if found == 1 else f"are {found} candidates"}'
    if bounds:
        return f'{count}, and there may be more: the search stopped at a bound.'
    return f'{count}, as many as the limit allows.' if found == request.limit else f'{count}.'


class _Trial:
    """A search without one rule."""

    def __init__(self, state: State, request: CandidateRequest, rule: Rule, purse: _Purse) -> None:
        self.rule = rule
        rest = without(request, rule)
        self.found: list[Candidate] = []
        self.told = WhatIf(rule, None)
        if rest is not None:
            self.found, bounded = _candidates(state, rest, purse)
            self.told = WhatIf(rule, len(self.found), bounded)

    def trees(self) -> list[Nearest]:
        """The first trees that have candidates without the rule."""
        return _trees(self.found, f'would do without {self.rule}')


def _candidates(state: State, request: CandidateRequest, purse: _Purse) -> tuple[list[Candidate], bool]:
    """Return the first candidates, whatever the request's limit, and whether there may be more."""
    budget = purse.budget()
    found = list(search(Matching(state, request).sites(), request, budget))
    return found, bool(budget.met)


def _trees(found: Sequence[Candidate], lacks: str) -> list[Nearest]:
    roots = (one.site.block.records[one.site.first] for one in found if isinstance(one.site, TreeSite))
    named = {root.uuid: Nearest(called(root), root.uuid, lacks) for root in itertools.islice(roots, 20 * _NAMED)}
    return list(named.values())[:_NAMED]


# When nothing is found ------------------------------------------------------------------------------------------

#: What to blame first when each part could be served alone.
_BETWEEN_GROUPS = {Kind.GROUP_POLICY: 0, Kind.MICROVERSION: 1, Kind.GROUP: 2}


def _empty(
    state: State, request: CandidateRequest, purse: _Purse, plain: Explanation, tried: Sequence[_Trial]
) -> Explanation:
    emptied = _emptied(plain.stages, [trial.rule for trial in tried])
    apart = plain.stages[-1].trees > 0 and plain.left_out == 0
    helping = [trial for trial in tried if trial.found]
    # The rule that the table shows to leave nothing comes first, then what gives most.
    helping.sort(key=lambda one: (one.rule != emptied, not one.rule.about_one_provider, -len(one.found)))
    if apart:
        helping.sort(key=lambda one: _BETWEEN_GROUPS.get(one.rule.kind, len(_BETWEEN_GROUPS)))
        plain = replace(plain, together=together(state, request, purse.budget()))
    if not helping:
        return _several(state, request, purse, plain)
    blamed = helping[0].rule
    looked_at = [one.rule for one in helping[: 1 if apart else _NAMED] if one.rule.about_one_provider]
    obstacles = [obstacle(state, request, rule, purse.budget()) for rule in looked_at]
    nearest = [one for each in obstacles for one in each.nearest]
    for trial in helping[:_NAMED]:
        # Whoever does without resources is not near to anything.
        if trial.rule.kind is not Kind.RESOURCES and (trial.rule == blamed or trial.rule.about_one_provider):
            nearest += trial.trees()
    sentence = _sentence(plain, blamed, obstacles, apart)
    return replace(plain, sentence=sentence, blamed=[blamed], obstacles=obstacles, nearest=nearest)


def _emptied(counted: Sequence[Stage], parts: Sequence[Rule]) -> Rule | None:
    """The rule after which no tree is left."""
    stage = next((one for one in counted if not one.trees), None)
    if stage is None:
        return None
    if not stage.suffixes:
        return next((rule for rule in parts if rule.kind is Kind.MICROVERSION), None)
    wanted = (stage.rule, stage.suffixes[0], stage.subject)
    return next((one for one in parts if one.about_one_provider and _key(one) == wanted), None)


def _key(rule: Rule) -> tuple[str, str, str]:
    return rule.kind.value, rule.suffix, rule.subject


def _sentence(plain: Explanation, blamed: Rule, obstacles: Sequence[Obstacle], apart: bool) -> str:
    if apart:
        return f'{_apart(plain.together)}; there would be candidates without {blamed}.'
    if obstacles and obstacles[0].rule == blamed:
        return _capitalized(f'{obstacles[0].cause}.')
    if blamed.kind is Kind.MICROVERSION:
        return 'The parts would have to come from several providers of one tree, which 1.29 and later allow.'
    return f'No tree has, or is reached by, a provider for all that {blamed} asks for; the rest can be served.'


def _apart(found: Sequence[Together]) -> str:
    apart = 'Each part of the request can be served, but not all of them together'
    if not found:
        return apart
    first, example = found[0], found[0].examples[0]
    more = f' (and {first.trees - 1} more)' if first.trees > 1 else ''
    return f'{apart}: in the tree of {example.name}{more} {example.detail}'


def _capitalized(text: str) -> str:
    return text[0].upper() + text[1:]


# When no part alone is to blame -----------------------------------------------------------------------------------


def _several(state: State, request: CandidateRequest, purse: _Purse, plain: Explanation) -> Explanation:
    """Find parts that leave nothing each, of which all have to go."""
    blamed, found = _blamed_together(state, request, purse)
    obstacles = [
        obstacle(state, _without_all(request, [one for one in blamed if one != rule]) or request, rule, purse.budget())
        for rule in blamed
        if rule.about_one_provider
    ]
    nearest = [one for each in obstacles for one in each.nearest] if len(blamed) == 1 else []
    if len(blamed) > 1:
        nearest = _trees(found, f'would do without {_all_of(blamed)}')
    if not blamed:
        sentence = 'Nothing was found, nor could it be found out within the bounds of a search which part is to blame.'
    elif not obstacles:
        sentence = f'{_apart(plain.together)}; there would be candidates without {_all_of(blamed)}.'
    elif len(blamed) == 1:
        sentence = _capitalized(f'{obstacles[0].cause}.')
    else:
        known = {one.rule: one.cause for one in obstacles}
        causes = '; and '.join(known.get(rule, str(rule)) for rule in blamed[:_NAMED])
        more = '; and others' if len(blamed) > _NAMED else ''
        sentence = f'{len(blamed)} parts of the request stand in the way: {causes}{more}.'
    return replace(plain, sentence=sentence, blamed=blamed, obstacles=obstacles, nearest=nearest)


def _all_of(blamed: Sequence[Rule]) -> str:
    if all(rule.kind is Kind.GROUP for rule in blamed):
        return f'{len(blamed)} of the groups'
    return ' and without '.join(map(str, blamed))


def _blamed_together(state: State, request: CandidateRequest, purse: _Purse) -> tuple[list[Rule], Sequence[Candidate]]:
    """Leave out one part after the other until something is found; then put back what is not to blame."""
    blamed: list[Rule] = []
    rest = request
    for _ in range(_MOST_TOGETHER):
        parts = list(itertools.islice(rules(rest), _MOST_RULES))
        counted = stages(state, Matching(state, rest, alike=False))
        rule = _emptied(counted, parts) or next(
            (one for one in reversed(parts) if not one.about_one_provider), parts[0]
        )
        blamed.append(rule)
        left = without(rest, rule)
        if left is None:
            return blamed, []
        rest = left
        found, _bounded = _candidates(state, rest, purse)
        if found:
            return _minimal(state, request, purse, blamed, found)
    return [], []


def _minimal(
    state: State, request: CandidateRequest, purse: _Purse, blamed: Sequence[Rule], found: Sequence[Candidate]
) -> tuple[list[Rule], Sequence[Candidate]]:
    kept = list(blamed)
    for rule in blamed[:-1]:
        fewer = [one for one in kept if one != rule]
        rest = _without_all(request, fewer)
        again = _candidates(state, rest, purse)[0] if rest else []
        if again:
            kept, found = fewer, again
    return kept, found


def _without_all(request: CandidateRequest, some: Sequence[Rule]) -> CandidateRequest | None:
    rest: CandidateRequest | None = request
    for rule in some:
        rest = without(rest, rule) if rest else None
    return rest
