"""Selects the candidates of a response (the first ones or a sample), and the providers that it shows."""

from __future__ import annotations

import itertools
import operator
import random
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from placement.cache.partition import Partition
from placement.cache.providers import UUID_BYTES, Provider, summary_size
from placement.cache.snapshot import Snapshot
from placement.search.budget import MIN_CANDIDATE_BYTES, Limit, SearchBudget
from placement.search.request import CandidateRequest
from placement.search.search_units import CandidateSet, TreeSearchUnit

#: The bytes of the JSON of a candidate without names, amounts and suffixes: of the candidate, each provider in it, each
#: amount, each group in the mappings, and each provider of a group.
_CANDIDATE_BYTES = len('{"allocations":{},"mappings":{}},')
_PROVIDER_BYTES = len('"":{"resources":{}},') + UUID_BYTES
_AMOUNT_BYTES = len('"":,')
_GROUP_BYTES = len('"":[],')
_MAPPED_PROVIDER_BYTES = len('"",') + UUID_BYTES


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

        From 1.29 on these are whole trees, so one provider that a candidate uses stands for its tree.

        :returns: for each partition, the positions of these providers, ascending.
        """
        used: defaultdict[Partition, set[int]] = defaultdict(set)
        shared: set[Provider] = set()
        for candidate_set in self.candidate_sets:
            unit, amounts = candidate_set.search_unit, candidate_set.assignment.amounts
            size, first_position = unit.tree_size, amounts[0][0]
            # Amounts are in order of position. Below 1.29 a candidate uses only one provider of the tree. If providers
            # of the tree serve only groups without resources, no position is in the tree.
            if isinstance(unit, TreeSearchUnit) and first_position < size:
                used[unit.partition].update([first + first_position for first in unit.firsts])
            if amounts[-1][0] >= size:
                indexes = [position - size for position, _, _ in amounts if position >= size]
                shared.update([sharing[index] for sharing in unit.sharing_of_each() for index in indexes])
        # Sorted, so that equal searches have equal responses: a set of objects has another order in each process.
        for provider in sorted(shared, key=operator.attrgetter('root_id')):
            partition, position = self.snapshot.find_position(provider)
            used[partition].add(position)
        listed: dict[Partition, Sequence[int]] = {}
        for partition, positions in used.items():
            if self.request.nested_aware:
                in_used_tree = np.zeros(len(partition.roots), np.bool_)
                in_used_tree[partition.tree_numbers[list(positions)]] = True
                listed[partition] = np.flatnonzero(in_used_tree[partition.tree_numbers]).tolist()
            else:
                listed[partition] = sorted(positions)
        return listed


def select(
    candidate_sets: Iterator[CandidateSet],
    snapshot: Snapshot,
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
        # One candidate more than fit into a response.
        limit = min(request.limit or sys.maxsize, budget.max_size // MIN_CANDIDATE_BYTES + 1)
        candidate_sets = iter(_sample(itertools.chain.from_iterable(candidate_sets), limit, rng))
    selected: list[CandidateSet] = []
    remaining, size_remaining = request.limit or sys.maxsize, budget.max_size
    max_candidate, max_summary = max_candidate_size(request), snapshot.max_summary_size
    # Each amount comes from one provider.
    max_sharing = len(request.requested_classes)
    for candidate_set in candidate_sets:
        selected.append(candidate_set if len(candidate_set) <= remaining else candidate_set[:remaining])
        remaining -= len(selected[-1])
        unit = candidate_set.search_unit
        summaries = unit.tree_size + min(len(unit.sharing), max_sharing)
        size_remaining -= len(selected[-1]) * (max_candidate + summaries * max_summary)
        if size_remaining < 0:
            # The sum of the upper bounds is too large, so compute the exact size.
            selected = _within_size(itertools.chain(selected, candidate_sets), request, budget)
            remaining = (request.limit or sys.maxsize) - len(selected)
            break
        if not remaining:
            break
    if not remaining and rng is None:
        budget.reached.clear()
    return selected


def _sample(candidates: Iterator[CandidateSet], limit: int, rng: random.Random) -> list[CandidateSet]:
    """Return a uniform sample of up to ``limit`` candidates in random order. Memory is needed only for the sample.

    :param candidates: sets of one candidate.
    """
    sample = list(itertools.islice(candidates, limit))
    for count, candidate in enumerate(candidates, start=len(sample) + 1):
        place = rng.randrange(count)
        if place < len(sample):
            sample[place] = candidate
    rng.shuffle(sample)
    return sample


def max_candidate_size(request: CandidateRequest) -> int:
    """Return an upper bound of a candidate's part of ``ResponseSize``, without summaries."""
    size = _CANDIDATE_BYTES
    for group in request.groups:
        for name, amount in group.resources.items():
            size += _PROVIDER_BYTES + _AMOUNT_BYTES + len(f'{name}{amount}')
        if request.with_mappings:
            size += _GROUP_BYTES + len(group.suffix) + max(len(group.resources), 1) * _MAPPED_PROVIDER_BYTES
    return size


def _within_size(
    candidate_sets: Iterable[CandidateSet], request: CandidateRequest, budget: SearchBudget
) -> list[CandidateSet]:
    """Return the first candidates, as sets of one, up to the limit of the request and the size of the response."""
    selected: list[CandidateSet] = []
    size = ResponseSize(request)
    for candidate in itertools.islice(itertools.chain.from_iterable(candidate_sets), request.limit):
        size.add_candidate(candidate)
        if size.total > budget.max_size and selected:
            budget.reached.add(Limit.ANSWER_SIZE)
            break
        selected.append(candidate)
    return selected


class ResponseSize:
    """About the number of bytes of a response to ``request``, updated as candidates are added.

    ``total`` counts each candidate with its amounts and mappings, and each provider that a candidate uses, because it
    has a summary. From 1.29 on it also counts the rest of the search unit's tree, if the candidate uses a provider of
    it; but not the rest of the trees of other sharing providers. The response has less than that below 1.29, because
    summaries have fewer members there.
    """

    def __init__(self, request: CandidateRequest) -> None:
        self.total = 0
        self._whole_trees = request.nested_aware
        self._suffixes_size = sum(_GROUP_BYTES + len(group.suffix) for group in request.groups)
        self._provider_ids: set[int] = set()

    def add_candidate(self, candidate: CandidateSet) -> None:
        """Add a candidate.

        :param candidate: a set of one candidate.
        """
        unit, amounts, mappings = candidate.search_unit, candidate.assignment.amounts, candidate.assignment.mappings
        positions = {position for position, _, _ in amounts}
        self.total += _CANDIDATE_BYTES + len(positions) * _PROVIDER_BYTES + len(amounts) * _AMOUNT_BYTES
        self.total += sum([len(f'{name}{amount}') for _, name, amount in amounts])
        if mappings:
            self.total += self._suffixes_size + sum(map(len, mappings)) * _MAPPED_PROVIDER_BYTES
        if self._whole_trees and amounts[0][0] < unit.tree_size:
            positions.update(range(unit.tree_size))
        for provider in map(unit.provider, positions):
            if provider.id not in self._provider_ids:
                self._provider_ids.add(provider.id)
                self.total += summary_size(provider.inventories, provider.traits)
