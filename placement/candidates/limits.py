"""The bounds of one search. Work is counted in steps, not in seconds, so that equal searches have equal results.

A step is a small piece of work: to compare one class of one provider with one part of the request, to place or reserve
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
class SearchLimits:
    """The bounds of one search, and how much of them is used. By default there are no bounds.

    ``steps`` is for the whole request, ``max_tree_steps`` for one tree since its last candidate. ``candidates`` is the
    most that are found, ``size`` the most that an answer holds, as ``size.Size`` counts it. ``steps_taken`` are the
    steps so far. ``reached`` are the bounds that ended the search, if only of one tree, or shortened the answer.
    """

    candidates: int = sys.maxsize
    steps: int = sys.maxsize
    max_tree_steps: int = sys.maxsize
    size: int = sys.maxsize
    steps_taken: int = 0
    reserved: int = 0
    reached: set[Limit] = field(default_factory=set)

    @property
    def steps_exhausted(self) -> bool:
        """Whether the steps of the request are used up."""
        return self.steps_taken > self.steps


class StepCounter:
    """Counts the steps of one tree."""

    __slots__ = ('_limits', '_reserved', 'since_candidate')

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self._reserved = 0
        #: The steps since the last candidate of the tree.
        self.since_candidate = 0

    def count_setup(self, steps: int) -> None:
        """Count ``steps`` of finding out which providers could take which part.

        They count for the request only, as their number depends on nothing but the number of providers and parts.

        :raises StepLimitReached: the steps of the request are used up.
        """
        limits = self._limits
        limits.steps_taken += steps
        if limits.steps_taken > limits.steps:
            limits.reached.add(Limit.REQUEST_STEPS)
            raise StepLimitReached

    def count(self, steps: int) -> None:
        """Count ``steps`` of placing parts, for the request and for the tree.

        :raises StepLimitReached: the steps of the tree or of the request are used up.
        """
        limits = self._limits
        limits.steps_taken += steps
        if limits.steps_taken > limits.steps:
            limits.reached.add(Limit.REQUEST_STEPS)
            raise StepLimitReached
        self.since_candidate += steps
        if self.since_candidate > limits.max_tree_steps:
            limits.reached.add(Limit.TREE_STEPS)
            raise StepLimitReached

    def reserve(self, items: int) -> bool:
        """Return whether so many ``items`` may be reserved, and count them if so."""
        if self._limits.reserved + items > _MOST_REMEMBERED:
            return False
        self._limits.reserved += items
        self._reserved += items
        return True

    def release(self) -> None:
        """Subtract the items of this tree, which are not reserved any more."""
        self._limits.reserved -= self._reserved
        self._reserved = 0
