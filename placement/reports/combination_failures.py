"""Finds out why trees that could serve each part of a request alone cannot serve all parts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from placement.cache.prefilter import Prefilter
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import SearchLimits, StepCounter, StepLimitReached
from placement.candidates.providers import Provider
from placement.candidates.request import CandidateRequest
from placement.candidates.requirements import CompiledRequest, Reason, Rejections
from placement.candidates.search import AssignmentFinder
from placement.candidates.search_units import SearchUnit
from placement.candidates.variables import Variable, VariableBuilder
from placement.reports.blockers import display_name
from placement.reports.shortfalls import amounts

#: Maximum numbers of equivalence classes of trees that are searched, and of trees that are named for each reason.
_MAX_CLASSES, _MAX_NAMED = 100, 3

#: Reasons that the search finds for a tree as a whole. They are preferred to the most frequent one of its assignments.
_OF_THE_TREE = (Reason.TOO_FEW_PROVIDERS, Reason.TOO_LITTLE_CAPACITY, Reason.TOO_FEW_WITH_CAPACITY)


@dataclass(frozen=True)
class TreeFact:
    """One tree, named by its root, and the reason in detail, with numbers if possible."""

    name: str
    uuid: str
    detail: str


@dataclass
class CombinationFailure:
    """The trees that cannot serve the parts together for one reason; ``examples`` has some of them."""

    reason: Reason
    trees: int = 0
    examples: list[TreeFact] = field(default_factory=list)

    def as_data(self) -> dict[str, Any]:
        """Return the failure in JSON types."""
        examples = [asdict(one) for one in self.examples]
        return {'reason': self.reason.name.lower(), 'trees': self.trees, 'examples': examples}


def combination_failures(state: Snapshot, request: CandidateRequest, limits: SearchLimits) -> list[CombinationFailure]:
    """Return the reasons why trees that could serve each part alone have no candidate; that of most trees first.

    Of trees with equal equivalence keys one is searched. Trees that are not reached within ``limits`` are left out.
    """
    found: dict[Reason, CombinationFailure] = {}
    known: dict[Hashable, tuple[Reason, str] | None] = {}
    own_limits = replace(limits, reached=set())
    prefilter = Prefilter(state, request)
    for search_unit in prefilter.search_units():
        if not search_unit.tree:
            continue
        key = search_unit.equivalence_key
        if key not in known:
            if len(known) == _MAX_CLASSES or own_limits.steps_exhausted:
                break
            known[key] = _reason(prefilter.compiled, search_unit, own_limits)
        failure = known[key]
        if failure is not None:
            reason, detail = failure
            entry = found.setdefault(reason, CombinationFailure(reason))
            entry.trees += search_unit.count
            for at in range(min(search_unit.count, _MAX_NAMED - len(entry.examples))):
                root = search_unit[at : at + 1].tree[0]
                entry.examples.append(TreeFact(display_name(root), root.uuid, detail))
    return sorted(found.values(), key=lambda one: -one.trees)


def _reason(compiled: CompiledRequest, search_unit: SearchUnit, limits: SearchLimits) -> tuple[Reason, str] | None:
    """Return the reason for one tree, and its detail; None when there is a candidate or the reason is not known."""
    rejections: Rejections = Counter()
    limits.reached.clear()
    assignments = AssignmentFinder(compiled, limits, rejections).assignments(search_unit)
    if any(assignment is not None for assignment in assignments) or limits.reached:
        return None
    between: Counter[Reason] = Counter()
    for (_, reason), times in rejections.items():
        if reason.between_groups:
            between[reason] += times
    if not between:
        return None
    reason = next((one for one in _OF_THE_TREE if one in between), between.most_common(1)[0][0])
    return reason, _detail(compiled, search_unit, reason, limits)


def _detail(compiled: CompiledRequest, search_unit: SearchUnit, reason: Reason, limits: SearchLimits) -> str:
    if reason is Reason.COLLECTIVE_TRAITS:
        return reason.value
    if reason not in _OF_THE_TREE:
        return f'a provider {reason.value}'
    try:
        variables = VariableBuilder(compiled).variables(search_unit, StepCounter(limits))
    except StepLimitReached:
        return reason.value
    if reason is Reason.TOO_FEW_PROVIDERS:
        return _too_few_providers(variables) or reason.value
    if reason is Reason.TOO_LITTLE_CAPACITY:
        return _too_little_capacity(variables, search_unit.tree + search_unit.sharing) or reason.value
    return reason.value


def _too_few_providers(variables: Sequence[Variable]) -> str:
    """Describe groups that need different providers and are more than the providers that could serve them."""
    isolated = [one for one in variables if one.isolated]
    for domain in sorted({one.domain for one in isolated}, key=len):
        within = [one.requirement for one in isolated if set(one.domain) <= set(domain)]
        if len(within) > len(domain):
            named = {one.group: 'resources' if one.resources else 'group ' for one in within}
            groups = sorted(named, key=lambda suffix: (len(suffix), suffix))
            names = ', '.join(f'{named[group]}{group}' for group in groups[:4])
            more = f' and {len(groups) - 4} more' if len(groups) > 4 else ''
            eligible = f'{len(domain)} provider{" is" if len(domain) == 1 else "s are"} eligible'
            return f'{names}{more} need {len(within)} different providers, and only {eligible}'
    return ''


def _too_little_capacity(variables: Sequence[Variable], providers: Sequence[Provider]) -> str:
    """Describe a class of which the providers that could serve the groups have too little in total."""
    for name in dict.fromkeys(name for one in variables for name, _ in one.requirement.resources):
        having = [one for one in variables if name in dict(one.requirement.resources)]
        requested = sum(dict(one.requirement.resources)[name] for one in having)
        positions = {position for one in having for position in one.domain}
        free = sum(providers[position].inventories[name].headroom for position in positions)
        if len(having) > 1 and requested > free:
            first, second = amounts(name, requested, free)
            return f'{first} {name} requested in total, {second} free on the eligible providers'
    return ''
