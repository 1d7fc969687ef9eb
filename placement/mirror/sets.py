"""Which set of names (traits, or aggregates) each provider of a block has; most have one of a few sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.mirror.stock import Flags, Integers

Names = frozenset[str]


@dataclass(frozen=True, eq=False)
class Sets:
    """``values`` are distinct sets, ``of`` says for each position of the block which of them the provider has.

    A set that no provider has any longer may stay among the values for a while.
    """

    values: tuple[Names, ...]
    of: NDArray[np.int32]

    @classmethod
    def build(cls, sets: Iterable[Names]) -> Sets:
        """Make the column of the sets of all providers, in order of position."""
        known: dict[Names, int] = {}
        of = np.fromiter((known.setdefault(one, len(known)) for one in sets), np.int32)
        return cls(tuple(known), of)

    def where(self, holds: Callable[[Names], bool]) -> Flags:
        """Return for each position whether ``holds`` is true of the provider's set."""
        flags: Flags = np.fromiter(map(holds, self.values), np.bool_, len(self.values))[self.of]
        return flags

    def moved(self, position: Integers, size: int, added: Mapping[int, Names]) -> Sets:
        """Return the column after the block was put together anew.

        :param position: the new position of each old one, -1 for those that are gone.
        :param size: how many positions there are now.
        :param added: the sets at new positions.
        """
        known = {one: number for number, one in enumerate(self.values)}
        of = np.zeros(size, np.int32)
        kept = position >= 0
        of[position[kept]] = self.of[kept]
        for row, one in added.items():
            of[row] = known.setdefault(one, len(known))
        moved = Sets(tuple(known), of)
        return moved if len(known) <= 2 * size + 16 else moved._compact()

    def _compact(self) -> Sets:
        return Sets.build(self.values[number] for number in self.of)
