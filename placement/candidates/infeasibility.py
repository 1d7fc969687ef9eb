"""Proves in few steps that not all variables can be assigned, where backtracking would try every combination.

Each test is a necessary condition: variables that fail one cannot be assigned; those that pass all may still not be.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from placement.candidates import subtree
from placement.candidates.limits import StepCounter
from placement.candidates.requirements import Reason
from placement.candidates.search_units import Providers
from placement.candidates.subtree import Domain, Subtree
from placement.candidates.variables import Variable

#: Maximum number of positions that the tests of one search unit visit. Then they end without a result.
_MAX_POSITIONS = 50_000


class _TooLong(Exception):
    """The tests have visited ``_MAX_POSITIONS`` positions."""


class _Effort:
    """Counts the visited positions."""

    def __init__(self, counter: StepCounter) -> None:
        self._left = _MAX_POSITIONS
        self._counter = counter

    def count(self, positions: int) -> None:
        self._left -= positions
        if self._left < 0:
            raise _TooLong
        self._counter.count(positions)


@dataclass(frozen=True)
class _Demand:
    """The amount of one class that a variable requests, and its domain."""

    amount: int
    domain: Domain
    isolated: bool


def find_conflict(variables: Sequence[Variable], providers: Providers, counter: StepCounter) -> Reason | None:
    """Return why ``variables`` cannot all be assigned to ``providers``; None if they perhaps can.

    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    try:
        return _find_conflict(variables, providers, _Effort(counter))
    except _TooLong:
        return None


def find_subtree_conflict(variables: Sequence[Variable], providers: Providers, counter: StepCounter) -> Reason | None:
    """Remove tops below which the variables of a ``same_subtree`` cannot be assigned; return a reason if none is left.

    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    members: defaultdict[Subtree, list[Variable]] = defaultdict(list)
    for variable in variables:
        for condition, _ in variable.subtrees:
            members[condition].append(variable)
    effort = _Effort(counter)
    try:
        for condition, some in members.items():
            if not _compete(some):
                continue
            below = {variable.domain: _by_top(variable.domain, condition, effort) for variable in some}
            tops = [top for top in _positions(condition.tops) if _fit_below(top, below, some, providers, effort)]
            condition.restrict(subtree.bits(tops))
            if not tops:
                return Reason.SUBTREE
    except _TooLong:
        return None
    return None


def _by_top(domain: Domain, condition: Subtree, effort: _Effort) -> Mapping[int, Domain]:
    """Return for each top of a condition which of ``domain`` are at it or below it."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for position in domain:
        tops = condition.above[position] & condition.tops
        effort.count(1 + tops.bit_count())
        for top in _positions(tops):
            found[top].append(position)
    return {top: tuple(positions) for top, positions in found.items()}


def _fit_below(
    top: int,
    below: Mapping[Domain, Mapping[int, Domain]],
    variables: Sequence[Variable],
    providers: Providers,
    effort: _Effort,
) -> bool:
    """Return whether the variables of a condition can perhaps be assigned to ``top`` and below it."""
    effort.count(len(variables))
    within = [replace(variable, domain=below[variable.domain].get(top, ())) for variable in variables]
    return all(variable.domain for variable in within) and _find_conflict(within, providers, effort) is None


def _compete(variables: Sequence[Variable]) -> bool:
    """Return whether variables may exclude one another: they name the same class, or are isolated."""
    names = [name for variable in variables for name, _ in variable.requirement.resources]
    return len(set(names)) < len(names) or sum(variable.isolated for variable in variables) > 1


def _positions(bits: int) -> Iterator[int]:
    """Yield the positions of a set (``candidates.subtree``)."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _find_conflict(variables: Sequence[Variable], providers: Providers, effort: _Effort) -> Reason | None:
    if not _compete(variables):
        return None
    isolated = [variable.domain for variable in variables if variable.isolated]
    contested = list(_contested(variables))
    headrooms = [_headroom(name, demands, providers, effort) for name, demands in contested]
    for (_, demands), headroom in zip(contested, headrooms, strict=True):
        if sum(one.amount for one in demands) > sum(headroom.values()):
            return Reason.TOO_LITTLE_CAPACITY
    if len(isolated) > 1 and not _all_served(isolated, dict.fromkeys(itertools.chain(*isolated), 1), effort):
        return Reason.TOO_FEW_PROVIDERS
    for (_, demands), headroom in zip(contested, headrooms, strict=True):
        if not _large_ones_fit(demands, headroom, effort):
            return Reason.TOO_FEW_WITH_CAPACITY
    return None


def isolation_fails(variables: Sequence[Variable], taken: Collection[int], counter: StepCounter) -> bool:
    """Return whether there are too few providers for the isolated ones of ``variables`` to have one each.

    :param taken: the positions of providers that are not free any more.
    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    effort = _Effort(counter)
    try:
        free = {
            id(variable.domain): tuple([one for one in variable.domain if one not in taken]) for variable in variables
        }
        isolated = [free[id(variable.domain)] for variable in variables if variable.isolated]
        effort.count(sum(map(len, free.values())))
        return not _all_served(isolated, dict.fromkeys(itertools.chain(*isolated), 1), effort)
    except _TooLong:
        return False


