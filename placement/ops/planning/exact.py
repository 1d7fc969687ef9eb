"""Places few consumers by trying all ways, within a number of steps. If all are tried in vain, that is a proof."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from placement.ops.planning.eligibility import Eligibility
from placement.ops.planning.hosts import Hosts
from placement.ops.planning.loads import Shape
from placement.ops.planning.packing import Packed, Placement, size_of

#: Maximum number of consumers. Each is one level of the search.
_MAX_CONSUMERS = 40
#: Maximum number of rows to look at.
_MAX_STEPS = 500_000


class NotSearched(Exception):
    """The steps did not suffice, or the search does not cover these shapes."""


def find_placement(eligibility: Eligibility, shapes: Sequence[Shape], demand: Mapping[int, int]) -> Packed | None:
    """Return a placement of all consumers; None if there is none.

    :raises NotSearched: it is not known whether there is one.
    """
    if sum(demand.values()) > _MAX_CONSUMERS or not all(shapes[number].is_simple for number in demand):
        raise NotSearched
    hosts = eligibility.hosts
    size = {number: sum(size_of(shapes[number], hosts.weights).values()) for number in demand}
    order = sorted(demand, key=lambda number: (-size[number], shapes[number].roles, number))
    items = [number for number in order for _ in range(demand[number])]
    allowed = np.array([eligibility.rows_elsewhere(shapes[number]) for number in order])
    usable = np.flatnonzero(allowed.any(axis=0))
    search = _Search(hosts, usable.tolist(), dict(zip(order, allowed[:, usable].tolist(), strict=True)), shapes, items)
    if not search.place(0):
        return None
    rows = usable[search.chosen].tolist()
    return Packed([Placement(number, (row,), 1) for number, row in zip(items, rows, strict=True)])


class _Search:
    """Rows that are equal in what is free and in what they may take are tried once for each consumer. Equal consumers
    are placed in the order of the rows."""

    def __init__(
        self,
        hosts: Hosts,
        usable: list[int],
        allowed: Mapping[int, list[bool]],
        shapes: Sequence[Shape],
        items: Sequence[int],
    ) -> None:
        self._free: list[list[int]] = hosts.free[usable].tolist()
        self._allowed = allowed
        self._kinds = list(zip(*allowed.values(), strict=True))
        self._roles = {number: shapes[number].roles[0] for number in allowed}
        self._items = items
        self._steps = 0
        #: The index of the row of each consumer that is placed.
        self.chosen: list[int] = []

    def place(self, depth: int) -> bool:
        """Place all consumers from one on. Return whether they are placed."""
        if depth == len(self._items):
            return True
        number = self._items[depth]
        first = self.chosen[-1] if depth and self._items[depth - 1] == number else 0
        seen = set()
        for index in range(first, len(self._free)):
            self._steps += 1
            if self._steps > _MAX_STEPS:
                raise NotSearched
            free = self._free[index]
            # The row of the equal consumer before differs from the others: only later ones may follow.
            key = (*free, self._kinds[index], index == first)
            is_fitting = self._allowed[number][index] and all(free[column] >= n for column, n in self._roles[number])
            if not is_fitting or key in seen:
                continue
            seen.add(key)
            self.chosen.append(index)
            self._take(index, number, 1)
            if self.place(depth + 1):
                return True
            self._take(index, number, -1)
            self.chosen.pop()
        return False

    def _take(self, index: int, number: int, count: int) -> None:
        for column, amount in self._roles[number]:
            self._free[index][column] -= count * amount
