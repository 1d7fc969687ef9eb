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
from placement.cache.snapshot import Names, Snapshot
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
    def mirror(self) -> ProviderCache:
        """The mirror that the search reads."""


@dataclass(frozen=True)
class AllocationCandidates:
    """The answer to one request. Providers in it are given by their positions in the blocks of ``state``.

    ``bounds`` are the limits of ``[placement]`` without which there might be more candidates.
    """

    state: Snapshot
    request: CandidateRequest
    candidates: Sequence[Candidate]
    bounds: frozenset[Limit] = frozenset()

    @classmethod
    def get_by_request(cls, context: SearchContext, request: CandidateRequest) -> AllocationCandidates:
        """Search a committed state of the database that is no older than this call.

        :raises ResourceClassNotFound: a class of any group does not exist.
        :raises TraitNotFound: a trait of any group does not exist.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        started = time.monotonic()
        options = context.conf.placement
        state = context.mirror.current()
        _check_names(state.names, request)
        request = request.resolved(state.root_of)
        rng = random.SystemRandom() if options.randomize_allocation_candidates else None
        budget = search_limits.budget(options)
        found = chosen(search(Prefilter(state, request).sites(rng), request, budget), request, budget, rng)
        bounds = frozenset(budget.met)
        _count(context.db.metrics, len(found), bounds, time.monotonic() - started)
        return cls(state, request, found, bounds)

    def uuids(self, candidate: Candidate, positions: Sequence[int]) -> tuple[str, ...]:
        """Return the uuids of the providers at ``positions`` of the candidate's site (``SearchUnit``)."""
        return cast('CachedSearchUnit', candidate.site).uuids(positions)

    def providers(self) -> Mapping[Partition, Sequence[int]]:
        """Return the providers whose summaries belong to the answer (api-ref/candidate-search.md#summaries).

        :returns: for each block, the positions of such providers in it, ascending.
        """
        if not self.request.nested_aware:
            return {block: sorted(rows) for block, rows in self._used().items()}
        found = {}
        for block, numbers in self._trees().items():
            starts = block.starts.tolist()
            found[block] = [row for number in sorted(numbers) for row in range(starts[number], starts[number + 1])]
        return found

    def _trees(self) -> Mapping[Partition, set[int]]:
        """For each block, the numbers of the trees that have a provider which a candidate uses."""
        found: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[int] = set()
        for candidate in self.candidates:
            site, placement = cast('CachedSearchUnit', candidate.site), candidate.placement
            # A candidate at a tree uses at least one provider of it, but perhaps only for a group without resources.
            if isinstance(site, TreeSearchUnit) and placement.amounts[0][0] < site.shared_from:
                found[site.block].add(site.number)
            if placement.amounts[-1][0] >= site.shared_from:
                shared.update(one.root_id for one in _shared(site, placement))
        for root_id in shared:
            block, number = self.state.locate(root_id)
            found[block].add(number)
        return found

    def _used(self) -> Mapping[Partition, set[int]]:
        """For each block, the positions of the providers that a candidate uses."""
        found: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[Provider] = set()
        for candidate in self.candidates:
            site, placement = cast('CachedSearchUnit', candidate.site), candidate.placement
            if isinstance(site, TreeSearchUnit):
                found[site.block].update(
                    site.first + position for position, _, _ in placement.amounts if position < site.shared_from
                )
            shared.update(_shared(site, placement))
        for one in shared:
            block, row = self.state.position(one.root_id, one.id)
            found[block].add(row)
        return found


def _count(metrics: Metrics, count: int, bounds: Collection[Limit], seconds: float) -> None:
    metrics.candidates(count, seconds)
    for bound in bounds:
        metrics.search_bounded(bound.value)


def _check_names(names: Names, request: CandidateRequest) -> None:
    names.check([name for group in request.groups for name in group.resources], request.traits)


def _shared(site: CachedSearchUnit, placement: Assignment) -> Iterator[Provider]:
    """The sharing providers of other trees that a placement uses."""
    first = site.shared_from
    return (site.sharing[position - first] for position, _, _ in placement.amounts if position >= first)
