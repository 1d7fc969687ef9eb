"""The bounds of one search. Work is counted in steps, not in seconds, so that equal searches have equal results.

A step is a small piece of work: to compare one class of one provider with one part of the request, to place or remember
one amount, to try one set of traits.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field

#: How many amounts and sets of traits one search remembers in order not to try them again. Beyond that the search takes
#: more steps, with the same result.
_MOST_REMEMBERED = 500_000


class Limit(enum.Enum):
    """One bound of a search; the value is its label in the metrics."""

    TREE_STEPS = 'tree_steps'
    REQUEST_STEPS = 'request_steps'
    CANDIDATES = 'candidates'
    ANSWER_SIZE = 'answer_size'


class StepLimitReached(Exception):
    """The steps of a tree, or of the whole request, are used up."""


@dataclass
class Budget:
    """The bounds of one search, and how much of them is used. By default there are no bounds.

    ``steps`` is for the whole request, ``tree_steps`` for one tree since its last candidate. ``candidates`` is the most
    that are found, ``size`` the most that an answer holds, as ``size.Size`` counts it. ``spent`` are the steps so far.
    ``met`` are the bounds that ended the search, if only of one tree, or shortened the answer.
    """

    candidates: int = sys.maxsize
    steps: int = sys.maxsize
    tree_steps: int = sys.maxsize
    size: int = sys.maxsize
    spent: int = 0
    remembered: int = 0
    met: set[Limit] = field(default_factory=set)

    @property
    def exhausted(self) -> bool:
        """Whether the steps of the request are used up."""
        return self.spent > self.steps


class StepCounter:
    """Counts the steps of one tree."""

    __slots__ = ('_budget', '_remembered', 'fruitless')

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._remembered = 0
        #: The steps since the last candidate of the tree.
        self.fruitless = 0

    def prepare(self, steps: int) -> None:
        """Count ``steps`` of finding out which providers could take which part.

        They count for the request only, as their number depends on nothing but the number of providers and parts.

        :raises StepLimitReached: the steps of the request are used up.
        """
        budget = self._budget
        budget.spent += steps
        if budget.spent > budget.steps:
            budget.met.add(Limit.REQUEST_STEPS)
            raise StepLimitReached

    def spend(self, steps: int) -> None:
        """Count ``steps`` of placing parts, for the request and for the tree.

        :raises StepLimitReached: the steps of the tree or of the request are used up.
        """
        budget = self._budget
        budget.spent += steps
        if budget.spent > budget.steps:
            budget.met.add(Limit.REQUEST_STEPS)
            raise StepLimitReached
        self.fruitless += steps
        if self.fruitless > budget.tree_steps:
            budget.met.add(Limit.TREE_STEPS)
            raise StepLimitReached

    def remember(self, items: int) -> bool:
        """Return whether so many ``items`` may be remembered, and count them if so."""
        if self._budget.remembered + items > _MOST_REMEMBERED:
            return False
        self._budget.remembered += items
        self._remembered += items
        return True

    def forget(self) -> None:
        """Subtract the items of this tree, which are not remembered any more."""
        self._budget.remembered -= self._remembered
        self._remembered = 0
