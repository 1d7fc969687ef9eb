"""The explanation of a search for candidates: facts about its result, and about what keeps trees from serving it."""

from __future__ import annotations

import contextlib
import difflib
import functools
import itertools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement import capacity
from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.ops.explain.between import BlockingRule, Conflict, blocking_rules, find_conflicts
from placement.ops.explain.checks import HOST_CLASSES, Check, Rule
from placement.ops.explain.matrix import Matrix
from placement.search.assignments import find_candidate_sets
from placement.search.budget import Limit, SearchBudget, StepLimitReached
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest
from placement.search.requirements import CompiledRequest, Fault, Requirement, ResourcePart, compile_request
from placement.search.search_units import CandidateSet

#: Maximum numbers of providers to name for each fact, of facts of each kind, and of candidates to show.
_MAX_NAMED, _MAX_FACTS, _MAX_SHOWN = 3, 20, 10
#: Maximum numbers of rules to count and of checks in a set, unless all sets have more.
_MAX_RULES, _MAX_CHECKS = 50, 4


@dataclass(frozen=True)
class Near:
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
class Blocked:
    """Trees that could serve each part of the request if they did not fail ``checks``, but not with fewer of these."""

    checks: Sequence[Check]
    trees: int
    #: The roots of some of them.
    examples: Sequence[Provider] = ()
    #: For a single amount: the provider, of the trees or a pool, that could allocate most now, or if nothing was used.
    closest: Near | None = None
    #: The pools of these trees that fail, if no provider of the trees themselves does.
    pools: int = 0


@dataclass(frozen=True)
class Pool:
    """A provider that could supply trees that lack nothing else, if they could use it."""

    provider: Provider
    #: The largest amount of the class that it could allocate.
    free: int
    trees: int
    #: The checks on aggregates that it fails.
    missing: Sequence[Check] = ()
    #: Whether it has an aggregate in common with the trees. If not, ``aggregates`` has those that all of them are in.
    reaches: bool = True
    aggregates: Sequence[str] = ()
    #: Whether it has the trait for sharing.
    shares: bool = True


@dataclass(frozen=True)
class PoolShortage:
    """What ``trees`` trees lack that pools out of their reach could supply."""

    #: The amount that they lack.
    rule: Rule
    trees: int
    #: The largest pools out of reach.
    pools: Sequence[Pool]


@dataclass(frozen=True)
class Nowhere:
    """A check that no provider passes, or no root, and the similar name of a trait or class that providers have."""

    check: Check
    similar: str = ''


@dataclass(frozen=True)
class Explanation:
    """The explanation of one request. All numbers of trees are about those that were examined."""

    #: How many trees are stored.
    trees: int
    #: How many trees the matrix has: fewer if the budget did not suffice.
    examined: int = 0
    #: Whether a class of hosts is requested, so that people call the trees hosts.
    about_hosts: bool = False
    #: Whether there are several groups.
    several_groups: bool = False
    limit: int | None = None
    #: The candidates found before the ``limit`` of the request or one of ``limits_reached``.
    candidates: int = 0
    first_candidates: Sequence[CandidateSet] = ()
    limits_reached: frozenset[Limit] = frozenset()
    stages: Sequence[Stage] = ()
    #: The trees that are what the request asks for, whatever their state.
    suitable: int = 0
    #: What keeps these trees from serving it. Each tree counts once.
    states: Sequence[Blocked] = ()
    #: The checks about what a provider is that exclude trees, those that exclude most first; but that providers without
    #: the classes of hosts are no hosts is no news.
    selective: Sequence[Check] = ()
    #: The smallest sets of checks of which one excludes each tree. Those of one check are near misses.
    blocked: Sequence[Blocked] = ()
    #: The checks that no provider passes, or no root.
    nowhere: Sequence[Nowhere] = ()
    shortages: Sequence[PoolShortage] = ()
    #: The trees that can serve each part alone.
    placeable: int = 0
    #: The rules between groups that block the request alone, and why trees cannot serve all parts.
    between: Sequence[BlockingRule] = ()
    conflicts: Sequence[Conflict] = ()


