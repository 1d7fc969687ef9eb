"""Why trees that could serve each part of a request alone cannot serve all parts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from placement.cache.prefilter import Prefilter, TreeSearchUnit
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import SearchLimits, StepCounter, StepLimitReached
from placement.candidates.providers import Provider
from placement.candidates.request import CandidateRequest
from placement.candidates.requirements import CompiledRequest, Reason, Rejections
from placement.candidates.search import AssignmentFinder
from placement.candidates.search_units import SearchUnit
from placement.candidates.variables import Variable, VariableBuilder
from placement.reports.blockers import display_name

#: Most kinds of trees that are searched, and most trees that are named for each reason.
_SHAPES, _NAMED = 100, 3

#: Reasons that the search finds for a tree as a whole. They are preferred to the most frequent one of its placements.
_OF_THE_TREE = (Reason.TOO_FEW_PROVIDERS, Reason.TOO_LITTLE_IN_ALL, Reason.TOO_FEW_WITH_ROOM)
#: Reasons of which the text is a clause; that of others is said of a provider.
_CLAUSES = (*_OF_THE_TREE, Reason.COLLECTIVE_TRAITS)


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
        """The failure in JSON types."""
        return {
            'reason': self.reason.name.lower(),
            'trees': self.trees,
            'examples': [asdict(one) for one in self.examples],
        }


def combination_failures(state: Snapshot, request: CandidateRequest, limits: SearchLimits) -> list[CombinationFailure]:
    """Return the reasons why trees that could serve each part alone have no candidate; that of most trees first.

    Of trees that are alike to the request one is searched. Trees that are not reached within ``limits`` are left out.
    """
    found: dict[Reason, CombinationFailure] = {}
    known: dict[Hashable, tuple[Reason, str] | None] = {}
    spending = replace(limits, reached=set())
    prefilter = Prefilter(state, request)
    for search_unit in prefilter.search_units():
        if not isinstance(search_unit, TreeSearchUnit):
            continue
        if search_unit.equivalence_key not in known:
            if len(known) == _SHAPES or spending.steps_exhausted:
                break
            known[search_unit.equivalence_key] = _reason(prefilter.compiled, search_unit, spending)
        failure = known[search_unit.equivalence_key]
        if failure is not None:
            reason, detail = failure
            entry = found.setdefault(reason, CombinationFailure(reason))
            entry.trees += 1
            if len(entry.examples) < _NAMED:
                root = search_unit.partition.providers[search_unit.first]
                entry.examples.append(TreeFact(display_name(root), root.uuid, detail))
    return sorted(found.values(), key=lambda one: -one.trees)


def _reason(compiled: CompiledRequest, search_unit: SearchUnit, limits: SearchLimits) -> tuple[Reason, str] | None:
    """Return the reason for one tree, and its detail; None when there is a candidate or the reason is not known."""
    rejections: Rejections = Counter()
    limits.reached.clear()
    if any(
        placement is not None for placement in AssignmentFinder(compiled, limits, rejections).assignments(search_unit)
    ):
        return None
    if limits.reached:
        # The search of the tree stopped at a limit.
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
    if reason not in _CLAUSES:
        return f'a provider {reason.value}'
    try:
        variables = VariableBuilder(compiled).variables(search_unit, StepCounter(limits))
    except StepLimitReached:
        return reason.value
    if reason is Reason.TOO_FEW_PROVIDERS:
        return _too_few(variables) or reason.value
    if reason is Reason.TOO_LITTLE_IN_ALL:
        return _too_little(variables, search_unit.tree + search_unit.sharing) or reason.value
    return reason.value


def _too_few(variables: Sequence[Variable]) -> str:
    """Describe groups that need different providers and are more than the providers that could serve them."""
    isolated = [slot for slot in variables if slot.isolated]
    for wide in sorted({slot.domain for slot in isolated}, key=len):
        within = [slot for slot in isolated if set(slot.domain) <= set(wide)]
        if len(within) > len(wide):
            named = {slot.requirement.group: 'resources' if slot.requirement.resources else 'group ' for slot in within}
            groups = sorted(named, key=lambda suffix: (len(suffix), suffix))
            names = ', '.join(f'{named[group]}{group}' for group in groups[:4])
            more = f' and {len(groups) - 4} more' if len(groups) > 4 else ''
            have = f'{len(wide)} provider{" is" if len(wide) == 1 else "s are"} eligible'
            return f'{names}{more} need {len(within)} different providers, and only {have}'
    return ''


def _too_little(variables: Sequence[Variable], providers: Sequence[Provider]) -> str:
    for name in dict.fromkeys(name for slot in variables for name, _ in slot.requirement.resources):
        asking = [slot for slot in variables if name in dict(slot.requirement.resources)]
        wanted = sum(dict(slot.requirement.resources)[name] for slot in asking)
        positions = {position for slot in asking for position in slot.domain}
        left = sum(providers[position].inventories[name].headroom for position in positions)
        if len(asking) > 1 and wanted > left:
            return f'{wanted} {name} requested in total, {left} free on the eligible providers'
    return ''
