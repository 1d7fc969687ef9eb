"""Selects the candidates of an answer: the first ones or a sample, within the limit of the answer's size."""

from __future__ import annotations

import itertools
import random
from collections.abc import Hashable, Iterable, Iterator

from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.request import CandidateRequest
from placement.candidates.search_units import Candidate

#: The number of candidates that are taken before their size is checked.
_BATCH = 1000


def select(
    candidates: Iterator[Candidate], request: CandidateRequest, limits: SearchLimits, rng: random.Random | None = None
) -> list[Candidate]:
    """Return as many of ``candidates`` as ``request`` asks for: the first, or a uniform sample in random order.

    Their size is at most ``limits.max_size``, unless there is only one. If there are as many as the request asks for,
    ``limits.reached`` is emptied, except for a sample, which then may not be uniform.

    :param rng: for a sample; None for the first ones.
    """
    if rng is not None:
        return _sample(candidates, request, limits, rng)
    selected = _first(candidates, request, limits)
    if len(selected) == request.limit:
        limits.reached.clear()
    return selected


def _first(candidates: Iterator[Candidate], request: CandidateRequest, limits: SearchLimits) -> list[Candidate]:
    selected: list[Candidate] = []
    wanted = itertools.islice(candidates, request.limit)
    left = limits.max_size
    while left >= 0:
        batch = list(itertools.islice(wanted, _BATCH))
        if not batch:
            return selected
        selected += batch
        left -= at_most(batch, request)
    # The sum of the upper bounds is too large, so the exact size is needed.
    return _within_size(itertools.chain(selected, wanted), AnswerSize(request), request, limits)


def at_most(candidates: Iterable[Candidate], request: CandidateRequest) -> int:
    """Return an upper bound of the size of an answer of ``candidates``, which is much faster than ``AnswerSize``."""
    mapped = request.with_mappings
    amounts = sum(2 * len(group.resources) + mapped * max(len(group.resources), 1) for group in request.groups)
    return sum([amounts + candidate.search_unit.tree_size for candidate in candidates])


def _within_size(
    candidates: Iterator[Candidate], size: AnswerSize, request: CandidateRequest, limits: SearchLimits
) -> list[Candidate]:
    """Return the first candidates, up to the limit of the request and the size of the answer."""
    selected: list[Candidate] = []
    for candidate in itertools.islice(candidates, request.limit):
        size.add(candidate)
        if size.total > limits.max_size and selected:
            size.remove(candidate)
            limits.reached.add(Limit.ANSWER_SIZE)
            break
        selected.append(candidate)
    return selected


def _sample(
    candidates: Iterator[Candidate], request: CandidateRequest, limits: SearchLimits, rng: random.Random
) -> list[Candidate]:
    """Sample with a reservoir: this reads all candidates, but keeps no more at a time than it returns."""
    size = AnswerSize(request)
    selected = _within_size(candidates, size, request, limits)
    for count, candidate in enumerate(candidates, start=len(selected) + 1):
        place = rng.randrange(count)
        if place < len(selected):
            former = selected[place]
            size.remove(former)
            size.add(candidate)
            if size.total <= limits.max_size:
                selected[place] = candidate
            else:
                limits.reached.add(Limit.ANSWER_SIZE)
                size.remove(candidate)
                size.add(former)
    rng.shuffle(selected)
    return selected


class AnswerSize:
    """The size of an answer to ``request``, updated as candidates are added and removed.

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
        unit, amounts = candidate.search_unit, candidate.assignment.amounts
        self.total += by * (len(amounts) + sum(map(len, candidate.assignment.mappings)))
        counted = 0
        if self._whole_trees and amounts[0][0] < unit.tree_size:
            counted = unit.tree_size
            self._use(('tree', id(unit)), counted, by)
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
