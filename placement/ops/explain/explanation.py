"""The explanation of a search for candidates: facts about its result, and about what keeps trees from serving it."""

from __future__ import annotations

import contextlib
import difflib
import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import numpy as np

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.providers import SHARING_TRAIT, Provider
from placement.cache.snapshot import Snapshot
from placement.ops.explain.checks import HOST_CLASSES, Check, RequestChecks, Rule
from placement.ops.explain.conflicts import BlockingRule, Conflict, blocking_rules, find_conflicts
from placement.ops.explain.matrix import ProviderMatrix, TreeMatrix
from placement.search.assignments import find_candidate_sets
from placement.search.budget import Limit, SearchBudget, StepLimitReached
from placement.search.conditions import Fault, Requirement, ResourceCondition, TraitCondition
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest, compile_request

#: Maximum numbers of providers to name for a fact, of facts of a kind, and of checks in a set (unless all have more).
_MAX_NAMED, _MAX_FACTS, _MAX_CHECKS = 3, 20, 4


@dataclass(frozen=True)
class ClosestProvider:
    """The provider that is closest to an amount."""

    provider: Provider
    #: The largest amount that it could allocate now; if it is too small, the value of ``limit``.
    free: int
    #: If it is too small, why: ``max_unit``, ``min_unit``, ``step_size`` or ``capacity``.
    limit: str = ''


@dataclass(frozen=True)
class Stage:
    """What remains of the trees after one rule and all rules before it."""

    rule: Rule
    trees: int
    #: How many trees this rule excluded, by fault; for an amount by the fault of the provider that has least.
    excluded: Mapping[Fault, int]


@dataclass(frozen=True)
class BlockedTrees:
    """Trees that could serve each part of the request if they did not fail ``checks``, but not with fewer of these."""

    checks: Sequence[Check]
    trees: int
    #: The roots of some of them.
    examples: Sequence[Provider] = ()
    #: For a single amount: the provider, of the trees or a pool, that could allocate most now, or if nothing was used.
    closest: ClosestProvider | None = None
    #: The pools of these trees that fail, if no provider of the trees themselves does.
    pools: int = 0


@dataclass(frozen=True)
class UnusablePool:
    """A provider that could supply trees that lack nothing else, if they could use it."""

    provider: Provider
    #: The amount that the trees lack, and the largest one that the provider could allocate.
    rule: Rule
    free: int
    trees: int
    #: The checks on aggregates that it fails.
    missing: Sequence[Check] = ()
    #: Whether it has an aggregate in common with the trees. If not, ``aggregates`` has those that all of them are in.
    reaches: bool = True
    aggregates: Sequence[str] = ()
    #: Whether it has the trait for sharing.
    shares: bool = True


@dataclass
class Explanation:
    """The explanation of one request. All numbers of trees are about those that were examined."""

    #: How many trees are stored.
    trees: int
    #: How many trees the matrix has: fewer if the budget did not suffice.
    examined: int = 0
    #: Whether a class of hosts is requested, so that people call the trees hosts.
    about_hosts: bool = False
    limit: int | None = None
    #: The candidates found before the ``limit`` of the request or one of ``limits_reached``.
    candidates: int = 0
    limits_reached: Set[Limit] = frozenset()
    stages: Sequence[Stage] = ()
    #: The trees that are what the request asks for, whatever their state.
    suitable: int = 0
    #: What keeps these trees from serving it. Each tree counts once.
    states: Sequence[BlockedTrees] = ()
    #: The checks about what a provider is that exclude trees, those that exclude most first; but that providers without
    #: the classes of hosts are no hosts is no news.
    selective: Sequence[Check] = ()
    #: The smallest sets of checks of which one excludes each tree: those of fewest checks first, and of these, places
    #: last. Those of one check are near misses.
    blocked: Sequence[BlockedTrees] = ()
    #: The checks that no provider of any tree passes, or no root, and for traits the most similar one in use, if any.
    nowhere: Sequence[Check] = ()
    similar: Mapping[Check, str] = field(default_factory=dict)
    #: The pools out of reach, those that could supply most trees first.
    pools: Sequence[UnusablePool] = ()
    #: The trees that can serve each part alone.
    placeable: int = 0
    #: The rules between groups that block the request alone, and why trees cannot serve all parts.
    between: Sequence[BlockingRule] = ()
    conflicts: Sequence[Conflict] = ()


