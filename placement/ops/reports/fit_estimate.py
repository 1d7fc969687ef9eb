"""Counts how many more consumers of one size fit, by a division or by placing them one by one."""

from __future__ import annotations

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
from placement.search.prefilter import Prefilter, TreeSearchUnit
from placement.search.request import CandidateRequest, NameFilter, RequestGroup
from placement.search.requirements import CompiledRequest
from placement.search.search_units import SearchUnit

#: Maximum number of consumers to count on one provider, so that sums fit 64 bits.
_MAX_CONSUMERS = 2**40
#: The traits of the root of a disabled host.
_DISABLED = frozenset({os_traits.COMPUTE_STATUS_DISABLED})
#: Maximum number of steps of the search for one candidate in one tree.
_MAX_STEPS = 20_000


@dataclass(frozen=True)
class Size:
    """The size of one consumer: amounts by class, and the traits that its providers must have together.

    ``aggregate`` is the uuid of the aggregate that each provider, or the root of its tree, must be in.
    ``root_required`` and ``root_forbidden`` are about the traits of that root.
    """

    resources: Mapping[str, int]
    required: frozenset[str] = frozenset()
    aggregate: str | None = None
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()

    def request(self) -> CandidateRequest:
        """Return the request for candidates of one consumer, without mappings."""
        traits = NameFilter.all_of(self.required)
        aggregates = NameFilter.all_of(() if self.aggregate is None else (self.aggregate,))
        root_traits = NameFilter.all_of(self.root_required, self.root_forbidden)
        return CandidateRequest((RequestGroup('', False, self.resources, traits, aggregates),), root_traits=root_traits)


@dataclass(frozen=True)
class FitEstimate:
    """How many consumers fit. ``complete`` is False if a limit ended the count before the cloud was full.

    ``on_disabled_hosts`` counts how many of these fit in trees whose root has the trait ``COMPUTE_STATUS_DISABLED``.
    There nova places nothing.
    """

    fit: int
    complete: bool
    on_disabled_hosts: int


def estimate_fit(snapshot: Snapshot, size: Size, max_searches: int) -> FitEstimate:
    """Count how many more consumers of ``size`` fit.

    A division gives the count for a tree that neither contains nor can use sharing providers, if every placement in it
    has the required traits. In other trees consumers are placed one by one, and another order might fit more or fewer.

    :param max_searches: the count ends after this number of searches for a placement.
    :raises ResourceClassNotFound: a class of ``size`` does not exist.
    :raises TraitNotFound: a trait of ``size`` does not exist.
    """
    request = size.request()
    snapshot.names.raise_unless_known(size.resources, request.trait_names)
    prefilter = Prefilter.for_request(snapshot, request)
    fit, on_disabled_hosts, complete = 0, 0, True
    # For each tree of a partition, whether a division gives its count.
    is_divided: dict[Partition, Flags] = {}
    for partition in snapshot.partitions:
        is_divided[partition], counts = _divide(prefilter, partition, size.required)
        is_disabled = partition.traits.where(_DISABLED.issubset)[partition.starts[:-1]]
        fit += int(counts.sum())
        on_disabled_hosts += int(counts[is_disabled].sum())
    occupied: dict[int, Provider] = {}
    units = prefilter.search_units()
    for search_unit in (unit[index : index + 1] for unit in units for index in range(unit.count)):
        if isinstance(search_unit, TreeSearchUnit) and is_divided[search_unit.partition][search_unit.numbers[0]]:
            continue
        if max_searches == 0:
            return FitEstimate(fit, False, on_disabled_hosts)
        placed, searches, is_full = _fill(search_unit, prefilter.compiled, occupied, max_searches)
        max_searches -= searches
        complete &= is_full
        fit += placed
        if search_unit.tree and search_unit.tree[0].traits >= _DISABLED:
            on_disabled_hosts += placed
    return FitEstimate(fit, complete, on_disabled_hosts)


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


def _divide(prefilter: Prefilter, partition: Partition, required: frozenset[str]) -> tuple[Flags, Integers]:
    """Return for which trees of a partition a division is exact, and how many consumers fit in each of these."""
    eligible = [requirement.matches(partition) for requirement in prefilter.requirements]
    counts = []
    for requirement, flags in zip(prefilter.requirements, eligible, strict=True):
        [(name, amount)] = requirement.resources
        times = np.zeros(len(partition.providers), np.int64)
        if name in partition.inventory_columns:
            columns = partition.inventory_columns[name]
            times[columns.positions] = np.clip((columns.capacity_limit - columns.used) // amount, 0, _MAX_CONSUMERS)
        counts.append(np.add.reduceat(np.where(flags, times, 0), partition.starts[:-1]))
    aggregates = prefilter.sharing.aggregates
    can_share = np.isin(partition.roots, [provider.root_id for provider in prefilter.sharing.providers])
    can_share |= partition.tree_aggregates.where(lambda names: not aggregates.isdisjoint(names))
    is_exact = partition.has_root & prefilter.accepted_roots(partition) & ~can_share
    if required:
        # Exact if there is one class that only providers with all these traits can supply.
        lacking = ~partition.traits.where(lambda names: required <= names)
        is_exact &= np.logical_or.reduce([~or_by_tree(partition, flags & lacking) for flags in eligible])
    return is_exact, np.where(is_exact, np.min(counts, axis=0), 0)
