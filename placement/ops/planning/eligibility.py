"""Which trees and rows may take a shape, whatever is free there."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from placement.cache.inventory_columns import Flags, Integers
from placement.cache.partition import or_by_tree
from placement.ops.planning.hosts import Hosts, Matrix
from placement.ops.planning.loads import Role, Shape

#: Maximum number of roles to remember; each takes one byte for each row.
_MAX_REMEMBERED = 2000
#: Maximum number of shapes whose rows or trees are remembered in order.
_MAX_ORDERS = 500


class Eligibility:
    """The conditions of shapes on destinations, each evaluated once.

    :param shapes: all shapes to place. A *demand* has the number of consumers of some of them, by their index.
    :param excluded: trees that are no destinations, such as those that are drained.
    """

    def __init__(self, hosts: Hosts, shapes: Sequence[Shape], excluded: Collection[int] = ()) -> None:
        self.hosts = hosts
        self.shapes = shapes
        self._is_excluded = np.zeros(len(hosts.trees), np.bool_)
        self._is_excluded[list(excluded)] = True
        self._trees: dict[object, Flags] = {}
        self._rows: dict[object, Flags] = {}
        self._fullest_first: dict[Shape, Integers] = {}

    def _conditions(self, shape: Shape) -> tuple[frozenset[int], frozenset[str], frozenset[str]]:
        # What may move to other pools needs none of those of today.
        return frozenset() if shape.shared else shape.stays, shape.traits, shape.aggregates

    def trees(self, shape: Shape) -> Flags:
        """Return which trees may take a shape by their traits and aggregates, and by the pools in reach."""
        key = self._conditions(shape)
        if key not in self._trees:
            hosts = self.hosts
            aggregates = hosts.partition.tree_aggregates
            flags = hosts.is_destination & ~self._is_excluded
            for row in key[0]:
                flags &= ~aggregates.where(hosts.provider(row).aggregates.isdisjoint)
            flags &= hosts.traits.where(shape.traits.issubset) & aggregates.where(shape.aggregates.issubset)
            self._trees[key] = flags
        return self._trees[key]

    def rows(self, shape: Shape, role: Role) -> Flags:
        """Return which rows may take a role: those with inventories whose units allow its amounts."""
        # Shapes whose amounts the units of all inventories allow differ only in their classes.
        trivial = self.hosts.trivial_amounts
        units = tuple([(column, 0 if amount <= trivial[column] else amount) for column, amount in role])
        key = units, self._conditions(shape)
        if key not in self._rows:
            if len(self._rows) >= _MAX_REMEMBERED:
                self._rows.clear()
            hosts = self.hosts
            self._rows[key] = self.trees(shape)[hosts.tree_of] & hosts.is_own & self._allow(units)
        return self._rows[key]

    def pools(self, role: Role) -> Flags:
        """Return which rows of sharing providers may take a role."""
        return ~self._is_excluded[self.hosts.tree_of] & ~self.hosts.is_own & self._allow(role)

    def is_kept(self, shape: Shape) -> bool:
        """Return whether no sharing provider that supplies the consumer is excluded."""
        return not self._is_excluded[self.hosts.tree_of[list(shape.stays)]].any()

    def _allow(self, units: Role) -> Flags:
        """Return the rows whose units allow amounts by column; an amount of 0 stands for any that all units allow."""
        hosts = self.hosts
        flags = hosts.partition.all_providers()
        for column, amount in units:
            flags &= (hosts.min_unit[:, column] <= max(amount, 1)) & (hosts.max_unit[:, column] >= max(amount, 1))
            flags &= amount % hosts.step_size[:, column] == 0
        return flags

    def candidates(self, shape: Shape, free: Matrix) -> Flags:
        """Return which rows or, for several roles, which trees have room for each role of a shape alone."""
        fits = [self.rows(shape, role) & (slots(free, role) > 0) for role in set(shape.roles)]
        flags = fits[0]
        if not shape.is_simple:
            by_tree = [or_by_tree(self.hosts.partition, rows) for rows in fits]
            flags = np.logical_and.reduce(by_tree)
        for tree in shape.elsewhere:
            flags[self.hosts.rows(tree) if shape.is_simple else tree] = False
        return flags

    def fullest_first(self, shape: Shape) -> Integers:
        """Return the rows, or for several roles the trees, that have room for a shape, those with least left first.

        What is left is that of ``hosts``.
        """
        if shape not in self._fullest_first:
            if len(self._fullest_first) >= _MAX_ORDERS:
                self._fullest_first.clear()
            rows, trees = self.hosts.by_room
            places = rows if shape.is_simple else trees
            self._fullest_first[shape] = places[self.candidates(shape, self.hosts.free)[places]]
        return self._fullest_first[shape]

    def count(self, shape: Shape) -> int:
        """Return how many trees have for each role a row that may take it."""
        by_tree = [or_by_tree(self.hosts.partition, self.rows(shape, role)) for role in shape.roles]
        return int(np.logical_and.reduce(by_tree).sum())


def slots(free: Matrix, role: Role) -> Integers:
    """Return for each row how many times a role fits, by what is free alone."""
    counts: Integers = np.full(len(free), 2**40, np.int64)
    for column, amount in role:
        np.minimum(counts, free[:, column] // amount, out=counts)
    return np.maximum(counts, 0)
