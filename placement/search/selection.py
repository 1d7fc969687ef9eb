"""Selects the candidates of a response (the first ones or a sample), and the providers that it shows."""

from __future__ import annotations

import itertools
import random
import sys
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement.cache.partition import Partition
from placement.cache.providers import Provider
from placement.cache.snapshot import Snapshot
from placement.search.budget import Limit, SearchBudget
from placement.search.prefilter import TreeSearchUnit
from placement.search.request import CandidateRequest
from placement.search.search_units import CandidateSet


@dataclass(frozen=True)
class AllocationCandidates:
    """The candidates of one request, in order. They refer to providers by position in search units.

    Without the limits in ``limits_reached``, which ``[placement]`` sets, there might be more candidates.
    """

    snapshot: Snapshot
    request: CandidateRequest
    candidate_sets: Sequence[CandidateSet]
    limits_reached: frozenset[Limit] = frozenset()

    def providers(self) -> Mapping[Partition, Sequence[int]]:
        """Return the providers whose summaries belong to the response (api-ref/candidate-search.md#summaries).

        :returns: for each partition, the positions of these providers, ascending.
        """
        if not self.request.nested_aware:
            return {partition: sorted(positions) for partition, positions in self._used().items()}
        listed = {}
        for partition, numbers in self._trees().items():
            is_used = np.zeros(len(partition.roots), np.bool_)
            is_used[list(numbers)] = True
            listed[partition] = np.flatnonzero(is_used[partition.tree_numbers]).tolist()
        return listed

    def _trees(self) -> Mapping[Partition, set[int]]:
        """Return for each partition the numbers of the trees from which candidates use providers."""
        tree_numbers: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[int] = set()
        for candidate_set in self.candidate_sets:
            unit, amounts = candidate_set.search_unit, candidate_set.assignment.amounts
            # If the providers of the tree serve only groups without resources, the tree has no summaries.
            if isinstance(unit, TreeSearchUnit) and amounts[0][0] < unit.tree_size:
                tree_numbers[unit.partition].update(unit.numbers)
            if amounts[-1][0] >= unit.tree_size:
                shared.update([provider.root_id for provider in _shared(candidate_set)])
        for root_id in shared:
            partition, number = self.snapshot.find_tree(root_id)
            tree_numbers[partition].add(number)
        return tree_numbers

    def _used(self) -> Mapping[Partition, set[int]]:
        """Return for each partition the positions of the providers that candidates use."""
        used: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[Provider] = set()
        for candidate_set in self.candidate_sets:
            unit, amounts = candidate_set.search_unit, candidate_set.assignment.amounts
            if isinstance(unit, TreeSearchUnit):
                for position in {index for index, _, _ in amounts if index < unit.tree_size}:
                    used[unit.partition].update([first + position for first in unit.firsts])
            shared.update(_shared(candidate_set))
        for provider in shared:
            partition, position = self.snapshot.find_position(provider.root_id, provider.id)
            used[partition].add(position)
        return used


def _shared(candidate_set: CandidateSet) -> list[Provider]:
    """Return the sharing providers of other trees that candidates use. The list may have duplicates."""
    size = candidate_set.search_unit.tree_size
    positions = dict.fromkeys([position for position, _, _ in candidate_set.assignment.amounts])
    used = [position - size for position in positions if position >= size]
    return [sharing[index] for sharing in candidate_set.search_unit.sharing_of_each() for index in used]


