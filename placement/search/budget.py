"""The budget of one search. Work is counted in steps, not in seconds, so that equal searches have equal results.

A step takes about a microsecond or less: evaluating one condition on one provider or on one distinct set of names,
assigning or remembering one amount, trying one set of traits.
"""

from __future__ import annotations

import contextlib
import enum
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The solver imports this module, and import-linter rejects every chain of imports from the solver to oslo.config.
    from oslo_config import cfg

#: Maximum number of amounts and sets of traits that one search remembers to avoid trying them again. Beyond it the
#: search takes more steps, but has the same result.
_MAX_REMEMBERED_ITEMS = 500_000

#: No candidate has fewer bytes in a response: two uuids and their members.
MIN_CANDIDATE_BYTES = 80


class Limit(enum.Enum):
    """The limits of a search. The value is the label in the metrics."""

    TREE_STEPS = 'tree_steps'
    REQUEST_STEPS = 'request_steps'
    CANDIDATES = 'candidates'
    ANSWER_SIZE = 'answer_size'


class StepLimitReached(Exception):
    """The steps of a tree, or of the whole request, are used up."""


@dataclass
class SearchBudget:
    """The limits of one search, and what it has used. By default there are no limits.

    ``max_steps`` is for the whole request, ``max_tree_steps`` for one tree since its last candidate. ``max_candidates``
    limits the number of candidates to find, and ``max_size`` the ``selection.ResponseSize``. ``steps_taken`` counts the
    steps so far. ``reached`` has the limits that ended the search of one tree or of all trees, or truncated the
    response.
    """

    max_candidates: int = sys.maxsize
    max_steps: int = sys.maxsize
    max_tree_steps: int = sys.maxsize
    max_size: int = sys.maxsize
    steps_taken: int = 0
    remembered_items: int = 0
    reached: set[Limit] = field(default_factory=set)

    @classmethod
    def for_search(cls, options: cfg.ConfigOpts.GroupAttr) -> SearchBudget:
        """Return the budget of one search.

        :param options: the group ``[placement]``.
        """
        limit, max_size = options.max_allocation_candidates, options.max_allocation_candidates_size
        return cls(
            max_candidates=limit if limit > 0 else max_size // MIN_CANDIDATE_BYTES,
            max_steps=options.max_search_steps,
            max_tree_steps=options.max_search_steps_per_tree,
            max_size=max_size,
        )

    @classmethod
    def for_explanation(cls, options: cfg.ConfigOpts.GroupAttr) -> SearchBudget:
        """Return the budget of a search that explains why another one found nothing: a tenth of its steps.

        :param options: the group ``[placement]``.
        """
        return cls(
            max_candidates=1,
            max_steps=options.max_search_steps // 10,
            max_tree_steps=options.max_search_steps_per_tree // 10,
        )

    @property
    def steps_exhausted(self) -> bool:
        """Whether the steps of the request are used up."""
        return self.steps_taken > self.max_steps

    @contextlib.contextmanager
    def share(self, fraction: float = 1) -> Iterator[SearchBudget]:
        """Give a part of the work a budget of its own, with a share of the steps that are left, and count its steps.

        The limits that the part reaches are in its own budget only.
        """
        steps = int((self.max_steps - self.steps_taken) * fraction)
        part = replace(self, max_steps=self.steps_taken + steps, reached=set())
        yield part
        self.steps_taken = part.steps_taken


class Reason(enum.Enum):
    """Why the providers of a search unit cannot be assigned to all requirements together."""

    COMBINED_AMOUNT = 'a provider has too little free capacity for the sum of several groups'
    ISOLATED = 'a provider already serves another suffixed group'
    SUBTREE = 'a provider is not in one subtree with the providers of other groups'
    SAME_TREE = 'a provider is the second one of its tree (below 1.29)'
    COLLECTIVE_TRAITS = 'no provider of the combination has a required trait'
    OTHER_TREE = 'a provider is a sharing one, and the candidate would use no provider of the tree'
    TOO_LITTLE_CAPACITY = 'all groups together request more of a class than is free'
    TOO_FEW_WITH_CAPACITY = 'the tree has too few providers with enough capacity for all groups'
    TOO_FEW_PROVIDERS = 'the tree has too few providers for isolated groups'


#: The number of rejected search units and assignments, by reason.
Rejections = Counter[Reason]


class StepCounter:
    """Counts the steps of one tree.

    :param rejections: if given, ``reject`` counts the rejections by reason.
    """

    __slots__ = ('_budget', '_rejections', '_reserved', 'since_candidate')

    def __init__(self, budget: SearchBudget, rejections: Rejections | None = None) -> None:
        self._budget = budget
        self._rejections = rejections
        self._reserved = 0
        #: The steps since the last candidate of the tree.
        self.since_candidate = 0

    def count_setup(self, steps: int) -> None:
        """Count ``steps`` of building variables.

        They count only for the request, because their number depends only on the numbers of providers and requirements.

        :raises StepLimitReached: the steps of the request are used up.
        """
        budget = self._budget
        budget.steps_taken += steps
        if budget.steps_taken > budget.max_steps:
            budget.reached.add(Limit.REQUEST_STEPS)
            raise StepLimitReached

    def count_steps(self, steps: int) -> None:
        """Count ``steps`` of assigning variables, for the request and for the tree.

        :raises StepLimitReached: the steps of the tree or of the request are used up.
        """
        self.count_setup(steps)
        self.since_candidate += steps
        if self.since_candidate > self._budget.max_tree_steps:
            self._budget.reached.add(Limit.TREE_STEPS)
            raise StepLimitReached

    def reject(self, reason: Reason) -> None:
        """Note why an assignment, or the whole tree, is rejected."""
        if self._rejections is not None:
            self._rejections[reason] += 1

    def reserve(self, items: int) -> bool:
        """Return whether ``items`` more items may be remembered. If so, count them."""
        if self._budget.remembered_items + items > _MAX_REMEMBERED_ITEMS:
            return False
        self._budget.remembered_items += items
        self._reserved += items
        return True

    def release(self) -> None:
        """Subtract the items of this tree, which are no longer remembered."""
        self._budget.remembered_items -= self._reserved
        self._reserved = 0


#: The options of ``[placement]`` that set the limits.
_OPTIONS = {
    Limit.CANDIDATES: 'max_allocation_candidates',
    Limit.ANSWER_SIZE: 'max_allocation_candidates_size',
    Limit.REQUEST_STEPS: 'max_search_steps',
    Limit.TREE_STEPS: 'max_search_steps_per_tree',
}


def describe_limits(limits_reached: Iterable[Limit], options: cfg.ConfigOpts.GroupAttr) -> str:
    """Return a text with the options that set ``limits_reached``, and their values.

    :param options: the group ``[placement]``.
    """
    reached = set(limits_reached)
    return ', '.join(f'{name} = {options[name]}' for limit, name in _OPTIONS.items() if limit in reached)
