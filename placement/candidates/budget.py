"""What one search may spend, counted in steps so that equal searches end equally, and which of its bounds it met.

A step is a small piece of work: one class of one provider looked at for one part of the request, one amount placed or
remembered, one set of traits tried.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field

#: How many amounts and sets of traits one search may remember to save itself work. Beyond it the search is slower, not
#: wrong.
_MOST_REMEMBERED = 500_000


class Bound(enum.Enum):
    """One bound of a search; the value is a word for it."""

    TREE_STEPS = 'tree_steps'
    REQUEST_STEPS = 'request_steps'
    CANDIDATES = 'candidates'
    ANSWER_SIZE = 'answer_size'


class OutOfSteps(Exception):
    """A tree, or the whole request, has had all the steps that it may take."""


@dataclass
class Budget:
    """The bounds of one search, and what is spent. By default there are no bounds.

    ``steps`` are those of the whole request, ``tree_steps`` those that one tree may take without finding a candidate,
    or a further one. ``candidates`` is how many are looked at, ``size`` what an answer may hold (as ``Size`` counts
    it). ``met`` are the bounds without which the answer might hold more.
    """

    candidates: int = sys.maxsize
    steps: int = sys.maxsize
    tree_steps: int = sys.maxsize
    size: int = sys.maxsize
    spent: int = 0
    remembered: int = 0
    met: set[Bound] = field(default_factory=set)

    @property
    def exhausted(self) -> bool:
        """Whether no steps are left for the request."""
        return self.spent > self.steps


class Meter:
    """Counts the steps of one tree."""

    __slots__ = ('_budget', '_remembered', 'fruitless')

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._remembered = 0
        #: The steps since the tree gave a candidate.
        self.fruitless = 0

    def prepare(self, steps: int) -> None:
        """Count ``steps`` of finding out who could take what, which the request pays for: there are no surprises in it.

        :raises OutOfSteps: the request has none left.
        """
        budget = self._budget
        budget.spent += steps
        if budget.spent > budget.steps:
            budget.met.add(Bound.REQUEST_STEPS)
            raise OutOfSteps

    def spend(self, steps: int) -> None:
        """Count ``steps`` of the search.

        :raises OutOfSteps: the tree or the request has none left.
        """
        budget = self._budget
        budget.spent += steps
        if budget.spent > budget.steps:
            budget.met.add(Bound.REQUEST_STEPS)
            raise OutOfSteps
        self.fruitless += steps
        if self.fruitless > budget.tree_steps:
            budget.met.add(Bound.TREE_STEPS)
            raise OutOfSteps

    def remember(self, items: int) -> bool:
        """Say whether there is room to remember so many ``items``, and count them if so."""
        if self._budget.remembered + items > _MOST_REMEMBERED:
            return False
        self._budget.remembered += items
        self._remembered += items
        return True

    def forget(self) -> None:
        """Give back the room of all that was remembered."""
        self._budget.remembered -= self._remembered
        self._remembered = 0
