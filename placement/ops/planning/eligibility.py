"""Which trees and rows may take a shape, whatever is free there."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Collection, Iterator

import numpy as np

from placement.cache.inventory_columns import Flags, Integers
from placement.ops.planning.hosts import Hosts, Matrix
from placement.ops.planning.loads import Role, Shape

#: Maximum number of roles to remember; each takes one byte for each row.
_MAX_REMEMBERED = 2000
#: Maximum number of shapes whose searches for rows or trees are remembered.
_MAX_SEARCHES = 500
#: How many rows to look at first for a shape, and four times more when they do not suffice.
_FIRST_ROWS = 64


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
        self._searches: dict[Shape, Iterator[int]] = {}

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
            flags &= [shape.traits <= traits for traits in hosts.traits]
            flags &= [shape.aggregates <= aggregates for aggregates in hosts.aggregates]
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
        flags = np.ones(len(hosts.ids), np.bool_)
        for column, amount in units:
            flags &= (hosts.min_unit[:, column] <= max(amount, 1)) & (hosts.max_unit[:, column] >= max(amount, 1))
            flags &= amount % hosts.step_size[:, column] == 0
        return flags

    def candidates(self, shape: Shape, free: Matrix) -> Flags:
        """Return which rows or, for several roles, which trees have room for each role of a shape alone."""
        fits = [self.rows(shape, role) & (slots(free, role) > 0) for role in set(shape.roles)]
        flags = fits[0]
        if not shape.is_simple:
            by_tree = [np.logical_or.reduceat(rows, self.hosts.starts[:-1]) for rows in fits]
            flags = np.logical_and.reduce(by_tree)
        for tree in shape.elsewhere:
            flags[self.hosts.rows(tree) if shape.is_simple else tree] = False
        return flags

    def fullest_first(self, shape: Shape) -> Iterator[int]:
        """Yield the rows, or for several roles the trees, that may take a shape, those with least left first.

        What is left is that of ``hosts``. Each is looked for once, and only as far as a caller needs.
        """
        search = self._searches.get(shape)
        if search is None:
            if len(self._searches) >= _MAX_SEARCHES:
                self._searches.clear()
            trees = self._by_room.trees
            places = (
                self._find_rows(shape) if shape.is_simple else trees[self.candidates(shape, self.hosts.free)[trees]]
            )
            [search] = itertools.tee(places, 1)
            self._searches[shape] = search
        return copy.copy(search)

    @functools.cached_property
    def _by_room(self) -> _ByRoom:
        return _ByRoom(self.hosts)

    def _find_rows(self, shape: Shape) -> Iterator[int]:
        by_room = self._by_room
        eligible = self.rows(shape, shape.roles[0])
        if shape.elsewhere:
            eligible = eligible & ~np.isin(self.hosts.tree_of, list(shape.elsewhere))
        # Where less is free than its size, it does not fit.
        needed = sum(amount * by_room.weights[column] for column, amount in shape.roles[0])
        start, size = int(np.searchsorted(by_room.room, needed * (1 - 1e-9))), _FIRST_ROWS
        while start < len(by_room.rows):
            chunk = slice(start, start + size)
            rows = by_room.rows[chunk]
            fits = eligible[rows]
            for column, amount in shape.roles[0]:
                fits &= by_room.free[column, chunk] >= amount
            yield from rows[fits].tolist()
            start, size = chunk.stop, 4 * size

    def count(self, shape: Shape) -> int:
        """Return how many trees have for each role a row that may take it."""
        flags = self.trees(shape).copy()
        for role in shape.roles:
            flags &= np.logical_or.reduceat(self.rows(shape, role), self.hosts.starts[:-1])
        return int(flags.sum())


class _ByRoom:
    """The rows and the trees in order of what is free there, the fullest first."""

    def __init__(self, hosts: Hosts) -> None:
        free = np.maximum(hosts.free, 0)
        # The scarcest class counts most: so few rows that have less of it than a shape needs are looked at.
        self.weights = 1.0 / np.maximum(free.sum(axis=0), 1)
        room = free @ self.weights
        self.rows = np.argsort(room, kind='stable')
        self.room = room[self.rows]
        #: By class, what is free in each row of this order.
        self.free = np.ascontiguousarray(hosts.free[self.rows].T)
        self.trees = np.argsort(np.add.reduceat(room, hosts.starts[:-1]), kind='stable') if len(room) else self.rows


def slots(free: Matrix, role: Role) -> Integers:
    """Return for each row how many times a role fits, by what is free alone."""
    counts: Integers = np.full(len(free), 2**40, np.int64)
    for column, amount in role:
        np.minimum(counts, free[:, column] // amount, out=counts)
    return np.maximum(counts, 0)
