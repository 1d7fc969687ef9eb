"""Which trees the sharing providers of a partition reach, for all of them at once."""

from __future__ import annotations

import numpy as np

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import Partition


class SharingReach:
    """The sharing providers of a partition, also those without aggregates, and the trees that they reach.

    Many trees have the same aggregates with sharing providers: ``_sets`` has these. Values of providers reach trees in
    two steps, because an aggregate may have thousands of both.
    """

    def __init__(self, partition: Partition) -> None:
        #: The position of each sharing provider.
        self.positions = np.flatnonzero(partition.has_sharing_trait)
        aggregates = partition.aggregates
        self._aggregates = [aggregates.values[code] for code in aggregates.codes[self.positions].tolist()]
        number_of = {name: number for number, name in enumerate(frozenset().union(*self._aggregates))}
        self._sets = partition.tree_aggregates.mapped(frozenset(number_of).intersection)
        members = [(sharing, number_of[name]) for sharing, names in enumerate(self._aggregates) for name in names]
        reached = [(number_of[name], code) for code, names in enumerate(self._sets.values) for name in names]
        # Pairs of sharing provider and aggregate, and of aggregate and set, with the number of aggregates and of sets.
        self._steps = [
            (np.array(pairs, np.intp).reshape(-1, 2).T, size)
            for pairs, size in ((members, len(number_of)), (reached, len(self._sets.values)))
        ]

    def combined(self, words: Integers) -> Integers:
        """Return for each tree the bits of all sharing providers that reach it.

        :param words: the bits of each sharing provider.
        """
        for (sources, targets), size in self._steps:
            combined = np.zeros(size, np.intp)
            np.bitwise_or.at(combined, targets, words[sources])
            words = combined
        return words[self._sets.codes]

    def reaching(self, trees: Flags) -> Flags:
        """Return which sharing providers reach any of the flagged trees."""
        names = frozenset().union(*self._sets.counts(trees))
        return np.array([not names.isdisjoint(aggregates) for aggregates in self._aggregates], np.bool_)
