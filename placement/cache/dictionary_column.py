"""The set of traits, or of aggregates, of each provider of a partition. Each distinct set is stored once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers

NameSet = frozenset[str]


@dataclass(frozen=True, eq=False)
class DictionaryColumn:
    """A dictionary-encoded column of sets: ``codes`` has for each position the index of its set in ``values``.

    ``values`` are distinct, and may have sets that no provider has any more.
    """

    values: tuple[NameSet, ...]
    codes: NDArray[np.int32]

    @classmethod
    def build(cls, sets: Iterable[NameSet]) -> DictionaryColumn:
        """Make a column.

        :param sets: one for each position, in order.
        """
        known: dict[NameSet, int] = {}
        codes = np.fromiter((known.setdefault(one, len(known)) for one in sets), np.int32)
        return cls(tuple(known), codes)

    def where(self, predicate: Callable[[NameSet], bool]) -> Flags:
        """Return for each position whether its set satisfies ``predicate``, called once for each distinct set."""
        flags: Flags = np.fromiter(map(predicate, self.values), np.bool_, len(self.values))[self.codes]
        return flags

    def rearranged(self, new_positions: Integers, size: int, added: Mapping[int, NameSet]) -> DictionaryColumn:
        """Return the column of a partition in which providers were moved, added or removed.

        :param new_positions: for each old position the new one, -1 if the provider was removed or read again.
        :param size: the number of new positions.
        :param added: the sets at the new positions that no old one moves to.
        """
        known = {one: number for number, one in enumerate(self.values)}
        codes = np.zeros(size, np.int32)
        kept = new_positions >= 0
        codes[new_positions[kept]] = self.codes[kept]
        for position, one in added.items():
            codes[position] = known.setdefault(one, len(known))
        if len(known) > 2 * size + 16:
            # Drop the sets that no provider has any more.
            values = tuple(known)
            return DictionaryColumn.build(values[code] for code in codes)
        return DictionaryColumn(tuple(known), codes)