def explain(
    snapshot: Snapshot, request: CandidateRequest, budget: SearchBudget, empty: frozenset[Limit] | None = None
) -> Explanation:
    """Explain what a request finds, or why it finds nothing.

    :param budget: limits the matrix, the search and the searches without a rule between groups, all together.
    :param empty: the limits that a search reached that found nothing; None to search.
    :raises ResourceClassNotFound: a class of any group does not exist.
    :raises TraitNotFound: a trait of any group does not exist.
    """
    classes = [name for group in request.groups for name in group.resources]
    snapshot.names.raise_unless_known(classes, request.trait_names)
    compiled = compile_request(request, snapshot.root_id_of)
    trees = sum(int(partition.has_root.sum()) for partition in snapshot.partitions)
    result = Explanation(
        trees,
        about_hosts=not HOST_CLASSES.isdisjoint(classes),
        several_groups=len(request.groups) > 1,
        limit=request.limit,
    )
    if not trees:
        return result
    # The matrix gets half of the steps, so that a search is made in any case.
    of_matrix = replace(budget, max_steps=budget.max_steps // 2, reached=set())
    matrix = None
    with contextlib.suppress(StepLimitReached):
        matrix = Matrix(snapshot, compiled, of_matrix)
        examined, placeable = int(matrix.partition.has_root.sum()), int(matrix.without(0).sum())
        result = replace(result, examined=examined, placeable=placeable, stages=_stages(matrix))
    result = replace(result, limits_reached=frozenset(of_matrix.reached))
    budget.steps_taken = of_matrix.steps_taken
    if result.placeable or result.examined < trees:
        if empty is None:
            result = _searched(snapshot, compiled, result, budget)
        else:
            result = replace(result, limits_reached=result.limits_reached | empty)
    if result.candidates or matrix is None:
        return result
    if not result.placeable:
        return _with_blocked(matrix, result)
    rules = blocking_rules(snapshot, compiled, budget)
    return replace(result, between=rules, conflicts=find_conflicts(snapshot, compiled, budget))


def _searched(snapshot: Snapshot, compiled: CompiledRequest, result: Explanation, budget: SearchBudget) -> Explanation:
    """Add the candidates, and the limits that were reached."""
    # A third of the steps that are left is for the reasons why nothing is found.
    steps = budget.steps_taken + (budget.max_steps - budget.steps_taken) * 2 // 3
    of_search = replace(budget, max_steps=steps, reached=set())
    units = Prefilter(snapshot, compiled, of_search).search_units()
    candidates = itertools.chain.from_iterable(find_candidate_sets(units, compiled, of_search))
    first = list(itertools.islice(candidates, compiled.request.limit))
    budget.steps_taken = of_search.steps_taken
    limits = frozenset(of_search.reached) if first else result.limits_reached | of_search.reached
    return replace(result, candidates=len(first), first_candidates=first[:_MAX_SHOWN], limits_reached=limits)


def _stages(matrix: Matrix) -> list[Stage]:
    """Apply the rules one after the other, and count what each leaves."""
    remaining = int(matrix.partition.has_root.sum())
    excluded: defaultdict[Rule, dict[Fault, int]] = defaultdict(dict)
    for check, count in zip(matrix.checks, matrix.excluded(), strict=False):
        excluded[check.rule] |= {check.fault: count} if count else {}
    stages = []
    for rule, by_fault in itertools.islice(excluded.items(), _MAX_RULES):
        remaining -= sum(by_fault.values())
        stages.append(Stage(rule, remaining, by_fault))
    return stages


def _with_blocked(matrix: Matrix, result: Explanation) -> Explanation:
    """Add what each tree lacks: first the trees that are suitable, then the smallest sets of checks, then pools."""
    has_root = matrix.partition.has_root
    counts, failed = matrix.trees.counts(has_root), matrix.failed_checks()
    states = sorted((mask for mask in counts if not mask & ~matrix.state), key=lambda mask: -counts[mask])
    minimal = matrix.minimal(counts)
    few = [mask for mask in minimal if matrix.worst(mask).bit_count() <= _MAX_CHECKS]
    sets = dict.fromkeys(matrix.smallest(mask) for mask in (few[:_MAX_FACTS] or minimal[:1]))
    blocked = [_blocked(matrix, mask, matrix.without(mask)) for mask in sets]
    shortages = [_shortage(matrix, requirement) for requirement in matrix.checks_of]
    return replace(
        result,
        suitable=sum(counts[mask] for mask in states),
        states=[_blocked(matrix, mask, has_root & matrix.trees.where(mask.__eq__)) for mask in states[:_MAX_FACTS]],
        selective=[check for check in failed if not check.lacks_host_class],
        blocked=sorted(blocked, key=lambda fact: (len(fact.checks), -fact.trees)),
        nowhere=[Nowhere(check, _similar(matrix, check)) for check in failed if matrix.passed_nowhere(check)],
        shortages=sorted(filter(None, shortages), key=lambda shortage: -shortage.trees),
    )


def _blocked(matrix: Matrix, mask: int, trees: Flags) -> Blocked:
    checks = matrix.checks_in(mask)
    roots = matrix.partition.starts[:-1][trees][:_MAX_NAMED].tolist()
    fact = Blocked(checks, int(trees.sum()), [matrix.partition.providers[position] for position in roots])
    if len(checks) > 1:
        return fact
    direct, pools = matrix.failing_only(checks[0], mask, trees)
    closest = _closest(matrix, checks[0], np.concatenate([direct, pools]))
    return replace(fact, closest=closest, pools=0 if len(direct) else len(pools))


def _most_free(columns: InventoryColumns, positions: Integers) -> list[tuple[int, int]]:
    """Return the positions of some providers, all with inventory, with the largest amount that each could allocate.

    The largest of all comes first.
    """
    free = columns.max_allocatable[np.searchsorted(columns.positions, positions)]
    order = np.argsort(-free, kind='stable')
    return list(zip(positions[order].tolist(), free[order].tolist(), strict=True))


def _closest(matrix: Matrix, check: Check, positions: Integers) -> Near | None:
    """Return which of the providers that fail a check is closest to the amount; None if it is about no amount."""
    part = check.condition
    if not isinstance(part, ResourcePart) or part.fault is Fault.ABSENT or not len(positions):
        return None
    columns = matrix.partition.inventory_columns[part.resource_class]
    [(position, free), *_] = _most_free(columns if part.is_state else columns.unused, positions)
    provider = matrix.partition.providers[position]
    if part.is_state:
        return Near(provider, free)
    inventory = provider.inventories[part.resource_class].with_used(0)
    violated = capacity.violations(inventory, part.amount)
    limit = ('max_unit', 'min_unit', 'step_size', 'capacity')[violated.index(True)]
    return Near(provider, getattr(inventory, limit), limit)


def _similar(matrix: Matrix, check: Check) -> str:
    """Return the trait or class in use whose name is most similar to one that no provider has; empty if none is."""
    if check.rule.parameter == 'required':
        name, similarity = min(check.names), 0.6
        names = frozenset().union(*matrix.partition.traits.values)
    elif check.fault is Fault.ABSENT:
        # VGPU is not meant to be VCPU.
        name, similarity = check.resource_class, 0.8
        names = frozenset(matrix.partition.inventory_columns)
    else:
        return ''
    full_names = {name.removeprefix('CUSTOM_'): name for name in sorted(names)}
    matches = difflib.get_close_matches(name.removeprefix('CUSTOM_'), full_names, 1, similarity)
    return full_names[matches[0]] if matches else ''


def _shortage(matrix: Matrix, requirement: Requirement) -> PoolShortage | None:
    """Return which pools out of reach could supply a requirement of trees that lack nothing else; None if none can."""
    full = next((check for check in matrix.checks_of[requirement] if check.fault is Fault.FULL), None)
    trees = matrix.served_by(requirement, 0)
    if full is None or not HOST_CLASSES.isdisjoint(dict(requirement.resources)) or not trees.any():
        return None
    # By the mask that is left if the aggregates are right.
    served = functools.cache(lambda mask: matrix.served_by(requirement, mask))
    candidates = {
        position: (served(mask & ~matrix.membership), mask & matrix.membership, shares)
        for position, mask, shares in matrix.pool_candidates(requirement)
    }
    useful = sorted(position for position, (served_trees, *_) in candidates.items() if served_trees.any())
    if not useful:
        return None
    most_free = _most_free(matrix.partition.inventory_columns[full.resource_class], np.array(useful, np.intp))
    possible = (_pool(matrix, position, free, *candidates[position]) for position, free in most_free)
    pools = list(itertools.islice(filter(None, possible), _MAX_NAMED))
    return PoolShortage(full.rule, int(trees.sum()), pools) if pools else None


def _pool(matrix: Matrix, position: int, free: int, trees: Flags, missing: int, shares: bool) -> Pool | None:
    """Return what keeps a provider from serving the flagged trees; None if nobody would change that."""
    provider, checks = matrix.partition.providers[position], matrix.checks_in(missing)
    reached = matrix.partition.reached_by(provider) & trees
    if reached.any():
        return Pool(provider, free, int(reached.sum()), checks, shares=shares)
    if not shares:
        return None
    common = frozenset.intersection(*matrix.partition.tree_aggregates.counts(trees))
    return Pool(provider, free, int(trees.sum()), checks, False, sorted(common)[:_MAX_NAMED])
