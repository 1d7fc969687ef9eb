"""Counts how many more consumers of one size fit: by a division, by a flow from pools, or by placing one by one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import os_traits

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition, or_by_tree
from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.search.assignments import find_candidate_sets
from placement.search.budget import SearchBudget
from placement.search.prefilter import Prefilter
from placement.search.request import CandidateRequest, NameFilter, RequestGroup
from placement.search.requirements import CompiledRequest, Requirement, ResourceCondition
from placement.search.search_units import SearchUnit, TreeSearchUnit

#: Maximum number of consumers to count on one provider, so that sums fit 64 bits.
_MAX_CONSUMERS = 2**40
#: Maximum number of steps of the search for one candidate in one tree.
_MAX_STEPS = 20_000


@dataclass(frozen=True)
class Size:
    """The size of one consumer: amounts by class, and the traits that its providers must have together."""

    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    #: The uuid of the aggregate that each provider, or the root of its tree, must be in.
    aggregate: str | None = None
    #: The traits of that root.
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()

    def request(self) -> CandidateRequest:
        """Return the request for candidates of one consumer, without mappings."""
        traits = NameFilter.all_of(self.required)
        aggregates = NameFilter.all_of(() if self.aggregate is None else (self.aggregate,))
        root_traits = NameFilter.all_of(self.root_required, self.root_forbidden)
        return CandidateRequest((RequestGroup('', False, self.resources, traits, aggregates),), root_traits=root_traits)


@dataclass(frozen=True)
class FitCount:
    """How many consumers fit."""

    fit: int
    #: Whether no limit ended the count before the cloud was full.
    complete: bool
    #: How many of these fit in trees whose root has the trait ``COMPUTE_STATUS_DISABLED``, where nova places nothing.
    on_disabled_hosts: int
    #: Whether another order could not fit more.
    exact: bool = True
    #: How many more would fit if sharing providers were unlimited; 0 if they do not limit the count.
    prevented_by_pools: int = 0

    @property
    def at_least(self) -> str:
        """The words before the number, if more may fit."""
        return '' if self.complete and self.exact else 'at least '


def count_fits(snapshot: Snapshot, request: CandidateRequest, max_searches: int) -> FitCount:
    """Count how many more consumers fit if all make the same request.

    A division gives the count for a tree that neither contains nor can use sharing providers, if every placement in it
    has the required traits. If one class can come from sharing providers, a maximum flow gives the count for such
    trees. In other trees, or for a request with suffixed groups, consumers are placed one by one.

    :param max_searches: the count ends after this number of searches for a placement.
    :raises ResourceClassNotFound: a requested class does not exist.
    :raises TraitNotFound: a requested trait does not exist.
    """
    snapshot.names.raise_unless_known(request.classes, request.trait_names)
    prefilter = Prefilter.for_request(snapshot, request)
    flow = _Flow(prefilter)
    fit = on_disabled_hosts = 0
    # For each tree of a partition, whether its count is known without placing one by one.
    is_counted: dict[Partition, Flags] = {}
    for partition in snapshot.partitions if _is_divisible(request) else ():
        slots = _slots(prefilter, partition)
        disabled = is_disabled(partition)
        is_exact, reaches = _divisible_trees(prefilter, partition)
        counts = np.where(is_exact & ~reaches, np.min(list(slots.values()), axis=0), 0)
        fit += int(counts.sum())
        on_disabled_hosts += int(counts[disabled].sum())
        is_counted[partition] = is_exact & (~reaches | flow.is_possible)
        if flow.is_possible:
            flow.add(partition, np.flatnonzero(is_exact & reaches), slots, disabled)
    on_enabled, with_pools = flow.run()
    fit += with_pools
    on_disabled_hosts += with_pools - on_enabled
    rest = _place_in_others(prefilter, is_counted, flow.occupied, max_searches)
    return FitCount(
        fit + rest.fit,
        rest.complete,
        on_disabled_hosts + rest.on_disabled_hosts,
        rest.fit == 0,
        flow.hosted - with_pools,
    )


def _is_divisible(request: CandidateRequest) -> bool:
    return len(request.groups) == 1 and not request.groups[0].use_same_provider


def is_disabled(partition: Partition) -> Flags:
    """Return which trees have the trait ``COMPUTE_STATUS_DISABLED`` at their root."""
    disabled = frozenset({os_traits.COMPUTE_STATUS_DISABLED})
    flags: Flags = partition.traits.where(disabled.issubset)[partition.starts[:-1]]
    return flags


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


def _divisible_trees(prefilter: Prefilter, partition: Partition) -> tuple[Flags, Flags]:
    """Return in which trees classes are independent of each other, and which trees sharing providers can reach.

    Trees with sharing providers of their own are not among the first.
    """
    sharing = prefilter.sharing
    reaches = partition.tree_aggregates.where(lambda names: not sharing.aggregates.isdisjoint(names))
    is_exact = partition.has_root & prefilter.accepted_roots(partition)
    is_exact &= ~np.isin(partition.roots, [provider.root_id for provider in sharing.providers])
    if required := prefilter.compiled.request.groups[0].traits.any_of:
        # There must be a class that no sharing provider supplies, and that only providers with all these traits supply.
        lacking = ~partition.traits.where(lambda names: all(names & any_of for any_of in required))
        local = [requirement for requirement in prefilter.requirements if requirement not in _shared(prefilter)]
        flags = [~or_by_tree(partition, requirement.matches(partition) & lacking) for requirement in local]
        is_exact &= np.logical_or.reduce(flags) if flags else np.zeros(len(is_exact), np.bool_)
    return is_exact, reaches


def _shared(prefilter: Prefilter) -> list[Requirement]:
    """Return the requirements that sharing providers could satisfy if they were empty."""
    providers = prefilter.sharing.providers
    return [
        requirement
        for requirement in prefilter.requirements
        if any(_may_supply(provider, requirement) for provider in providers)
    ]


def _may_supply(pool: Provider, requirement: Requirement) -> bool:
    conditions = [condition for condition in requirement.conditions if not isinstance(condition, ResourceCondition)]
    [(name, _)] = requirement.resources
    return name in pool.inventories and all(condition.accepts(pool, None) for condition in conditions)


class _Flow:
    """The largest number of consumers in trees that get one class from their own providers or from pools in reach.

    Each tree first uses its own. What remains is a flow from groups of trees, which reach the same pools, to the pools:
    so consumers on many hosts draw on one pool only once.
    """

    def __init__(self, prefilter: Prefilter) -> None:
        self._sharing = prefilter.sharing
        shared = _shared(prefilter) if _is_divisible(prefilter.compiled.request) else []
        #: Whether one class is shared, and others come from the hosts.
        self.is_possible = len(shared) <= 1 < len(prefilter.requirements) or not shared
        self._requirement = shared[0] if shared else None
        self._pools = {pool.id: pool for pool in self._sharing.providers if shared and _may_supply(pool, shared[0])}
        self._local = [0, 0]
        #: For enabled and for disabled trees, what they need of each set of pools.
        self._demands: tuple[defaultdict[frozenset[int], int], ...] = (defaultdict(int), defaultdict(int))
        #: Pools with what was taken from them, by id.
        self.occupied: dict[int, Provider] = {}

    def add(
        self, partition: Partition, trees: Integers, slots: Mapping[Requirement, Integers], is_disabled: Flags
    ) -> None:
        """Add trees of a partition.

        :param slots: as ``_slots`` returns them.
        """
        unshared = [counts for requirement, counts in slots.items() if requirement != self._requirement]
        hosted = np.minimum.reduce(unshared)[trees]
        local = np.minimum(hosted, slots[self._requirement][trees]) if self._requirement else hosted
        sets = partition.tree_aggregates
        for state, selected in enumerate((~is_disabled[trees], is_disabled[trees])):
            self._local[state] += int(local[selected].sum())
            demands = np.zeros(len(sets.values), np.int64)
            np.add.at(demands, sets.codes[trees[selected]], (hosted - local)[selected])
            for code in np.flatnonzero(demands).tolist():
                pools = self._sharing.reaching(sets.values[code]).providers
                if key := frozenset(pool.id for pool in pools if pool.id in self._pools):
                    self._demands[state][key] += int(demands[code])

    @property
    def hosted(self) -> int:
        """How many consumers would fit if the pools in reach were unlimited."""
        return sum(self._local) + sum(sum(demands.values()) for demands in self._demands)

    def run(self) -> tuple[int, int]:
        """Return how many consumers fit in enabled trees, and in all."""
        if self._requirement is None:
            # Pools can supply nothing of what is requested.
            return self._local[0], sum(self._local)
        [(name, amount)] = self._requirement.resources
        inventories = {id_: pool.inventories[name] for id_, pool in self._pools.items()}
        room = {
            id_: (inventory.capacity - inventory.used) // amount if inventory.fits(amount) else 0
            for id_, inventory in inventories.items()
        }
        network = _Network(room)
        on_enabled = self._local[0] + network.send(self._demands[0])
        total = on_enabled + self._local[1] + network.send(self._demands[1])
        for id_, count in network.received.items():
            used = inventories[id_].with_used(inventories[id_].used + count * amount)
            self.occupied[id_] = replace(self._pools[id_], inventories={**self._pools[id_].inventories, name: used})
        return on_enabled, total


#: A set of pools, the pool that it takes, and the one that it gives back (-1 at the start of a path).
_Step = tuple[frozenset[int], int, int]


class _Network:
    """A flow from sets of pools, each with a demand, to their members."""

    def __init__(self, room: dict[int, int]) -> None:
        self._room = room
        self._sent: dict[frozenset[int], defaultdict[int, int]] = {}
        self.received: defaultdict[int, int] = defaultdict(int)

    def send(self, demands: Mapping[frozenset[int], int]) -> int:
        """Send as much as possible, and return the sum. What was sent before may take other ways, but stays."""
        flow = 0
        for start in sorted(demands, key=sorted):
            source, needed = start, demands[start]
            self._sent.setdefault(source, defaultdict(int))
            while needed and (path := self._augmenting_path(source)):
                moved = min(needed, self._room[path[-1][1]], *(self._sent[step[0]][step[2]] for step in path[1:]))
                for group, pool, _ in path:
                    self._sent[group][pool] += moved
                for group, _, given_back in path[1:]:
                    self._sent[group][given_back] -= moved
                last = path[-1][1]
                self._room[last] -= moved
                self.received[last] += moved
                needed -= moved
                flow += moved
        return flow

    def _augmenting_path(self, start: frozenset[int]) -> list[_Step]:
        """Return a path to a pool with room; no steps if there is none."""
        paths: dict[int, list[_Step]] = {}
        waiting: deque[tuple[frozenset[int], list[_Step], int]] = deque([(start, [], -1)])
        while waiting:
            group, path, given_back = waiting.popleft()
            for pool in sorted(group - paths.keys()):
                paths[pool] = [*path, (group, pool, given_back)]
                if self._room[pool] > 0:
                    return paths[pool]
                for sender, sent in self._sent.items():
                    if sent[pool] > 0 and sender != group:
                        waiting.append((sender, paths[pool], pool))
        return []


def _place_in_others(
    prefilter: Prefilter, is_counted: Mapping[Partition, Flags], occupied: dict[int, Provider], max_searches: int
) -> FitCount:
    """Place consumers one by one in the trees that are not counted yet."""
    fit = on_disabled_hosts = 0
    complete = True
    units = prefilter.search_units()
    for search_unit in (unit[index : index + 1] for unit in units for index in range(unit.count)):
        if isinstance(search_unit, TreeSearchUnit):
            flags = is_counted.get(search_unit.partition)
            if flags is not None and flags[search_unit.numbers[0]]:
                continue
        if max_searches == 0:
            return FitCount(fit, False, on_disabled_hosts)
        placed, searches, is_full = _fill(search_unit, prefilter.compiled, occupied, max_searches)
        max_searches -= searches
        complete &= is_full
        fit += placed
        if search_unit.tree and os_traits.COMPUTE_STATUS_DISABLED in search_unit.tree[0].traits:
            on_disabled_hosts += placed
    return FitCount(fit, complete, on_disabled_hosts)


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
            present = occupied.get(provider.id, provider).inventories
            inventory = present[name].with_used(present[name].used + count * amount)
            occupied[provider.id] = replace(provider, inventories={**present, name: inventory})
        placed += count
    return placed, max_searches, False
