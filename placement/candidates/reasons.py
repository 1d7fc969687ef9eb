"""The reasons for which a search rejects providers and combinations: constants, made into text only to be printed."""

from __future__ import annotations

import enum
from collections import Counter


class Reason(enum.Enum):
    """One rule that a provider or a combination breaks; the value is the text that ``explain`` prints."""

    NO_INVENTORY = 'has no inventory of the class'
    NO_CAPACITY = 'has not enough left'
    BELOW_MIN_UNIT = 'needs a larger amount (min_unit)'
    ABOVE_MAX_UNIT = 'allows no amount as large (max_unit)'
    WRONG_STEP = 'allows only multiples of its step_size'
    MISSING_TRAIT = 'lacks a required trait'
    FORBIDDEN_TRAIT = 'has a forbidden trait'
    NOT_MEMBER = 'is not in the requested aggregates'
    FORBIDDEN_AGGREGATE = 'is in a forbidden aggregate'
    NOT_IN_TREE = 'is not in the requested tree'
    ROOT = 'has a root that is not as requested'
    MERGED = 'has no room for the sum of several groups'
    ISOLATED = 'already serves another numbered group'
    SUBTREE = 'is not in one subtree with the providers of other groups'
    SAME_TREE = 'is a second provider of its tree (below 1.29)'
    COLLECTIVE_TRAITS = 'no chosen provider has a required trait'
    OTHER_TREE = 'is a sharing provider, and nothing would come from the tree itself'
    TOO_LITTLE_IN_ALL = 'the tree has too little of the class for all groups together'
    TOO_FEW_WITH_ROOM = 'the tree has too few providers with room for all groups'
    TOO_FEW_PROVIDERS = 'the tree has too few providers for isolated groups'

    @property
    def between_groups(self) -> bool:
        """Whether it is about parts of the request that do not fit together, not about one provider and one part."""
        return self not in _ABOUT_ONE_PROVIDER


_ABOUT_ONE_PROVIDER = frozenset(
    {
        Reason.NO_INVENTORY,
        Reason.NO_CAPACITY,
        Reason.BELOW_MIN_UNIT,
        Reason.ABOVE_MAX_UNIT,
        Reason.WRONG_STEP,
        Reason.MISSING_TRAIT,
        Reason.FORBIDDEN_TRAIT,
        Reason.NOT_MEMBER,
        Reason.FORBIDDEN_AGGREGATE,
        Reason.NOT_IN_TREE,
        Reason.ROOT,
    }
)

#: The reasons for the parts of the capacity rule, in the order of ``capacity.violations``.
CAPACITY_REASONS = (Reason.ABOVE_MAX_UNIT, Reason.BELOW_MIN_UNIT, Reason.WRONG_STEP, Reason.NO_CAPACITY)

#: How often each reason was met, by group suffix ('' is the unnumbered group) and reason.
Rejections = Counter[tuple[str, Reason]]
