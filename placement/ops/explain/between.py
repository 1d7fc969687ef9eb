"""Finds out why trees that could serve each part of a request alone cannot serve all parts together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.ops.explain.checks import Rule
from placement.search.assignments import find_assignments, with_streams
from placement.search.budget import SearchBudget, StepCounter
from placement.search.prefilter import Prefilter
from placement.search.requirements import CompiledRequest
from placement.search.search_units import SearchUnit
from placement.search.solver.variables import Reason, build_variables

#: The parameters of the rules between groups.
GROUP_POLICY, SAME_SUBTREE, MICROVERSION = 'group_policy', 'same_subtree', 'microversion'

#: Maximum numbers of trees to name for each reason, and of rules to leave out.
_MAX_NAMED, _MAX_RULES = 3, 20


@dataclass
class Conflict:
    """The trees that cannot serve the parts together for one reason, and the roots of some of them."""

    reason: Reason
    trees: int = 0
    examples: list[Provider] = field(default_factory=list)
    #: What they have too little of, if the reason has numbers: one resource class, or different providers for these
    #: groups. The numbers are those of the first example.
    scarce: Sequence[str] = ()
    requested: int = 0
    available: int = 0


@dataclass(frozen=True)
class BlockingRule:
    """A rule between groups that blocks the request alone."""

    rule: Rule
    #: The trees that have a candidate without it; if ``at_least``, of those that the budget allowed to search.
    trees: int
    at_least: bool


def rules_between(compiled: CompiledRequest) -> Iterator[tuple[Rule, CompiledRequest]]:
    """Yield the rules between groups, each with the request without it."""
    request = compiled.request
    if not request.nested_aware:
        yield Rule(MICROVERSION), replace(compiled, request=replace(request, nested_aware=True))
    if request.isolate and sum(group.use_same_provider for group in request.groups) > 1:
        yield Rule(GROUP_POLICY, (), 'isolate'), replace(compiled, request=replace(request, group_policy='none'))
    for subtree in list(dict.fromkeys(request.same_subtree))[:_MAX_RULES]:
        subtrees = tuple(other for other in request.same_subtree if other != subtree)
        rest = replace(compiled, request=replace(request, same_subtree=subtrees))
        yield Rule(SAME_SUBTREE, (), ','.join(sorted(subtree))), rest


def blocking_rules(snapshot: Snapshot, compiled: CompiledRequest, budget: SearchBudget) -> list[BlockingRule]:
    """Return the rules between groups without which there are candidates; none if they block only together."""
    blocking = []
    for rule, rest in rules_between(compiled):
        own_budget = replace(budget, reached=set())
        units = Prefilter(snapshot, rest, own_budget).search_units()
        streams = with_streams((unit for unit in units if unit.tree), rest, own_budget)
        trees = sum(unit.count for unit, stream in streams if stream.has_any())
        budget.steps_taken = own_budget.steps_taken
        if trees:
            blocking.append(BlockingRule(rule, trees, bool(own_budget.reached)))
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
            conflict = conflicts.setdefault((outcome.reason, outcome.scarce), outcome)
            conflict.trees += unit.count
            for index in range(min(unit.count, _MAX_NAMED - len(conflict.examples))):
                conflict.examples.append(unit[index : index + 1].tree[0])
    return sorted(conflicts.values(), key=lambda conflict: -conflict.trees)


def _conflict(compiled: CompiledRequest, unit: SearchUnit, budget: SearchBudget) -> Conflict | None:
    """Return why a tree has no candidate; None if it has one, or if the budget does not suffice to find out."""
    rejections: Counter[Reason] = Counter()
    tree_budget = replace(budget, reached=set())
    assignments = find_assignments(unit, compiled, tree_budget, rejections)
    has_candidate = any(assignment is not None for assignment in assignments)
    budget.steps_taken = tree_budget.steps_taken
    budget.reached |= tree_budget.reached
    if has_candidate or tree_budget.reached or not rejections:
        return None
    # It holds for the whole tree. The others that do are the only reason.
    few = Reason.TOO_FEW_PROVIDERS
    reason = few if few in rejections else rejections.most_common(1)[0][0]
    # The search has built the same variables within its budget.
    variables = build_variables(unit, compiled, StepCounter(SearchBudget()))
    if reason is Reason.TOO_FEW_PROVIDERS:
        isolated = [variable for variable in variables if variable.isolated]
        for domain in sorted({variable.domain for variable in isolated}, key=len):
            groups = [variable.requirement.group for variable in isolated if set(variable.domain) <= set(domain)]
            if len(groups) > len(domain):
                scarce = tuple(sorted(groups, key=lambda suffix: (len(suffix), suffix)))
                return Conflict(reason, scarce=scarce, requested=len(groups), available=len(domain))
    if reason is Reason.TOO_LITTLE_CAPACITY:
        for name, amount in compiled.requested_sums.items():
            users = [variable for variable in variables if name in dict(variable.requirement.resources)]
            eligible = {position for variable in users for position in variable.domain}
            free = sum(unit.provider(position).inventories[name].max_increase for position in eligible)
            if amount > free:
                return Conflict(reason, scarce=(name,), requested=amount, available=free)
    return Conflict(reason)
