"""The size of an answer: the number of amounts in its candidates, and of provider summaries."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from placement.candidates.request import CandidateRequest
from placement.candidates.search_units import Candidate


class Size:
    """The size of an answer to ``request``, kept up to date as candidates are added and removed.

    ``total`` is 1 for each (provider, class) of each candidate, 1 for each provider in its mappings, and 1 for each
    provider with a summary: the providers in use and, from 1.29 on, all others of the candidate's tree if it uses any
    of that. Of the tree of a sharing provider from elsewhere only that provider is counted.
    """

    def __init__(self, request: CandidateRequest) -> None:
        self.total = 0
        self._whole_trees = request.nested_aware
        self._users: dict[Hashable, int] = {}

    def add(self, candidate: Candidate) -> None:
        """Count ``candidate``."""
        self._change(candidate, 1)

    def remove(self, candidate: Candidate) -> None:
        """No longer count ``candidate``, which was added before."""
        self._change(candidate, -1)

    def _change(self, candidate: Candidate, by: int) -> None:
        search_unit, amounts = candidate.search_unit, candidate.assignment.amounts
        self.total += by * (len(amounts) + sum(map(len, candidate.assignment.mappings)))
        alone = 0
        if self._whole_trees and amounts[0][0] < search_unit.tree_size:
            alone = search_unit.tree_size
            self._use(('tree', id(search_unit)), alone, by)
        for position in {position for position, _, _ in amounts if position >= alone}:
            self._use(search_unit.ids[position], 1, by)

    def _use(self, key: Hashable, weight: int, by: int) -> None:
        users = self._users.get(key, 0) + by
        if users == 0:
            del self._users[key]
            self.total -= weight
            return
        if users == by:
            self.total += weight
        self._users[key] = users


def at_most(candidates: Iterable[Candidate], request: CandidateRequest) -> int:
    """Return an upper bound of the size of an answer of ``candidates``, which is much faster than ``Size``."""
    mapped = request.with_mappings
    parts = sum(2 * len(group.resources) + mapped * max(len(group.resources), 1) for group in request.groups)
    return sum([parts + candidate.search_unit.tree_size for candidate in candidates])
