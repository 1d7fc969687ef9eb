"""Which trees and rows may take a shape, whatever is free there."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from placement.cache.inventory_columns import Flags, Integers
from placement.ops.planning.hosts import Hosts, Matrix
from placement.ops.planning.loads import Role, Shape

#: Maximum number of roles to remember; each takes one byte for each row.
_MAX_REMEMBERED = 2000


class Eligibility:
    """The conditions of shapes on destinations, each evaluated once.

    :param excluded: trees that are no destinations, such as those that are drained.
    """

    def __init__(self, hosts: Hosts, excluded: Collection[int] = ()) -> None:
        self.hosts = hosts
        self._is_excluded = np.zeros(len(hosts.trees), np.bool_)
        self._is_excluded[list(excluded)] = True
        self._trees: dict[object, Flags] = {}
        self._rows: dict[object, Flags] = {}

    def _conditions(self, shape: Shape) -> tuple[frozenset[int], frozenset[str], frozenset[str]]:
        # What may move to other pools needs none of those of today.
        return frozenset() if shape.shared else shape.stays, shape.traits, shape.aggregates

    def trees(self, shape: Shape) -> Flags:
        """Return which trees may take a shape by their traits and aggregates, and by the pools in reach."""
        key = self._conditions(shape)
        if key not in self._trees:
            hosts = self.hosts
            flags = hosts.is_destination & ~self._is_excluded
            for row in key[0]:
                reach = hosts.provider(row).aggregates
                flags &= [not reach.isdisjoint(aggregates) for aggregates in hosts.aggregates]
            if shape.traits:
                flags &= [shape.traits <= traits for traits in hosts.traits]
            if shape.aggregates:
                flags &= [shape.aggregates <= aggregates for aggregates in hosts.aggregates]
            self._trees[key] = flags
        return self._trees[key]

    def rows(self, shape: Shape, role: Role) -> Flags:
        """Return which rows may take a role: those with inventories whose units allow its amounts."""
        # Shapes whose amounts the units of all inventories allow differ only in their classes.
        trivial = self.hosts.trivial_amounts
        units = tuple([(column, 0 if amount <= trivial[column] else amount) for column, amount in role])
        key = units, self._conditions(shape)
        flags = self._rows.get(key)
        if flags is None:
            if len(self._rows) >= _MAX_REMEMBERED:
                self._rows.clear()
            hosts = self.hosts
            flags = self.trees(shape)[hosts.tree_of] & hosts.is_own & self._allow(units)
            self._rows[key] = flags
        return flags

    def pools(self, role: Role) -> Flags:
        """Return which rows of sharing providers may take a role."""
        return ~self._is_excluded[self.hosts.tree_of] & ~self.hosts.is_own & self._allow(role)

    def is_kept(self, shape: Shape) -> bool:
        """Return whether no sharing provider that supplies the consumer is excluded."""
        return not self._is_excluded[self.hosts.tree_of[list(shape.stays)]].any()

    def _allow(self, units: Role) -> Flags:
        """Return the rows whose units allow amounts by column; an amount of 0 stands for any that all units allow."""
        hosts = self.hosts
        flags = np.ones(len(hosts.ids), np.bool_)
        for column, amount in units:
            flags &= (hosts.min_unit[:, column] <= max(amount, 1)) & (hosts.max_unit[:, column] >= max(amount, 1))
            flags &= amount % hosts.step_size[:, column] == 0
        return flags

    def count(self, shape: Shape) -> int:
        """Return how many trees have for each role a row that may take it."""
        flags = self.trees(shape).copy()
        for role in shape.roles:
            flags &= np.logical_or.reduceat(self.rows(shape, role), self.hosts.starts[:-1])
        return int(flags.sum())


def slots(free: Matrix, role: Role) -> Integers:
    """Return for each row how many times a role fits, by what is free alone."""
    counts: Integers = np.full(len(free), 2**40, np.int64)
    for column, amount in role:
        np.minimum(counts, free[:, column] // amount, out=counts)
    return np.maximum(counts, 0)
