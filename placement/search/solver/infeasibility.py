"""Proves in few steps that not all variables can be assigned. Backtracking would try every combination.

Each test is a necessary condition. Variables that fail one cannot be assigned; variables that pass all may be
assignable.
"""

from __future__ import annotations

import contextlib
import itertools
import operator
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from placement.search.budget import Reason, StepCounter
from placement.search.search_units import Providers
from placement.search.solver import subtree
from placement.search.solver.matching import Matching
from placement.search.solver.subtree import Domain, Subtree
from placement.search.solver.variables import Variable

#: Maximum number of positions that one proof visits. Beyond it, it finds no conflict.
_MAX_POSITIONS = 50_000


class _PositionLimitReached(Exception):
    """A proof has visited ``_MAX_POSITIONS`` positions."""


class _PositionLimit:
    """Ends a proof after ``_MAX_POSITIONS`` positions. Each visited position also counts as a step."""

    def __init__(self, counter: StepCounter) -> None:
        self._remaining = _MAX_POSITIONS
        self._counter = counter

    def count_positions(self, positions: int) -> None:
        self._remaining -= positions
        if self._remaining < 0:
            raise _PositionLimitReached
        self._counter.count_steps(positions)


#: The variables that name one class, each with its amount, in ascending order of amount.
_Demands = list[tuple[int, Variable]]


def find_conflict(variables: Sequence[Variable], providers: Providers, counter: StepCounter) -> Reason | None:
    """Return why ``providers`` cannot be assigned to all ``variables``; None if this may be possible.

    :raises StepLimitReached: the steps of the tree or of the request are used up.
    """
    conflict = None
    if _may_exclude_each_other(variables):
        with contextlib.suppress(_PositionLimitReached):
            conflict = _find_conflict(variables, providers, _PositionLimit(counter))
    if conflict is None and any(variable.subtrees for variable in variables):
        with contextlib.suppress(_PositionLimitReached):
            conflict = _find_subtree_conflict(variables, providers, counter)
    return conflict


def _find_subtree_conflict(variables: Sequence[Variable], providers: Providers, counter: StepCounter) -> Reason | None:
    """Remove the tops below which a ``same_subtree`` cannot be assigned. Return the reason if none is left."""
    members: defaultdict[Subtree, list[Variable]] = defaultdict(list)
    for variable in variables:
        for condition, _ in variable.subtrees:
            members[condition].append(variable)
    counter.count_setup(sum(map(len, members.values())))
    limit = _PositionLimit(counter)
    for condition, of_condition in members.items():
        if not _may_exclude_each_other(of_condition):
            continue
        below = {variable.domain: _by_top(variable.domain, condition, limit) for variable in of_condition}
        steps = sum(1 + len(variable.requirement.resources) for variable in of_condition)
        tops = []
        for top in _positions(condition.tops):
            # Test whether the variables can be assigned at this top or below it.
            limit.count_positions(steps)
            within = [replace(variable, domain=below[variable.domain].get(top, ())) for variable in of_condition]
            if all(variable.domain for variable in within) and _find_conflict(within, providers, limit) is None:
                tops.append(top)
        condition.restrict(subtree.position_set(tops))
        if not tops:
            return Reason.SUBTREE
    return None


def _by_top(domain: Domain, condition: Subtree, limit: _PositionLimit) -> Mapping[int, Domain]:
    """Return for each top of a condition the positions of ``domain`` at or below it."""
    by_top: defaultdict[int, list[int]] = defaultdict(list)
    for position in domain:
        tops = condition.above[position] & condition.tops
        limit.count_positions(1 + tops.bit_count())
        for top in _positions(tops):
            by_top[top].append(position)
    return {top: tuple(positions) for top, positions in by_top.items()}


def _may_exclude_each_other(variables: Sequence[Variable]) -> bool:
    """Return whether some variables may exclude one another: they name the same class, or are isolated."""
    names = [name for variable in variables for name, _ in variable.requirement.resources]
    return len(set(names)) < len(names) or sum(variable.isolated for variable in variables) > 1


def _positions(bits: int) -> Iterator[int]:
    """Yield the positions of a set (``subtree``)."""
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _find_conflict(variables: Sequence[Variable], providers: Providers, limit: _PositionLimit) -> Reason | None:
    """Return why ``providers`` cannot be assigned to ``variables`` that may exclude one another."""
    isolated = [variable for variable in variables if variable.isolated]
    contested = list(_contested(variables))
    max_increases: list[dict[int, int]] = []
    for name, demands in contested:
        domains = {id(variable.domain): variable.domain for _, variable in demands}.values()
        limit.count_positions(sum(map(len, domains)))
        positions = set().union(*domains)
        max_increases.append({position: providers[position].inventories[name].max_increase for position in positions})
    for (_, demands), free in zip(contested, max_increases, strict=True):
        if sum(amount for amount, _ in demands) > sum(free.values()):
            return Reason.TOO_LITTLE_CAPACITY
    one_each = dict.fromkeys(itertools.chain.from_iterable(variable.domain for variable in isolated), 1)
    if len(isolated) > 1 and not _matching_exists(isolated, one_each, limit):
        return Reason.TOO_FEW_PROVIDERS
    for (_, demands), free in zip(contested, max_increases, strict=True):
        if not _large_amounts_fit(demands, free, limit):
            return Reason.TOO_FEW_WITH_CAPACITY
    return None


def _contested(variables: Sequence[Variable]) -> Iterator[tuple[str, _Demands]]:
    """Yield each class that several variables name, with the amounts that they request."""
    naming: defaultdict[str, _Demands] = defaultdict(list)
    for variable in variables:
        for name, amount in variable.requirement.resources:
            naming[name].append((amount, variable))
    for name, demands in naming.items():
        if len(demands) > 1:
            yield name, sorted(demands, key=operator.itemgetter(0))


def _large_amounts_fit(demands: _Demands, max_increases: Mapping[int, int], limit: _PositionLimit) -> bool:
    """Return whether, for each amount, the variables with at least this amount can be distributed over the providers.

    How many of them fit on one provider is computed for the smallest ones, so it is the largest possible number.
    """
    amounts = [amount for amount, _ in demands]
    sums = list(itertools.accumulate(amounts, initial=0))
    for first, amount in enumerate(amounts):
        if first and amount == amounts[first - 1]:
            continue
        large = [variable for _, variable in demands[first:]]
        together = sum(not variable.isolated for variable in large) + any(variable.isolated for variable in large)
        limit.count_positions(len(max_increases))
        # By position, the number of these variables that fit.
        max_variables = {
            position: min(bisect_right(sums, sums[first] + free) - 1 - first, together)
            for position, free in max_increases.items()
        }
        if not _matching_exists(large, max_variables, limit):
            return False
    return True


def _matching_exists(variables: Sequence[Variable], max_variables: Mapping[int, int], limit: _PositionLimit) -> bool:
    """Return whether each variable can get a position of its domain, with at most ``max_variables`` per position."""
    distinct = {id(variable.domain): variable.domain for variable in variables}.values()
    limit.count_positions(sum(map(len, distinct)))
    if all(sum(max_variables[position] for position in domain) >= len(variables) for domain in distinct):
        return True
    if sum(max_variables[position] for position in set().union(*distinct)) < len(variables):
        return False
    return all(map(Matching(max_variables, limit.count_positions).add, variables))
