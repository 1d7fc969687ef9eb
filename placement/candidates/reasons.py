"""The reasons for which a search rejects providers and combinations: constants, made into text only to be printed."""

from __future__ import annotations

import enum
from collections import Counter


class Reason(enum.Enum):
    """One rule that a provider or a combination breaks; the value is the text that ``explain`` prints."""

    NO_INVENTORY = 'has no inventory of the class'
    NO_CAPACITY = 'has not enough left'
    BELOW_MIN_UNIT = 'hands out more than that at least (min_unit)'
    ABOVE_MAX_UNIT = 'hands out less than that at most (max_unit)'
    WRONG_STEP = 'hands out multiples of another step_size'
    MISSING_TRAIT = 'lacks a required trait'
    FORBIDDEN_TRAIT = 'has a forbidden trait'
    NOT_MEMBER = 'is not in the wanted aggregates'
    MERGED = 'has no room for the sum of several groups'
    ISOLATED = 'already serves another numbered group'
    SAME_TREE = 'is a second provider of its tree (below 1.29)'
    COLLECTIVE_TRAITS = 'leaves a required trait without any provider'
    OTHER_TREE = 'is shared, and nothing would come from the tree itself'
    TOO_LITTLE_IN_ALL = 'the tree has too little of the class for all groups together'
    TOO_FEW_WITH_ROOM = 'the tree has too few providers with room for groups of which few fit together on one'
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
    }
)

#: How often each reason was met, by group suffix ('' is the unnumbered group) and reason.
Rejections = Counter[tuple[str, Reason]]