def select(
    candidate_sets: Iterator[CandidateSet],
    request: CandidateRequest,
    budget: SearchBudget,
    rng: random.Random | None = None,
) -> list[CandidateSet]:
    """Return candidates up to the limit of ``request``: the first ones, or a uniform sample in random order.

    Unless there is only one candidate, their size is at most ``budget.max_size``. If the first candidates reach the
    limit of the request, this clears ``budget.reached``. For a sample it does not: ``reached`` tells that the sample
    may not be uniform.

    :param rng: selects a sample; None selects the first candidates.
    """
    if rng is not None:
        return _sample(candidate_sets, request, budget, rng)
    selected: list[CandidateSet] = []
    remaining, size_remaining, entries = request.limit or sys.maxsize, budget.max_size, max_entries(request)
    for candidate_set in candidate_sets:
        selected.append(candidate_set if len(candidate_set) <= remaining else candidate_set[:remaining])
        remaining -= len(selected[-1])
        size_remaining -= len(selected[-1]) * (entries + candidate_set.search_unit.tree_size)
        if size_remaining < 0:
            # The sum of the upper bounds is too large, so compute the exact size.
            candidates = itertools.chain.from_iterable(itertools.chain(selected, candidate_sets))
            selected = _within_size(candidates, ResponseSize(request), request, budget)
            remaining = (request.limit or sys.maxsize) - len(selected)
            break
        if not remaining:
            break
    if not remaining:
        budget.reached.clear()
    return selected


def max_entries(request: CandidateRequest) -> int:
    """Return an upper bound of a candidate's part of ``ResponseSize``, without the unused providers of its tree."""
    mapped = request.with_mappings
    return sum(2 * len(group.resources) + mapped * max(len(group.resources), 1) for group in request.groups)


def _within_size(
    candidates: Iterator[CandidateSet], size: ResponseSize, request: CandidateRequest, budget: SearchBudget
) -> list[CandidateSet]:
    """Return the first candidates, up to the limit of the request and the size of the response.

    :param candidates: sets of one candidate.
    """
    selected: list[CandidateSet] = []
    for candidate in itertools.islice(candidates, request.limit):
        size.count_candidate(candidate, 1)
        if size.total > budget.max_size and selected:
            size.count_candidate(candidate, -1)
            budget.reached.add(Limit.RESPONSE_SIZE)
            break
        selected.append(candidate)
    return selected


def _sample(
    candidate_sets: Iterator[CandidateSet], request: CandidateRequest, budget: SearchBudget, rng: random.Random
) -> list[CandidateSet]:
    """Sample with a reservoir. This reads all candidates, but keeps only the sample."""
    candidates = itertools.chain.from_iterable(candidate_sets)
    size = ResponseSize(request)
    selected = _within_size(candidates, size, request, budget)
    for count, candidate in enumerate(candidates, start=len(selected) + 1):
        place = rng.randrange(count)
        if place < len(selected):
            former = selected[place]
            size.count_candidate(former, -1)
            size.count_candidate(candidate, 1)
            if size.total <= budget.max_size:
                selected[place] = candidate
            else:
                budget.reached.add(Limit.RESPONSE_SIZE)
                size.count_candidate(candidate, -1)
                size.count_candidate(former, 1)
    rng.shuffle(selected)
    return selected


class ResponseSize:
    """The size of a response to ``request``, updated as candidates are added and removed.

    ``total`` counts each pair of provider and class of each candidate, each provider in its mappings, and each provider
    that a candidate uses, because it has a summary. From 1.29 on it also counts the rest of the search unit's tree, if
    the candidate uses a provider of it; but not the rest of the trees of other sharing providers.
    """

    def __init__(self, request: CandidateRequest) -> None:
        self.total = 0
        self._whole_trees = request.nested_aware
        self._users: dict[Hashable, int] = {}

    def count_candidate(self, candidate: CandidateSet, by: int) -> None:
        """Add a candidate (``by`` is 1) or remove it (-1).

        :param candidate: a set of one candidate.
        """
        unit, amounts = candidate.search_unit, candidate.assignment.amounts
        self.total += by * (len(amounts) + sum(map(len, candidate.assignment.mappings)))
        counted = 0
        if self._whole_trees and amounts[0][0] < unit.tree_size:
            counted = unit.tree_size
            self._use(('tree', unit.tree[0].id), counted, by)
        for position in {position for position, _, _ in amounts if position >= counted}:
            self._use(unit.provider(position).id, 1, by)

    def _use(self, key: Hashable, weight: int, by: int) -> None:
        users = self._users.get(key, 0) + by
        if users == 0:
            del self._users[key]
            self.total -= weight
            return
        if users == by:
            self.total += weight
        self._users[key] = users
