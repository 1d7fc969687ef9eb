"""The conditions ``same_subtree`` at one search unit: the provider of one group is, or is above, those of the others.

A set of positions is an integer here, with one bit for each position. A *top* is a provider that all others of a
condition may be below: it is in the domain of one of its variables, and each of its variables has a position in its
domain that is the top or below it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from placement.candidates.limits import StepCounter
from placement.candidates.search_units import SearchUnit

#: The positions that a variable can be assigned.
Domain = tuple[int, ...]


class Subtree:
    """One condition while variables are assigned.

    :param above: for each position, the set of it and of the positions above it.
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
        """Keep only those of the tops that are in ``tops``. To be called before any variable is assigned."""
        self._tops[-1] &= tops

    def allows(self, position: int, later: int) -> bool:
        """Return whether a top remains if another variable is assigned ``position``.

        :param later: the union of the domains of the variables that are assigned after it.
        """
        return bool(self._tops[-1] & self.above[position] & (self._placed[-1] | 1 << position | later))

    def assign(self, position: int) -> None:
        """Assign a variable."""
        self._tops.append(self._tops[-1] & self.above[position])
        self._placed.append(self._placed[-1] | 1 << position)

    def unassign(self) -> None:
        """Undo the last ``assign``."""
        self._tops.pop()
        self._placed.pop()

    def state(self) -> tuple[int, int]:
        """Return all that the possible assignments of the remaining variables depend on."""
        tops = self._tops[-1]
        return tops, tops & self._placed[-1]


def above(search_unit: SearchUnit) -> list[int]:
    """Return for each position the set of it and of the positions above it."""
    position_of = {one.id: position for position, one in enumerate(search_unit.tree + search_unit.sharing)}
    parents = {one.id: one.parent_id for one in search_unit.tree}
    known: dict[int, int] = {}
    for one in search_unit.tree:
        chain: dict[int, None] = {}
        at: int | None = one.id
        # A damaged database may have a loop, so no provider is visited twice.
        while at is not None and at in parents and at not in known and at not in chain:
            chain[at] = None
            at = parents[at]
        found = known.get(at, 0) if at is not None else 0
        for id_ in reversed(chain):
            found |= 1 << position_of[id_]
            known[id_] = found
    shared = [
        bits(position_of[id_] for id_ in (one.id, *one.ancestors) if id_ in position_of) for one in search_unit.sharing
    ]
    return [known[one.id] for one in search_unit.tree] + shared


def narrow(
    conditions: Sequence[Sequence[int]], domains: Sequence[Domain], above: Sequence[int], counter: StepCounter
) -> tuple[list[Domain], list[int]] | None:
    """Remove positions that no assignment can use from domains, until nothing changes.

    :param conditions: for each condition the numbers of its variables.
    :param domains: those of each variable.
    :returns: the remaining domains, and the tops of each condition; None if a condition has no top.
    :raises StepLimitReached: the steps of the request are used up.
    """
    left = list(domains)
    tops = [0] * len(conditions)
    changed = True
    while changed:
        changed = False
        for number, condition in enumerate(conditions):
            counter.count_setup(sum(len(left[variable]) for variable in condition))
            found = bits(position for variable in condition for position in left[variable])
            for variable in condition:
                found &= _union(above[position] for position in left[variable])
            if not found:
                return None
            tops[number] = found
            for variable in condition:
                fit = tuple([position for position in left[variable] if above[position] & found])
                if len(fit) < len(left[variable]):
                    left[variable], changed = fit, True
    return left, tops


def members(conditions: Iterable[frozenset[str]], groups: Sequence[str]) -> list[list[int]]:
    """Return the numbers of the variables of each condition. One with a single variable is left out.

    :param conditions: the suffixes of each.
    :param groups: the suffix of each variable.
    """
    number_of: Mapping[str, int] = {suffix: number for number, suffix in enumerate(groups)}
    found = [sorted(number_of[suffix] for suffix in condition if suffix in number_of) for condition in conditions]
    return [condition for condition in found if len(condition) > 1]


def bits(positions: Iterable[int]) -> int:
    """Return the set of ``positions``."""
    return _union(1 << position for position in positions)


def _union(sets: Iterable[int]) -> int:
    union = 0
    for one in sets:
        union |= one
    return union
