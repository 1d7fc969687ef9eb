"""How much an answer holds: amounts of candidates, and the provider summaries that belong to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from placement.candidates.request import CandidateRequest
from placement.candidates.sites import Candidate


class Size:
    """The size of an answer to ``request``, kept up to date as candidates are added and removed.

    ``total`` counts one for each (provider, class) of each candidate and one for each provider with a summary: those
    in use, and from 1.29 on all of the tree. A sharing provider that serves another tree counts as one, whatever is in
    its own tree.
    """

    def __init__(self, request: CandidateRequest) -> None:
        self.total = 0
        self._whole_trees = request.nested_aware
        self._users: dict[Hashable, int] = {}

    def add(self, candidate: Candidate) -> None:
        """Count ``candidate`` in."""
        self._change(candidate, 1)

    def remove(self, candidate: Candidate) -> None:
        """Count ``candidate``, which was added, out."""
        self._change(candidate, -1)

    def _change(self, candidate: Candidate, by: int) -> None:
        site, amounts = candidate.site, candidate.placement.amounts
        self.total += by * len(amounts)
        alone = 0
        if self._whole_trees:
            alone = site.shared_from
            self._use(('tree', id(site)), alone, by)
        for position in {position for position, _, _ in amounts if position >= alone}:
            self._use(site.ids[position], 1, by)

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
    """Return what the size of an answer of ``candidates`` cannot exceed, much faster than adding them one by one."""
    parts = 2 * sum(len(group.resources) for group in request.groups)
    return sum([parts + candidate.site.shared_from for candidate in candidates])
