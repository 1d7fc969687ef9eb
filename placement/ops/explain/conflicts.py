"""Finds out why trees that could serve each part of a request alone cannot serve all parts together."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace

from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.ops.explain.checks import Rule
from placement.search.assignments import find_assignments, with_streams
from placement.search.budget import Reason, Rejections, SearchBudget, StepCounter
from placement.search.prefilter import Prefilter
from placement.search.request import CompiledRequest
from placement.search.search_units import SearchUnit
from placement.search.solver.variables import build_variables


@dataclass
class Conflict:
    """The trees that cannot serve the parts together for one reason."""

    reason: Reason
    #: The root of one of them.
    example: Provider
    #: The groups that need different providers, if there are too few of these.
    groups: tuple[str, ...] = ()
    trees: int = 0


@dataclass(frozen=True)
class BlockingRule:
    """A rule between groups that blocks the request alone."""

    rule: Rule
    #: The trees that have a candidate without it; if ``at_least``, of those that the budget allowed to search.
    trees: int
    at_least: bool


def rules_between_groups(compiled: CompiledRequest) -> Iterator[tuple[Rule, CompiledRequest]]:
    """Yield the rules between groups, each with the request without it."""
    request = compiled.request
    if not request.nested_aware:
        yield Rule('microversion', (), 'below 1.29'), replace(compiled, request=replace(request, nested_aware=True))
    if request.isolate and sum(group.use_same_provider for group in request.groups) > 1:
        yield Rule('group_policy', (), 'isolate'), replace(compiled, request=replace(request, group_policy='none'))
    for subtree in dict.fromkeys(request.same_subtree):
        subtrees = tuple(other for other in request.same_subtree if other != subtree)
        rest = replace(compiled, request=replace(request, same_subtree=subtrees))
        yield Rule('same_subtree', (), ','.join(sorted(subtree))), rest


def blocking_rules(snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget) -> list[BlockingRule]:
    """Return the rules between groups without which there are candidates; none if they block only together."""
    blocking = []
    for rule, rest in rules_between_groups(compiled):
        with budget.share() as rule_budget:
            units = Prefilter(snapshot, rest, rule_budget).search_units()
            streams = with_streams((unit for unit in units if unit.tree), rest, rule_budget)
            trees = sum(unit.count for unit, stream in streams if stream.has_any())
        if trees:
            blocking.append(BlockingRule(rule, trees, bool(rule_budget.reached)))
    return blocking


def find_conflicts(snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget) -> list[Conflict]:
    """Return the reasons why trees that could serve each part alone have no candidate, the most frequent first."""
    conflicts: dict[tuple[Reason, Sequence[str]], Conflict] = {}
    # Only one of several trees with equal equivalence keys is searched.
    conflict_of: dict[Hashable, Conflict | None] = {}
    for unit in Prefilter(snapshot, compiled, budget).search_units():
        if not unit.tree:
            continue
        if unit.equivalence_key not in conflict_of:
            if budget.steps_exhausted:
                break
            conflict_of[unit.equivalence_key] = _conflict(compiled, unit, budget)
        if outcome := conflict_of[unit.equivalence_key]:
            conflicts.setdefault((outcome.reason, outcome.groups), outcome).trees += unit.count
    return sorted(conflicts.values(), key=lambda conflict: -conflict.trees)


def _conflict(compiled: CompiledRequest, unit: SearchUnit, budget: SearchBudget) -> Conflict | None:
    """Return why a tree has no candidate; None if it has one, or if the budget does not suffice to find out."""
    rejections = Rejections()
    with budget.share() as tree_budget:
        assignments = find_assignments(unit, compiled, tree_budget, rejections)
        has_candidate = any(assignment is not None for assignment in assignments)
    budget.reached |= tree_budget.reached
    if has_candidate or tree_budget.reached or not rejections:
        return None
    if Reason.TOO_FEW_PROVIDERS in rejections:
        # It holds for the whole tree. The others that do are the only reason.
        return Conflict(Reason.TOO_FEW_PROVIDERS, unit.tree[0], _competing_groups(compiled, unit))
    return Conflict(rejections.most_common(1)[0][0], unit.tree[0])


def _competing_groups(compiled: CompiledRequest, unit: SearchUnit) -> tuple[str, ...]:
    """Return isolated groups that fewer providers than groups satisfy; none if no domain alone shows it."""
    # The search has built the same variables within its budget.
    variables = build_variables(unit, compiled, StepCounter(SearchBudget()))
    isolated = {variable.requirement.suffix: variable.domain for variable in variables if variable.isolated}
    for domain in sorted(set(isolated.values()), key=len):
        groups = [group for group, positions in isolated.items() if set(positions) <= set(domain)]
        if len(groups) > len(domain):
            return tuple(sorted(groups, key=lambda suffix: (len(suffix), suffix)))
    return ()
