"""The conditions ``same_subtree`` at one anchor: the provider of one group is above, or is, those of the others.

A set of positions is an integer here, with one bit for each position. A *top* is a provider that all others of a
condition may be below: it is an option of one of its variables, and each of its variables has an option that is below
it or is the top itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from placement.candidates.limits import StepCounter
from placement.candidates.providers import Anchor

_Options = tuple[int, ...]


class Subtree:
    """One condition while variables are placed.

    :param above: for each position, the set of it and of the positions above it.
    :param tops: the set of tops.
    """

    def __init__(self, above: Sequence[int], tops: int) -> None:
        self.above = above
        self._tops = [tops]
        self._placed = [0]

    @property
    def tops(self) -> int:
        """The tops that are above all variables placed so far."""
        return self._tops[-1]

    def restrict(self, tops: int) -> None:
        """Keep only those of the tops that are in ``tops``. To be called before any variable is placed."""
        self._tops[-1] &= tops

    def allows(self, position: int, later: int) -> bool:
        """Return whether there would be a top left with another variable at ``position``.

        :param later: the options of the variables that are placed after it.
        """
        return bool(self._tops[-1] & self.above[position] & (self._placed[-1] | 1 << position | later))

    def assign(self, position: int) -> None:
        """Place a variable."""
        self._tops.append(self._tops[-1] & self.above[position])
        self._placed.append(self._placed[-1] | 1 << position)

    def unassign(self) -> None:
        """Undo the last ``put``."""
        self._tops.pop()
        self._placed.pop()

    def state(self) -> tuple[int, int]:
        """Return what the variables that are not yet placed depend on."""
        tops = self._tops[-1]
        return tops, tops & self._placed[-1]


def above(anchor: Anchor) -> list[int]:
    """Return for each position of ``anchor`` the set of it and of the positions above it."""
    position_of = {one.id: position for position, one in enumerate(anchor.tree + anchor.sharing)}
    parents = {one.id: one.parent_id for one in anchor.tree}
    known: dict[int, int] = {}
    for one in anchor.tree:
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
        bits(position_of[id_] for id_ in (one.id, *one.ancestors) if id_ in position_of) for one in anchor.sharing
    ]
    return [known[one.id] for one in anchor.tree] + shared


def narrow(
    conditions: Sequence[Sequence[int]], options: Sequence[_Options], above: Sequence[int], counter: StepCounter
) -> tuple[list[_Options], list[int]] | None:
    """Remove options that no placement can use, until nothing changes.

    :param conditions: for each condition the numbers of its variables.
    :param options: those of each variable.
    :returns: the options that are left, and the tops of each condition; None if a condition has no top.
    :raises StepLimitReached: the steps of the request are used up.
    """
    left = list(options)
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
    """Return the numbers of the variables of each condition. One that has a single variable is always met and left out.

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
