"""Counts how many more consumers of one size fit: by a division, by a flow from pools, or by placing one by one."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, or_by_tree
from placement.cache.providers import DISABLED_TRAIT, Provider
from placement.cache.snapshot import Snapshot
from placement.ops.reports.tree_filter import ALL_TREES, TreeFilter
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.conditions import Requirement, ResourceCondition
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest, CompiledRequest, NameSetFilter, RequestGroup, compile_request
from placement.search.search_units import SearchUnit, TreeSearchUnit

#: Maximum number of consumers to count on one provider, so that sums fit 64 bits.
_MAX_CONSUMERS = 2**40
#: Maximum number of steps of the search for one candidate in one tree.
_MAX_STEPS = 20_000


@dataclass(frozen=True)
class FitCount:
    """How many consumers fit."""

    fit: int
    #: Whether no limit ended the count before the cloud was full.
    complete: bool
    #: How many of these fit in trees whose root has the trait ``COMPUTE_STATUS_DISABLED``, where nova places nothing.
    on_disabled_hosts: int = 0
    #: Whether another order could not fit more.
    exact: bool = True
    #: How many more would fit if sharing providers were unlimited; 0 if they do not limit the count.
    prevented_by_pools: int = 0

    @property
    def at_least(self) -> str:
        """The words before the number, if more may fit."""
        return '' if self.complete and self.exact else 'at least '


def one_consumer(resources: Mapping[str, int], scope: TreeFilter = ALL_TREES) -> CandidateRequest:
    """Return the request for candidates of one consumer, without mappings.

    :param scope: its ``traits`` are those that the providers must have together, each of which, or the root of its
        tree, is in ``aggregates``; and the traits of the root.
    """
    traits, aggregates = NameSetFilter.all_of(scope.traits), NameSetFilter.all_of(scope.aggregates)
    root_traits = NameSetFilter.all_of(scope.root_required, scope.root_forbidden)
    return CandidateRequest((RequestGroup('', False, resources, traits, aggregates),), root_traits=root_traits)


def count_size(snapshot: Snapshot, request: CandidateRequest, max_searches: int) -> FitCount:
    """Count how many more consumers fit, and how many of these on disabled hosts.

    :param max_searches: as for ``count_fits``.
    :raises ResourceClassNotFound: a requested class does not exist.
    :raises TraitNotFound: a requested trait does not exist.
    """
    count = count_fits(snapshot, request, max_searches)
    roots = request.root_traits
    enabled = replace(roots, forbidden=roots.forbidden | enabled_roots(snapshot).forbidden)
    on_enabled_hosts = count_fits(snapshot, replace(request, root_traits=enabled), max_searches).fit
    return replace(count, on_disabled_hosts=max(count.fit - on_enabled_hosts, 0))


def enabled_roots(snapshot: Snapshot) -> NameSetFilter:
    """Return the filter of the roots of enabled hosts, which every request of the compute service has.

    It is empty if the database lacks the trait: no root can have it, and a search would reject its name.
    """
    return NameSetFilter(forbidden=snapshot.names.traits & {DISABLED_TRAIT})


def count_fits(snapshot: Snapshot, request: CandidateRequest, max_searches: int) -> FitCount:
    """Count how many more consumers fit if all make the same request.

    A division gives the count for a tree that neither contains nor can use sharing providers, if every placement in it
    has the required traits. If one class can come from sharing providers, a maximum flow gives the count for such
    trees. In other trees, or for a request with suffixed groups, consumers are placed one by one.

    :param max_searches: the count ends after this number of searches for a placement.
    :raises ResourceClassNotFound: a requested class does not exist.
    :raises TraitNotFound: a requested trait does not exist.
    """
    snapshot.names.raise_unless_known(request.requested_classes, request.trait_names)
    prefilter = Prefilter(snapshot, compile_request(request, snapshot))
    counted = _Counted()
    if len(request.groups) == 1 and not request.groups[0].use_same_provider:
        counted = _count_divisible(prefilter)
    placed, complete = _place_in_others(prefilter, counted, max_searches)
    return FitCount(counted.fit + placed, complete, exact=not placed, prevented_by_pools=counted.prevented_by_pools)


@dataclass
class _Counted:
    """What is counted without placing one by one."""

    fit: int = 0
    prevented_by_pools: int = 0
    #: For each partition, in which trees.
    trees: dict[Partition, Flags] = field(default_factory=dict)
    #: Pools with what was taken from them, by id.
    occupied: dict[int, Provider] = field(default_factory=dict)


def _count_divisible(prefilter: Prefilter) -> _Counted:
    """Count for a request without suffixed groups.

    Each tree first uses its own. If one class can come from pools and others from the hosts, what remains is a flow
    from groups of trees, which reach the same pools, to the pools: so consumers on many hosts draw on one pool only
    once.
    """
    shared = {
        requirement: pools
        for requirement in prefilter.requirements
        if (pools := {p.id: p for p in prefilter.sharing.providers if _may_supply(p, requirement)})
    }
    is_flow = len(shared) <= 1 < len(prefilter.requirements) or not shared
    requirement, pools = next(iter(shared.items())) if shared and is_flow else (None, {})
    counted = _Counted()
    #: What the trees need of each set of pools.
    demands: defaultdict[frozenset[int], int] = defaultdict(int)
    for partition in prefilter.snapshot.partitions:
        slots = _slots(prefilter, partition)
        is_exact, reaches = _divisible_trees(prefilter, partition, shared)
        counted.trees[partition] = is_exact & (~reaches | is_flow)
        trees = np.flatnonzero(counted.trees[partition])
        hosted = np.min([counts[trees] for other, counts in slots.items() if other != requirement], axis=0)
        local = np.minimum(hosted, slots[requirement][trees]) if requirement else hosted
        counted.fit += int(local.sum())
        sets = partition.tree_aggregates
        missing = np.zeros(len(sets.values), np.int64)
        np.add.at(missing, sets.codes[trees], hosted - local)
        for code in np.flatnonzero(missing).tolist():
            reach = prefilter.sharing.sharing_set_in(sets.values[code]).providers
            demands[frozenset(pool.id for pool in reach if pool.id in pools)] += int(missing[code])
    if requirement is None:
        # Pools can supply nothing of what is requested.
        return counted
    demands.pop(frozenset(), None)
    [(name, amount)] = requirement.resources
    inventories = {id_: pool.inventories[name] for id_, pool in pools.items()}
    room = {id_: (i.capacity - i.used) // amount if i.fits(amount) else 0 for id_, i in inventories.items()}
    received = _largest_flow(demands, room)
    counted.fit += sum(received.values())
    counted.prevented_by_pools = sum(demands.values()) - sum(received.values())
    for id_, count in received.items():
        counted.occupied[id_] = _with_more_used(pools[id_], name, count * amount)
    return counted


def _slots(prefilter: Prefilter, partition: Partition) -> dict[Requirement, Integers]:
    """Return for each requirement how many times the own providers of each tree can satisfy it."""
    slots = {}
    for requirement in prefilter.requirements:
        [(name, amount)] = requirement.resources
        times = np.zeros(len(partition.providers), np.int64)
        if name in partition.inventory_columns:
            columns = partition.inventory_columns[name]
            times[columns.positions] = np.clip((columns.capacity_limit - columns.used) // amount, 0, _MAX_CONSUMERS)
        times[~requirement.matches(partition)] = 0
        slots[requirement] = np.add.reduceat(times, partition.starts[:-1])
    return slots


def _divisible_trees(
    prefilter: Prefilter, partition: Partition, shared: Collection[Requirement]
) -> tuple[Flags, Flags]:
    """Return in which trees classes are independent of each other, and which trees sharing providers can reach.

    Trees with sharing providers of their own are not among the first.

    :param shared: the requirements that sharing providers could satisfy if they were empty.
    """
    sharing = prefilter.sharing
    reaches = partition.tree_aggregates.where(lambda names: not sharing.aggregates.isdisjoint(names))
    is_exact = partition.has_root & prefilter.accepted_roots(partition)
    is_exact &= ~np.isin(partition.roots, [provider.root_id for provider in sharing.providers])
    if required := prefilter.compiled.request.groups[0].traits.any_of:
        # There must be a class that no sharing provider supplies, and that only providers with all these traits supply.
        lacking = ~partition.traits.where(lambda names: all(names & any_of for any_of in required))
        local = [requirement for requirement in prefilter.requirements if requirement not in shared]
        flags = [~or_by_tree(partition, requirement.matches(partition) & lacking) for requirement in local]
        is_exact &= np.logical_or.reduce(flags) if flags else np.zeros(len(is_exact), np.bool_)
    return is_exact, reaches


def _may_supply(pool: Provider, requirement: Requirement) -> bool:
    conditions = [condition for condition in requirement.conditions if not isinstance(condition, ResourceCondition)]
    [(name, _)] = requirement.resources
    return name in pool.inventories and all(condition.accepts(pool, None) for condition in conditions)


def _with_more_used(provider: Provider, name: str, amount: int) -> Provider:
    inventory = provider.inventories[name]
    return replace(provider, inventories={**provider.inventories, name: inventory.with_used(inventory.used + amount)})


def _largest_flow(demands: Mapping[frozenset[int], int], room: dict[int, int]) -> Counter[int]:
    """Send as much as possible of the demand of each set of pools to its members. Return what each pool receives.

    :param room: what each pool can receive.
    """
    sent = {group: Counter[int]() for group in demands}
    for group, demand in demands.items():
        needed = demand
        while needed and (path := _augmenting_path(group, sent, room)):
            pools, senders = [pool for _, pool in path], [sender for sender, _ in path]
            # Each sender but the first takes back what it sent to the pool before, which the one before it takes.
            given_back = list(zip(senders[1:], pools, strict=False))
            moved = min(needed, room[pools[-1]], *(sent[sender][pool] for sender, pool in given_back))
            for sender, pool in path:
                sent[sender][pool] += moved
            for sender, pool in given_back:
                sent[sender][pool] -= moved
            room[pools[-1]] -= moved
            needed -= moved
    return Counter({pool: sum(counts[pool] for counts in sent.values()) for pool in room})


def _augmenting_path(
    start: frozenset[int], sent: Mapping[frozenset[int], Counter[int]], room: Mapping[int, int]
) -> list[tuple[frozenset[int], int]]:
    """Return pairs of a sender and the pool that it takes, up to a pool with room; none if there is no such path."""
    paths: dict[int, list[tuple[frozenset[int], int]]] = {}
    waiting = deque([(start, list[tuple[frozenset[int], int]]())])
    while waiting:
        group, path = waiting.popleft()
        for pool in sorted(group - paths.keys()):
            paths[pool] = [*path, (group, pool)]
            if room[pool] > 0:
                return paths[pool]
            waiting += [(sender, paths[pool]) for sender, counts in sent.items() if counts[pool] and sender != group]
    return []


def _place_in_others(prefilter: Prefilter, counted: _Counted, max_searches: int) -> tuple[int, bool]:
    """Place consumers one by one in the trees that are not counted yet.

    :returns: how many, and whether no limit ended the search.
    """
    fit, complete = 0, True
    units = prefilter.search_units()
    for search_unit in (unit[index : index + 1] for unit in units for index in range(unit.count)):
        if isinstance(search_unit, TreeSearchUnit):
            flags = counted.trees.get(search_unit.partition)
            if flags is not None and flags[search_unit.numbers[0]]:
                continue
        if max_searches == 0:
            return fit, False
        placed, searches, is_full = _fill(search_unit, prefilter.compiled, counted.occupied, max_searches)
        max_searches -= searches
        complete &= is_full
        fit += placed
    return fit, complete


def _fill(
    search_unit: SearchUnit, compiled: CompiledRequest, occupied: dict[int, Provider], max_searches: int
) -> tuple[int, int, bool]:
    """Place consumers at the first candidate of a search unit, until it has no candidate.

    :param occupied: the providers with what was placed on them, by id. Placements are added. Search units may have
        sharing providers in common.
    :returns: the number of consumers placed; the number of searches; and whether no limit ended the search for more.
    """
    placed = 0
    for searches in range(1, max_searches + 1):
        tree, sharing = (
            tuple(occupied.get(provider.id, provider) for provider in providers)
            for providers in (search_unit.tree, search_unit.sharing)
        )
        current = SearchUnit(tree, sharing, compiled.bits_at(tree, sharing))
        budget = SearchBudget(max_candidates=1, max_steps=_MAX_STEPS)
        candidate = next(find_candidate_sets([current], compiled, budget), None)
        if candidate is None:
            return placed, searches, not budget.reached
        positions = candidate.assignment.amounts
        amounts = [(current.provider(position), name, amount) for position, name, amount in positions]
        inventories = [(provider.inventories[name], amount) for provider, name, amount in amounts]
        # As long as this candidate fits, each further search would return it first.
        count = min((inventory.capacity - inventory.used) // amount for inventory, amount in inventories)
        for provider, name, amount in amounts:
            present = occupied.get(provider.id, provider)
            occupied[provider.id] = _with_more_used(present, name, count * amount)
        placed += count
    return placed, max_searches, False