def _contested(variables: Sequence[Variable]) -> Iterator[tuple[str, list[_Demand]]]:
    """Yield each class that several variables name, with their demands, the smallest amount first."""
    naming: defaultdict[str, list[_Demand]] = defaultdict(list)
    for variable in variables:
        for name, amount in variable.requirement.resources:
            naming[name].append(_Demand(amount, variable.domain, variable.isolated))
    for name, demands in naming.items():
        if len(demands) > 1:
            demands.sort(key=lambda one: one.amount)
            yield name, demands


def _headroom(name: str, demands: Sequence[_Demand], providers: Providers, effort: _Effort) -> dict[int, int]:
    """Return the headroom of a class, by position, of each provider in any of the domains."""
    distinct = {id(one.domain): one.domain for one in demands}.values()
    effort.count(sum(map(len, distinct)))
    positions = set().union(*distinct)
    return {position: providers[position].inventories[name].headroom for position in positions}


def _large_ones_fit(demands: Sequence[_Demand], headroom: Mapping[int, int], effort: _Effort) -> bool:
    """Return whether, for each amount, the variables with at least that amount can be distributed over the providers.

    A provider gets at most as many of them as fit when the smallest are taken first.
    """
    amounts = [one.amount for one in demands]
    sums = list(itertools.accumulate(amounts, initial=0))
    for first, amount in enumerate(amounts):
        if first and amount == amounts[first - 1]:
            continue
        large = demands[first:]
        together = sum(not one.isolated for one in large) + any(one.isolated for one in large)
        effort.count(len(headroom))
        # By position, how many of the large ones fit.
        max_variables = {
            position: min(bisect_right(sums, sums[first] + left) - 1 - first, together)
            for position, left in headroom.items()
        }
        if not _all_served([one.domain for one in large], max_variables, effort):
            return False
    return True


def _all_served(domains: Sequence[Domain], max_variables: Mapping[int, int], effort: _Effort) -> bool:
    """Return whether each variable can get one of its domain, so that no position has more than ``max_variables``.

    A bipartite matching, made with augmenting paths.

    :param domains: the domain of each variable.
    :param max_variables: the number of variables that a position can have.
    """
    distinct = {id(domain): domain for domain in domains}.values()
    effort.count(sum(map(len, distinct)))
    if all(sum(max_variables[position] for position in domain) >= len(domains) for domain in distinct):
        return True
    if sum(max_variables[position] for position in set().union(*distinct)) < len(domains):
        return False
    matching = _Matching(domains, max_variables, effort)
    return all(matching.serve(index) for index in range(len(domains)))


class _Matching:
    """A bipartite matching of variables, known by their index, to positions."""

    def __init__(self, domains: Sequence[Domain], max_variables: Mapping[int, int], effort: _Effort) -> None:
        self._domains = domains
        self._max_variables = max_variables
        self._effort = effort
        self._position_of: dict[int, int] = {}
        self._assigned: defaultdict[int, list[int]] = defaultdict(list)

    def serve(self, start: int) -> bool:
        """Assign variable ``start``, moving others along a shortest path; return whether that is possible."""
        came_from: dict[int, int] = {}
        queue = [start]
        for index in queue:
            self._effort.count(len(self._domains[index]))
            for position in self._domains[index]:
                if position in came_from:
                    continue
                came_from[position] = index
                assigned = self._assigned[position]
                if len(assigned) < self._max_variables[position]:
                    self._move(came_from, position)
                    return True
                queue.extend(assigned)
        return False

    def _move(self, came_from: Mapping[int, int], free: int) -> None:
        while True:
            index = came_from[free]
            self._assigned[free].append(index)
            before = self._position_of.get(index)
            self._position_of[index] = free
            if before is None:
                return
            self._assigned[before].remove(index)
            free = before
