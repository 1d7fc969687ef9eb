"""Finds out why trees that could serve each part of a request alone cannot serve all parts together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.search.assignments import find_assignments
from placement.search.budget import SearchBudget, StepCounter
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest
from placement.search.requirements import CompiledRequest
from placement.search.search_units import SearchUnit
from placement.search.solver.variables import Reason, Variable, build_variables

#: Maximum numbers of equivalence classes of trees to search, and of trees to name for each reason.
_MAX_CLASSES, _MAX_NAMED = 100, 3

#: Reasons that hold for a whole tree. They are preferred to the most frequent reason for rejecting its assignments.
_OF_THE_TREE = (Reason.TOO_FEW_PROVIDERS, Reason.TOO_LITTLE_CAPACITY, Reason.TOO_FEW_WITH_CAPACITY)


@dataclass(frozen=True)
class Contention:
    """The quantity that groups request together, and the quantity that a tree has for them.

    Both are amounts of ``resource_class``. If it is empty, both are numbers of different providers for ``groups``.
    """

    requested: int
    available: int
    groups: Sequence[str] = ()
    resource_class: str = ''


@dataclass
class CombinationFailure:
    """The trees that cannot serve the parts together for one reason.

    ``examples`` has the roots of some of them, each with its numbers if the reason has numbers.
    """

    reason: Reason
    trees: int = 0
    examples: list[tuple[Provider, Contention | None]] = field(default_factory=list)


def combination_failures(
    snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget
) -> list[CombinationFailure]:
    """Return the reasons why trees that could serve each part alone have no candidate, the most frequent first.

    Only one of several trees with equal equivalence keys is searched. The trees beyond ``budget`` are left out.
    """
    failures: dict[Reason, CombinationFailure] = {}
    outcomes: dict[Hashable, tuple[Reason, Contention | None] | None] = {}
    own_budget = replace(budget, reached=set())
    prefilter = Prefilter.for_request(snapshot, request, own_budget)
    for search_unit in prefilter.search_units():
        if not search_unit.tree:
            continue
        key = search_unit.equivalence_key
        if key not in outcomes:
            if len(outcomes) == _MAX_CLASSES or own_budget.steps_exhausted:
                break
            outcomes[key] = _reason(prefilter.compiled, search_unit, own_budget)
        if outcome := outcomes[key]:
            reason, contention = outcome
            failure = failures.setdefault(reason, CombinationFailure(reason))
            failure.trees += search_unit.count
            for index in range(min(search_unit.count, _MAX_NAMED - len(failure.examples))):
                failure.examples.append((search_unit[index : index + 1].tree[0], contention))
    return sorted(failures.values(), key=lambda failure: -failure.trees)


def _reason(
    compiled: CompiledRequest, search_unit: SearchUnit, budget: SearchBudget
) -> tuple[Reason, Contention | None] | None:
    """Return the reason for one tree, with its numbers; None when there is a candidate or the reason is not known."""
    rejections: Counter[Reason] = Counter()
    budget.reached.clear()
    assignments = find_assignments(search_unit, compiled, budget, rejections)
    if any(assignment is not None for assignment in assignments) or budget.reached or not rejections:
        return None
    reason = next((reason for reason in _OF_THE_TREE if reason in rejections), rejections.most_common(1)[0][0])
    if reason not in {Reason.TOO_FEW_PROVIDERS, Reason.TOO_LITTLE_CAPACITY}:
        return reason, None
    # The search has built the same variables within its budget.
    variables = build_variables(search_unit, compiled, StepCounter(SearchBudget()))
    if reason is Reason.TOO_FEW_PROVIDERS:
        return reason, _too_few_providers(variables)
    return reason, _too_little_capacity(variables, search_unit.tree + search_unit.sharing)


def _too_few_providers(variables: Sequence[Variable]) -> Contention | None:
    """Return isolated groups for which there are too few different providers; None if there are no such groups."""
    isolated = [variable for variable in variables if variable.isolated]
    for domain in sorted({variable.domain for variable in isolated}, key=len):
        within = [variable.requirement for variable in isolated if set(variable.domain) <= set(domain)]
        if len(within) > len(domain):
            groups = {requirement.group for requirement in within}
            return Contention(len(within), len(domain), sorted(groups, key=lambda suffix: (len(suffix), suffix)))
    return None


def _too_little_capacity(variables: Sequence[Variable], providers: Sequence[Provider]) -> Contention | None:
    """Return a class whose total on the eligible providers is too small for all groups; None if there is none."""
    requested: Counter[str] = Counter()
    positions: defaultdict[str, set[int]] = defaultdict(set)
    for variable in variables:
        for name, amount in variable.requirement.resources:
            requested[name] += amount
            positions[name].update(variable.domain)
    for name, amount in requested.items():
        free = sum(providers[position].inventories[name].max_increase for position in positions[name])
        if amount > free:
            return Contention(amount, free, resource_class=name)
    return None
