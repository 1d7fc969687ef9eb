"""Allocation candidates: which providers could serve a request."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from placement.cache.partition import Partition
from placement.cache.prefilter import Prefilter, TreeSearchUnit
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.candidates.limits import Limit
from placement.candidates.providers import Provider
from placement.candidates.request import CandidateRequest
from placement.candidates.search import search
from placement.candidates.search_units import Family
from placement.candidates.selection import select
from placement.objects import search_limits
from placement.objects.base import Context


class SearchContext(Context, Protocol):
    """The part of the context of a request that a search uses."""

    @property
    def provider_cache(self) -> ProviderCache:
        """The cache that the search reads."""


@dataclass(frozen=True)
class AllocationCandidates:
    """The candidates of one request, in order. Providers in them are given by their positions in search units.

    ``limits_reached`` are the limits of ``[placement]`` without which there might be more candidates.
    """

    snapshot: Snapshot
    request: CandidateRequest
    families: Sequence[Family]
    limits_reached: frozenset[Limit] = frozenset()

    @classmethod
    def get_by_request(cls, context: SearchContext, request: CandidateRequest) -> AllocationCandidates:
        """Search a committed state of the database that is no older than this call.

        :raises ResourceClassNotFound: a class of any group does not exist.
        :raises TraitNotFound: a trait of any group does not exist.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        started = time.monotonic()
        options = context.conf.placement
        snapshot = context.provider_cache.current()
        snapshot.names.check([name for group in request.groups for name in group.resources], request.traits)
        rng = random.SystemRandom() if options.randomize_allocation_candidates else None
        limits = search_limits.for_search(options)
        prefilter = Prefilter(snapshot, request)
        found = select(search(prefilter.search_units(rng), prefilter.compiled, limits), request, limits, rng)
        context.db.metrics.search_finished(sum(map(len, found)), time.monotonic() - started)
        for limit in limits.reached:
            context.db.metrics.search_truncated(limit.value)
        return cls(snapshot, request, found, frozenset(limits.reached))

    def providers(self) -> Mapping[Partition, Sequence[int]]:
        """Return the providers whose summaries belong to the answer (api-ref/candidate-search.md#summaries).

        :returns: for each partition, the positions of such providers in it, ascending.
        """
        if not self.request.nested_aware:
            return {partition: sorted(positions) for partition, positions in self._used().items()}
        found = {}
        for partition, numbers in self._trees().items():
            wanted = np.zeros(len(partition.roots), np.bool_)
            wanted[list(numbers)] = True
            found[partition] = np.flatnonzero(wanted[partition.tree_numbers]).tolist()
        return found

    def _trees(self) -> Mapping[Partition, set[int]]:
        """Return for each partition the numbers of the trees that have a provider which a candidate uses."""
        found: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[int] = set()
        for family in self.families:
            unit, amounts = family.search_unit, family.assignment.amounts
            # A candidate at a tree uses at least one provider of it, but perhaps only for a group without resources.
            if isinstance(unit, TreeSearchUnit) and amounts[0][0] < unit.tree_size:
                found[unit.partition].update(unit.numbers)
            if amounts[-1][0] >= unit.tree_size:
                shared.update([one.root_id for one in _shared(family)])
        for root_id in shared:
            partition, number = self.snapshot.find_tree(root_id)
            found[partition].add(number)
        return found

    def _used(self) -> Mapping[Partition, set[int]]:
        """Return for each partition the positions of the providers that a candidate uses."""
        found: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[Provider] = set()
        for family in self.families:
            unit, amounts = family.search_unit, family.assignment.amounts
            if isinstance(unit, TreeSearchUnit):
                for position in {at for at, _, _ in amounts if at < unit.tree_size}:
                    found[unit.partition].update([first + position for first in unit.firsts])
            shared.update(_shared(family))
        for one in shared:
            partition, position = self.snapshot.find_position(one.root_id, one.id)
            found[partition].add(position)
        return found


def _shared(family: Family) -> list[Provider]:
    """Return the sharing providers of other trees that candidates use, some perhaps several times."""
    size = family.search_unit.tree_size
    used = [at - size for at in dict.fromkeys([at for at, _, _ in family.assignment.amounts]) if at >= size]
    return [sharing[index] for sharing in family.search_unit.sharing_of_each() for index in used]
