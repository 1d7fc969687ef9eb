"""The set of traits, or of aggregates, of each provider of a partition. Each distinct set is stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers

Names = frozenset[str]


@dataclass(frozen=True, eq=False)
class DictionaryColumn:
    """A column of sets: ``values`` are the distinct sets, ``of`` has for each position the index of its set in them.

    ``values`` may have sets that no provider has any more.
    """

    values: tuple[Names, ...]
    codes: NDArray[np.int32]

    @classmethod
    def build(cls, sets: Iterable[Names]) -> DictionaryColumn:
        """Make a column.

        :param sets: one for each position, in order.
        """
        known: dict[Names, int] = {}
        codes = np.fromiter((known.setdefault(one, len(known)) for one in sets), np.int32)
        return cls(tuple(known), codes)

    def where(self, predicate: Callable[[Names], bool]) -> Flags:
        """Return for each position whether its set satisfies ``predicate``, called once for each distinct set."""
        flags: Flags = np.fromiter(map(predicate, self.values), np.bool_, len(self.values))[self.codes]
        return flags

    def moved(self, position: Integers, size: int, added: Mapping[int, Names]) -> DictionaryColumn:
        """Return the column of a partition in which providers were moved, added or removed.

        :param position: for each old position the new one, -1 if the provider was removed or read anew.
        :param size: the number of new positions.
        :param added: the sets at the new positions that no old one moves to.
        """
        known = {one: number for number, one in enumerate(self.values)}
        codes = np.zeros(size, np.int32)
        kept = position >= 0
        codes[position[kept]] = self.codes[kept]
        for row, one in added.items():
            codes[row] = known.setdefault(one, len(known))
        moved = DictionaryColumn(tuple(known), codes)
        return moved if len(known) <= 2 * size + 16 else moved._compact()

    def _compact(self) -> DictionaryColumn:
        return DictionaryColumn.build(self.values[number] for number in self.codes)
