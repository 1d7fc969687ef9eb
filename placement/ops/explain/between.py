"""Finds out why trees that could serve each part of a request alone cannot serve all parts together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.ops.explain.checks import Rule, rules_between
from placement.search.assignments import find_assignments
from placement.search.budget import SearchBudget, StepCounter
from placement.search.prefilter import Prefilter
from placement.search.requirements import CompiledRequest
from placement.search.search_units import SearchUnit
from placement.search.solver.variables import Reason, Variable, build_variables

#: Maximum numbers of trees to name for each reason, and of rules to leave out.
_MAX_NAMED, _MAX_RULES = 3, 20

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


@dataclass(frozen=True)
class Example:
    """A tree that cannot serve the parts together, with its numbers if the reason has numbers."""

    root: Provider
    reason: Reason
    contention: Contention | None


@dataclass
class Conflict:
    """The trees that cannot serve the parts together for one reason, and some of them."""

    reason: Reason
    trees: int = 0
    examples: list[Example] = field(default_factory=list)


#: Whether a tree has a candidate, or the reason why it has none.
_Outcome = bool | tuple[Reason, Contention | None]


@dataclass(frozen=True)
class BlockingRule:
    """A rule between groups that blocks the request alone."""

    rule: Rule
    #: The trees that have a candidate without it; if ``at_least``, of those that the budget allowed to search.
    trees: int
    at_least: bool


def find_conflicts(snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget) -> list[Conflict]:
    """Return the reasons why trees that could serve each part alone have no candidate, the most frequent first."""
    conflicts: dict[Reason, Conflict] = {}
    for unit, outcome in _outcomes(snapshot, compiled, budget):
        if isinstance(outcome, tuple):
            reason, contention = outcome
            conflict = conflicts.setdefault(reason, Conflict(reason))
            conflict.trees += unit.count
            for index in range(min(unit.count, _MAX_NAMED - len(conflict.examples))):
                conflict.examples.append(Example(unit[index : index + 1].tree[0], reason, contention))
    return sorted(conflicts.values(), key=lambda conflict: -conflict.trees)


def blocking_rules(snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget) -> list[BlockingRule]:
    """Return the rules between groups without which there are candidates; none if they block only together."""
    blocking = []
    for rule, rest in rules_between(compiled)[:_MAX_RULES]:
        own_budget = replace(budget, reached=set())
        trees = sum(unit.count for unit, outcome in _outcomes(snapshot, rest, own_budget) if outcome is True)
        budget.steps_taken = own_budget.steps_taken
        if trees:
            blocking.append(BlockingRule(rule, trees, bool(own_budget.reached)))
    return blocking


def _outcomes(
    snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget
) -> Iterator[tuple[SearchUnit, _Outcome]]:
    """Yield the trees that may have a candidate, each with its outcome.

    Only one of several trees with equal equivalence keys is searched. The trees beyond ``budget`` are left out.
    """
    outcomes: dict[Hashable, _Outcome] = {}
    for unit in Prefilter(snapshot, compiled, budget).search_units():
        if unit.tree:
            if unit.equivalence_key not in outcomes:
                if budget.steps_exhausted:
                    return
                outcomes[unit.equivalence_key] = _outcome(compiled, unit, budget)
            yield unit, outcomes[unit.equivalence_key]


def _outcome(compiled: CompiledRequest, unit: SearchUnit, budget: SearchBudget) -> _Outcome:
    rejections: Counter[Reason] = Counter()
    tree_budget = replace(budget, reached=set())
    assignments = find_assignments(unit, compiled, tree_budget, rejections)
    has_candidate = any(assignment is not None for assignment in assignments)
    budget.steps_taken = tree_budget.steps_taken
    budget.reached |= tree_budget.reached
    if has_candidate or tree_budget.reached or not rejections:
        return has_candidate
    reason = next((reason for reason in _OF_THE_TREE if reason in rejections), rejections.most_common(1)[0][0])
    if reason not in {Reason.TOO_FEW_PROVIDERS, Reason.TOO_LITTLE_CAPACITY}:
        return reason, None
    # The search has built the same variables within its budget.
    variables = build_variables(unit, compiled, StepCounter(SearchBudget()))
    if reason is Reason.TOO_FEW_PROVIDERS:
        return reason, _too_few_providers(variables)
    return reason, _too_little_capacity(variables, unit.tree + unit.sharing)


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