def explain(
    snapshot: Snapshot,
    request: CandidateRequest,
    budget: SearchBudget,
    limits_of_empty_search: frozenset[Limit] | None = None,
) -> Explanation:
    """Explain what a request finds, or why it finds nothing.

    :param budget: limits the matrix, the search and the searches without a rule between groups, all together.
    :param limits_of_empty_search: the limits that a search reached that found nothing; None to search.
    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    snapshot.names.raise_unless_known(request.requested_classes, request.trait_names)
    compiled = compile_request(request, snapshot)
    trees = sum(int(partition.has_root.sum()) for partition in snapshot.partitions)
    result = Explanation(trees, about_hosts=not HOST_CLASSES.isdisjoint(request.requested_classes), limit=request.limit)
    if not trees:
        return result
    matrix = None
    # The matrix gets half of the steps, so that a search is made in any case.
    with budget.share(1 / 2) as matrix_budget, contextlib.suppress(StepLimitReached):
        matrix = TreeMatrix(ProviderMatrix(snapshot, RequestChecks(compiled), matrix_budget), matrix_budget)
        result.examined, result.placeable = int(matrix.partition.has_root.sum()), int(matrix.without(0).sum())
        result.stages = _stages(matrix)
    result.limits_reached = matrix_budget.reached
    if result.placeable or result.examined < trees:
        limits = limits_of_empty_search
        if limits is None:
            # A third of the steps that are left is for the reasons why nothing is found.
            with budget.share(2 / 3) as search_budget:
                units = Prefilter(snapshot, compiled, search_budget).search_units()
                candidates = itertools.chain.from_iterable(find_candidate_sets(units, compiled, search_budget))
                result.candidates = sum(1 for _ in itertools.islice(candidates, request.limit))
            limits = frozenset(search_budget.reached)
        # Only a search that finds nothing may have missed candidates because of the matrix.
        result.limits_reached = limits if result.candidates else result.limits_reached | limits
    if result.candidates or matrix is None:
        return result
    if result.placeable:
        result.between = blocking_rules(snapshot, compiled, budget)
        result.conflicts = find_conflicts(snapshot, compiled, budget)
    else:
        _add_blocked(result, matrix)
    return result


def _stages(matrix: TreeMatrix) -> list[Stage]:
    """Apply the rules one after the other, and count what each leaves."""
    remaining = int(matrix.partition.has_root.sum())
    excluded: defaultdict[Rule, dict[Fault, int]] = defaultdict(dict)
    for check, count in zip(matrix.checks.in_order, matrix.excluded(), strict=False):
        excluded[check.rule] |= {check.fault: count} if count else {}
    stages = []
    for rule, by_fault in excluded.items():
        remaining -= sum(by_fault.values())
        stages.append(Stage(rule, remaining, by_fault))
    return stages


def _add_blocked(result: Explanation, matrix: TreeMatrix) -> None:
    """Add what the trees lack: sets of checks, single checks, and pools that they cannot use."""
    has_root = matrix.partition.has_root
    # The number of trees by what the closest choices of their parts fail. Some fail only states.
    counts = matrix.trees.counts(has_root)
    states = sorted((mask for mask in counts if not mask & ~matrix.checks.state), key=lambda mask: -counts[mask])
    result.suitable = sum(counts[mask] for mask in states)
    result.states = [_blocked(matrix, mask, has_root & matrix.trees.where(mask.__eq__)) for mask in states[:_MAX_FACTS]]

    # Sets of checks. Those of more than ``_MAX_CHECKS`` count only if there are no others.
    minimal = matrix.minimal(counts)
    few = [mask for mask in minimal if matrix.checks.worst(mask).bit_count() <= _MAX_CHECKS]
    sets = dict.fromkeys(matrix.smallest(mask) for mask in (few[:_MAX_FACTS] or minimal[:1]))
    blocked = [_blocked(matrix, mask, matrix.without(mask)) for mask in sets]
    # The user knows the place, so near misses of other checks come first.
    blocked.sort(key=lambda fact: (len(fact.checks), fact.checks[0].condition.is_place, -fact.trees))
    result.blocked = blocked

    # Single checks.
    failed = matrix.failed_checks()
    selective = [check for check in failed if not check.lacks_host_class]
    result.selective = [replace(check, scope=matrix.scopes[check]) for check in selective]
    result.nowhere = [check for check in failed if matrix.providers.passed_nowhere(check)]
    result.similar = {check: name for check in result.nowhere if (name := _similar(matrix, check))}

    pools = (itertools.islice(_pools(matrix, requirement), _MAX_NAMED) for requirement in matrix.checks.of_requirement)
    result.pools = sorted(itertools.chain.from_iterable(pools), key=lambda pool: -pool.trees)


def _blocked(matrix: TreeMatrix, mask: int, trees: Flags) -> BlockedTrees:
    checks = [replace(check, scope=matrix.scopes[check]) for check in matrix.checks.checks_in(mask)]
    roots = matrix.partition.starts[:-1][trees][:_MAX_NAMED].tolist()
    fact = BlockedTrees(checks, int(trees.sum()), [matrix.partition.providers[position] for position in roots])
    if len(checks) > 1:
        return fact
    direct, pools = matrix.providers.failing_only(checks[0], mask, trees)
    closest = _closest(matrix, checks[0], np.concatenate([direct, pools]))
    return replace(fact, closest=closest, pools=0 if len(direct) else len(pools))


def _most_free(columns: InventoryColumns, positions: Integers) -> list[tuple[int, int]]:
    """Return the positions of providers with inventory and how much each could allocate, the largest amount first."""
    free = columns.max_allocatable[np.searchsorted(columns.positions, positions)]
    order = np.argsort(-free, kind='stable')
    return list(zip(positions[order].tolist(), free[order].tolist(), strict=True))


def _closest(matrix: TreeMatrix, check: Check, positions: Integers) -> ClosestProvider | None:
    """Return which of the providers that fail a check is closest to the amount; None if it is about no amount."""
    condition = check.condition
    if not isinstance(condition, ResourceCondition) or condition.fault is Fault.ABSENT or not len(positions):
        return None
    columns = matrix.partition.inventory_columns[condition.resource_class]
    [(position, free), *_] = _most_free(columns if condition.is_state else columns.unused, positions)
    provider = matrix.partition.providers[position]
    if condition.is_state:
        return ClosestProvider(provider, free)
    inventory = provider.inventories[condition.resource_class].with_used(0)
    limit = inventory.violated_limit(condition.amount)
    return ClosestProvider(provider, getattr(inventory, limit), limit) if limit else None


def _similar(matrix: TreeMatrix, check: Check) -> str:
    """Return the trait in use whose name is most similar to one that no provider has; empty if none is."""
    if not isinstance(check.condition, TraitCondition) or check.condition.forbidden:
        return ''
    traits = frozenset().union(*matrix.partition.traits.values)
    name = check.condition.names[0]
    # A trait that no root has may be in use below the roots.
    if name in traits:
        return ''
    full_names = {trait.removeprefix('CUSTOM_'): trait for trait in sorted(traits)}
    matches = difflib.get_close_matches(name.removeprefix('CUSTOM_'), full_names, 1)
    return full_names[matches[0]] if matches else ''


def _pools(matrix: TreeMatrix, requirement: Requirement) -> Iterator[UnusablePool]:
    """Yield the pools that could supply a requirement of trees that lack nothing else, the largest first."""
    full = next((check for check in matrix.checks.of_requirement[requirement] if check.fault is Fault.FULL), None)
    lacking = matrix.served_by(requirement, 0)
    if full is None or not HOST_CLASSES.isdisjoint(dict(requirement.resources)) or not lacking.any():
        return
    aggregates = frozenset().union(*matrix.partition.tree_aggregates.counts(lacking))
    candidates = matrix.providers.pool_candidates(requirement, aggregates)
    # By the mask that is left if the aggregates are right.
    served = functools.cache(lambda mask: matrix.served_by(requirement, mask & ~matrix.checks.membership))
    masks = {position: mask for position, mask in candidates.items() if served(mask).any()}
    if not masks:
        return
    columns = matrix.partition.inventory_columns[full.resource_class]
    for position, free in _most_free(columns, np.array(sorted(masks), np.intp)):
        provider, trees = matrix.partition.providers[position], served(masks[position])
        reached = trees & matrix.partition.reached_by(provider)
        shares = SHARING_TRAIT in provider.traits
        missing = matrix.checks.checks_in(masks[position] & matrix.checks.membership)
        if reached.any():
            yield UnusablePool(provider, full.rule, free, int(reached.sum()), missing, shares=shares)
        elif shares:
            common = sorted(frozenset.intersection(*matrix.partition.tree_aggregates.counts(trees)))[:_MAX_NAMED]
            yield UnusablePool(provider, full.rule, free, int(trees.sum()), missing, False, common)
