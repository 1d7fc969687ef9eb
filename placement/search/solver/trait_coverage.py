"""The traits that the providers of the unsuffixed group must have together.

The rule is api-ref/candidate-search.md#the-unsuffixed-group. A *trait requirement* is one trait of a set; a plain
required trait is a set of one. Here a set of trait requirements is an integer with one bit for each of them.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence

from placement.search.budget import StepCounter

#: Maximum number of combinations of sets that one call of ``Lookahead.can_provide`` tries.
_MAX_COMBINATIONS = 10_000


class Lookahead:
    """The traits that the unassigned variables of the unsuffixed group can still provide.

    They tell a search early that no combination of providers has the traits, so that it does not try each.

    :param choices: for each of these variables, the sets of trait requirements that the providers of its domain
        satisfy.
    :param combinations: the number of combinations of one set per variable; any number above ``_MAX_COMBINATIONS`` if
        there are more.
    """

    def __init__(self, choices: Sequence[frozenset[int]] = (), combinations: int = 1) -> None:
        self._choices = choices
        self._combinations = combinations
        self._results: dict[int, bool] = {}

    def with_variable(self, choice: frozenset[int]) -> Lookahead:
        """Return the lookahead with one more variable in front. ``choice`` has the sets for its domain."""
        if not any(choice):
            return self
        return Lookahead((choice, *self._choices), min(self._combinations * len(choice), _MAX_COMBINATIONS + 1))

    def can_provide(self, missing: int, counter: StepCounter) -> bool:
        """Return whether the variables can satisfy all of ``missing``; also True if this would take too long.

        :param missing: a set of trait requirements.
        :raises StepLimitReached: the steps of the tree or of the request are used up.
        """
        if not missing:
            return True
        result = self._results.get(missing)
        if result is None:
            result = self._decide(missing, counter)
            if counter.reserve(1):
                self._results[missing] = result
        return result

    def _decide(self, missing: int, counter: StepCounter) -> bool:
        # Operations on sets of several thousand bits take longer.
        counter.count_steps((1 + sum(map(len, self._choices))) * (1 + missing.bit_length() // 512))
        upper_bound = sum([max([(traits & missing).bit_count() for traits in choice]) for choice in self._choices])
        if upper_bound < missing.bit_count():
            return False
        choices = self._without_excluded(missing, counter)
        if choices is None:
            return False
        if min(self._combinations, 1 << missing.bit_count()) > _MAX_COMBINATIONS:
            return True
        return _can_cover(choices, missing, counter)

    def _without_excluded(self, missing: int, counter: StepCounter) -> Sequence[frozenset[int]] | None:
        """Return the choices without the sets that no solution contains; None if there is no solution.

        If only one variable can satisfy a trait requirement, it has to choose a set with this requirement. Repeat this
        until nothing changes.
        """
        choices = [frozenset([traits & missing for traits in choice]) for choice in self._choices]
        while True:
            counter.count_steps(sum(map(len, choices)))
            unions = [functools.reduce(operator.or_, choice, 0) for choice in choices]
            once = twice = 0
            for union in unions:
                twice |= once & union
                once |= union
            if missing & ~once:
                return None
            alone = once & ~twice
            remaining = [
                frozenset([traits for traits in choice if traits & alone == union & alone])
                for choice, union in zip(choices, unions, strict=True)
            ]
            if remaining == choices:
                return choices
            if not all(remaining):
                return None
            choices = remaining


def _can_cover(choices: Sequence[frozenset[int]], missing: int, counter: StepCounter) -> bool:
    """Return whether one set of each choice can together contain ``missing``; also True if this would take too long."""
    reachable = {missing}
    tried = 0
    for choice in choices:
        pairs = len(reachable) * len(choice)
        tried += pairs
        if tried > _MAX_COMBINATIONS:
            return True
        counter.count_steps(pairs)
        reachable = {before & ~provided for before in reachable for provided in choice}
    return 0 in reachable
