"""The conditions ``same_subtree`` at one search unit: the provider of one group is at or above all others.

Here a set of positions is an integer with one bit for each position. A *top* is a possible topmost provider of a
condition: it is in the domain of one of the condition's variables, and the domain of each of these variables has a
position at or below it.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence

from placement.search.budget import StepCounter
from placement.search.search_units import SearchUnit

#: The positions that can be assigned to a variable.
Domain = tuple[int, ...]


class Subtree:
    """One condition during the assignment of variables.

    :param above: for each position, the set of the position and those above it.
    :param tops: the set of tops.
    """

    def __init__(self, above: Sequence[int], tops: int) -> None:
        self.above = above
        self._tops = [tops]
        self._placed = [0]

    @property
    def tops(self) -> int:
        """The tops that are above all variables assigned so far."""
        return self._tops[-1]

    def restrict(self, tops: int) -> None:
        """Remove the tops that are not in ``tops``. Call this before any variable is assigned."""
        self._tops[-1] &= tops

    def allows(self, position: int, later: int) -> bool:
        """Return whether a top remains after assigning ``position`` to another variable.

        :param later: the union of the domains of the variables that are assigned after it.
        """
        return bool(self._tops[-1] & self.above[position] & (self._placed[-1] | 1 << position | later))

    def assign(self, position: int) -> None:
        self._tops.append(self._tops[-1] & self.above[position])
        self._placed.append(self._placed[-1] | 1 << position)

    def unassign(self) -> None:
        """Undo the last ``assign``."""
        self._tops.pop()
        self._placed.pop()

    def state(self) -> tuple[int, int]:
        """Return everything that the possible assignments of the remaining variables depend on."""
        tops = self._tops[-1]
        return tops, tops & self._placed[-1]


def positions_above(search_unit: SearchUnit) -> list[int]:
    """Return for each position the set of the position and those above it."""
    tree, sharing = search_unit.tree, search_unit.sharing
    position_of = {provider.id: position for position, provider in enumerate(tree + sharing)}
    parents = {provider.id: provider.parent_id for provider in tree}
    sets: dict[int | None, int] = {}
    for provider in tree:
        chain: dict[int, None] = {}
        id_: int | None = provider.id
        # A damaged database may have a loop, so no provider is visited twice.
        while id_ is not None and id_ in parents and id_ not in sets and id_ not in chain:
            chain[id_] = None
            id_ = parents[id_]
        positions = sets.get(id_, 0)
        for link in reversed(chain):
            positions |= 1 << position_of[link]
            sets[link] = positions
    shared = [
        position_set(position_of[id_] for id_ in (provider.id, *provider.ancestors) if id_ in position_of)
        for provider in sharing
    ]
    return [sets[provider.id] for provider in tree] + shared


def narrow(
    conditions: Sequence[Sequence[int]], domains: list[Domain], above: Sequence[int], counter: StepCounter
) -> list[Subtree] | None:
    """Remove from ``domains`` the positions that no assignment can use, until nothing changes.

    :param conditions: for each condition the numbers of its variables.
    :param domains: the domain of each variable.
    :param above: from ``positions_above``.
    :returns: the conditions with their tops; None if one has no top.
    :raises StepLimitReached: the steps of the request are used up.
    """
    counter.count_setup(len(above))
    tops = [0] * len(conditions)
    changed = True
    while changed:
        changed = False
        for number, condition in enumerate(conditions):
            counter.count_setup(sum([3 + len(domains[variable]) for variable in condition]))
            common = position_set(position for variable in condition for position in domains[variable])
            for variable in condition:
                common &= functools.reduce(operator.or_, [above[position] for position in domains[variable]], 0)
            if not common:
                return None
            tops[number] = common
            for variable in condition:
                fit = tuple([position for position in domains[variable] if above[position] & common])
                if len(fit) < len(domains[variable]):
                    domains[variable], changed = fit, True
    return [Subtree(above, common) for common in tops]


def position_set(positions: Iterable[int]) -> int:
    """Return the set of ``positions``."""
    return functools.reduce(operator.or_, [1 << position for position in positions], 0)
