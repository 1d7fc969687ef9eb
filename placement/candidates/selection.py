"""Selects the candidates of an answer: the first ones or a sample, within the limit of the answer's size."""

from __future__ import annotations

import itertools
import random
import sys
from collections.abc import Hashable, Iterator

from placement.candidates.limits import Limit, SearchLimits
from placement.candidates.request import CandidateRequest
from placement.candidates.search_units import Family


def select(
    families: Iterator[Family], request: CandidateRequest, limits: SearchLimits, rng: random.Random | None = None
) -> list[Family]:
    """Return candidates up to the limit of ``request``: the first of all, or a uniform sample in random order.

    Their size is at most ``limits.max_size``, unless there is only one. If they reach the limit of the request,
    ``limits.reached`` is emptied, except for a sample, which then may not be uniform.

    :param rng: for a sample; None for the first ones.
    """
    if rng is not None:
        return _sample(families, request, limits, rng)
    selected: list[Family] = []
    left, size_left, entries = request.limit or sys.maxsize, limits.max_size, max_entries(request)
    for family in families:
        selected.append(family if len(family) <= left else family[:left])
        left -= len(selected[-1])
        size_left -= len(selected[-1]) * (entries + family.search_unit.tree_size)
        if size_left < 0:
            # The sum of the upper bounds is too large, so the exact size is needed.
            candidates = itertools.chain.from_iterable(itertools.chain(selected, families))
            selected = _within_size(candidates, AnswerSize(request), request, limits)
            left = (request.limit or sys.maxsize) - len(selected)
            break
        if not left:
            break
    if not left:
        limits.reached.clear()
    return selected


def max_entries(request: CandidateRequest) -> int:
    """Return an upper bound of the size of one candidate, as ``AnswerSize``, without other providers of its tree."""
    mapped = request.with_mappings
    return sum(2 * len(group.resources) + mapped * max(len(group.resources), 1) for group in request.groups)


def _within_size(
    candidates: Iterator[Family], size: AnswerSize, request: CandidateRequest, limits: SearchLimits
) -> list[Family]:
    """Return the first candidates, up to the limit of the request and the size of the answer.

    :param candidates: families of one.
    """
    selected: list[Family] = []
    for candidate in itertools.islice(candidates, request.limit):
        size.add(candidate)
        if size.total > limits.max_size and selected:
            size.remove(candidate)
            limits.reached.add(Limit.ANSWER_SIZE)
            break
        selected.append(candidate)
    return selected


def _sample(
    families: Iterator[Family], request: CandidateRequest, limits: SearchLimits, rng: random.Random
) -> list[Family]:
    """Sample with a reservoir: this reads all candidates, but keeps no more at a time than it returns."""
    candidates = itertools.chain.from_iterable(families)
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

    def add(self, candidate: Family) -> None:
        """Count ``candidate``, a family of one."""
        self._change(candidate, 1)

    def remove(self, candidate: Family) -> None:
        """No longer count ``candidate``, which was added before."""
        self._change(candidate, -1)

    def _change(self, candidate: Family, by: int) -> None:
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
