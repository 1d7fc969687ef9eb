"""Allocation candidates: which providers could serve a request."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from placement.cache.partition import Partition
from placement.cache.prefilter import CachedSearchUnit, Prefilter, TreeSearchUnit
from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import KnownNames, Snapshot
from placement.candidates.limits import Limit
from placement.candidates.providers import Provider
from placement.candidates.request import CandidateRequest
from placement.candidates.search import chosen, search
from placement.candidates.search_units import Assignment, Candidate
from placement.objects import search_limits
from placement.objects.base import Context
from placement.observability.metrics import Metrics


class SearchContext(Context, Protocol):
    """What a search needs of the context of a request."""

    @property
    def provider_cache(self) -> ProviderCache:
        """The mirror that the search reads."""


@dataclass(frozen=True)
class AllocationCandidates:
    """The answer to one request. Providers in it are given by their positions in the blocks of ``snapshot``.

    ``limits_reached`` are the limits of ``[placement]`` without which there might be more candidates.
    """

    snapshot: Snapshot
    request: CandidateRequest
    candidates: Sequence[Candidate]
    limits_reached: frozenset[Limit] = frozenset()

    @classmethod
    def get_by_request(cls, context: SearchContext, request: CandidateRequest) -> AllocationCandidates:
        """Search a committed snapshot of the database that is no older than this call.

        :raises ResourceClassNotFound: a class of any group does not exist.
        :raises TraitNotFound: a trait of any group does not exist.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        started = time.monotonic()
        options = context.conf.placement
        snapshot = context.provider_cache.current()
        _check_names(snapshot.names, request)
        request = request.resolved(snapshot.root_id_of)
        rng = random.SystemRandom() if options.randomize_allocation_candidates else None
        limits = search_limits.limits(options)
        found = chosen(search(Prefilter(snapshot, request).search_units(rng), request, limits), request, limits, rng)
        limits_reached = frozenset(limits.reached)
        _count(context.db.metrics, len(found), limits_reached, time.monotonic() - started)
        return cls(snapshot, request, found, limits_reached)

    def uuids(self, candidate: Candidate, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the uuids of the providers at ``positions`` of the candidate's search_unit (``SearchUnit``)."""
        return cast('CachedSearchUnit', candidate.search_unit).uuids(positions)

    def providers(self) -> Mapping[Partition, Sequence[int]]:
        """Return the providers whose summaries belong to the answer (api-ref/candidate-search.md#summaries).

        :returns: for each block, the positions of such providers in it, ascending.
        """
        if not self.request.nested_aware:
            return {partition: sorted(rows) for partition, rows in self._used().items()}
        found = {}
        for partition, numbers in self._trees().items():
            starts = partition.starts.tolist()
            found[partition] = [row for number in sorted(numbers) for row in range(starts[number], starts[number + 1])]
        return found

    def _trees(self) -> Mapping[Partition, set[int]]:
        """For each block, the numbers of the trees that have a provider which a candidate uses."""
        found: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[int] = set()
        for candidate in self.candidates:
            search_unit, assignment = cast('CachedSearchUnit', candidate.search_unit), candidate.assignment
            # A candidate at a tree uses at least one provider of it, but perhaps only for a group without resources.
            if isinstance(search_unit, TreeSearchUnit) and assignment.amounts[0][0] < search_unit.tree_size:
                found[search_unit.partition].add(search_unit.number)
            if assignment.amounts[-1][0] >= search_unit.tree_size:
                shared.update(one.root_id for one in _shared(search_unit, assignment))
        for root_id in shared:
            partition, number = self.snapshot.find_tree(root_id)
            found[partition].add(number)
        return found

    def _used(self) -> Mapping[Partition, set[int]]:
        """For each block, the positions of the providers that a candidate uses."""
        found: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[Provider] = set()
        for candidate in self.candidates:
            search_unit, assignment = cast('CachedSearchUnit', candidate.search_unit), candidate.assignment
            if isinstance(search_unit, TreeSearchUnit):
                found[search_unit.partition].update(
                    search_unit.first + position
                    for position, _, _ in assignment.amounts
                    if position < search_unit.tree_size
                )
            shared.update(_shared(search_unit, assignment))
        for one in shared:
            partition, row = self.snapshot.find_position(one.root_id, one.id)
            found[partition].add(row)
        return found


def _count(metrics: Metrics, count: int, limits_reached: Collection[Limit], seconds: float) -> None:
    metrics.search_finished(count, seconds)
    for limit in limits_reached:
        metrics.search_truncated(limit.value)


def _check_names(names: KnownNames, request: CandidateRequest) -> None:
    names.check([name for group in request.groups for name in group.resources], request.traits)


def _shared(search_unit: CachedSearchUnit, assignment: Assignment) -> Iterator[Provider]:
    """The sharing providers of other trees that a placement uses."""
    first = search_unit.tree_size
    return (search_unit.sharing[position - first] for position, _, _ in assignment.amounts if position >= first)
