"""The limits of one search. Work is counted in steps, not in seconds, so that equal searches have equal results.

A step is a small piece of work: comparing one class of one provider with one requirement, assigning or remembering one
amount, trying one set of traits.
"""

from __future__ import annotations

import enum
import sys
from dataclasses import dataclass, field

#: Maximum number of amounts and sets of traits that one search remembers, so that they are not tried again. Beyond that
#: the search takes more steps, with the same result.
_MAX_REMEMBERED_ITEMS = 500_000


class Limit(enum.Enum):
    """One limit of a search; the value is its label in the metrics."""

    TREE_STEPS = 'tree_steps'
    REQUEST_STEPS = 'request_steps'
    CANDIDATES = 'candidates'
    ANSWER_SIZE = 'answer_size'


class StepLimitReached(Exception):
    """The steps of a tree, or of the whole request, are used up."""


@dataclass
class SearchLimits:
    """The limits of one search, and how much of them is used. By default there are none.

    ``max_steps`` is for the whole request, ``max_tree_steps`` for one tree since its last candidate.
    ``max_candidates`` limits how many are found, ``max_size`` the size of an answer as ``selection.AnswerSize`` counts
    it. ``steps_taken`` are the steps so far. ``reached`` are the limits that ended the search, of one tree or of all,
    or that truncated the response.
    """

    max_candidates: int = sys.maxsize
    max_steps: int = sys.maxsize
    max_tree_steps: int = sys.maxsize
    max_size: int = sys.maxsize
    steps_taken: int = 0
    remembered_items: int = 0
    reached: set[Limit] = field(default_factory=set)

    @property
    def steps_exhausted(self) -> bool:
        """Whether the steps of the request are used up."""
        return self.steps_taken > self.max_steps


class StepCounter:
    """Counts the steps of one tree."""

    __slots__ = ('_limits', '_reserved', 'since_candidate')

    def __init__(self, limits: SearchLimits) -> None:
        self._limits = limits
        self._reserved = 0
        #: The steps since the last candidate of the tree.
        self.since_candidate = 0

    def count_setup(self, steps: int) -> None:
        """Count ``steps`` of building variables.

        They count for the request only, as their number depends only on the number of providers and requirements.

        :raises StepLimitReached: the steps of the request are used up.
        """
        limits = self._limits
        limits.steps_taken += steps
        if limits.steps_taken > limits.max_steps:
            limits.reached.add(Limit.REQUEST_STEPS)
            raise StepLimitReached

    def count(self, steps: int) -> None:
        """Count ``steps`` of assigning variables, for the request and for the tree.

        :raises StepLimitReached: the steps of the tree or of the request are used up.
        """
        limits = self._limits
        limits.steps_taken += steps
        if limits.steps_taken > limits.max_steps:
            limits.reached.add(Limit.REQUEST_STEPS)
            raise StepLimitReached
        self.since_candidate += steps
        if self.since_candidate > limits.max_tree_steps:
            limits.reached.add(Limit.TREE_STEPS)
            raise StepLimitReached

    def reserve(self, items: int) -> bool:
        """Return whether so many ``items`` may be remembered, and count them if so."""
        if self._limits.remembered_items + items > _MAX_REMEMBERED_ITEMS:
            return False
        self._limits.remembered_items += items
        self._reserved += items
        return True

    def release(self) -> None:
        """Subtract the items of this tree, which are not remembered any more."""
        self._limits.remembered_items -= self._reserved
        self._reserved = 0
