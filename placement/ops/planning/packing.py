"""Places shapes by a fit policy, in an order. Equal arguments always give equal placements."""

from __future__ import annotations

import enum
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags
from placement.ops.planning.eligibility import Eligibility, slots
from placement.ops.planning.hosts import Matrix
from placement.ops.planning.loads import Role, Shape, amounts_of
from placement.ops.planning.nested import TreeSolver

Floats = NDArray[np.float64]


class Fit(enum.Enum):
    """Where the next consumer goes."""

    BEST = 'where least is left'
    ALIGNED = 'where what is left is in the proportion of what is needed'
    WORST = 'where most is left'
    FEWEST = 'where something was placed before, then where most is left'


#: What is tried, one after the other, until everything is placed.
POLICIES = (Fit.ALIGNED, Fit.BEST)


class Placement(NamedTuple):
    """``number`` consumers of a shape, with the row of each role and then that of each shared role that moves."""

    shape: int
    rows: tuple[int, ...]
    number: int


@dataclass
class Packed:
    """What was placed, and how many consumers of each shape were left."""

    #: What is free afterwards.
    free: Matrix
    placements: list[Placement] = field(default_factory=list)
    remaining: Counter[int] = field(default_factory=Counter)


class Packing:
    """The state of one attempt to place shapes."""

    def __init__(self, eligibility: Eligibility, solver: TreeSolver, fit: Fit) -> None:
        self._hosts = eligibility.hosts
        self._eligibility = eligibility
        self._solver = solver
        self._fit = fit
        self._free = self._hosts.free.copy()
        #: The trees where something was placed.
        self._is_used = np.zeros(len(self._hosts.trees), np.bool_)

    def pack(self, demand: Iterable[tuple[int, int]]) -> Packed:
        """Place as many as fit.

        :param demand: pairs of the index of a shape and the number of its consumers, in the order of placing.
        """
        packed = Packed(self._free)
        for number, count in demand:
            unplaced = count
            for rows, taken in self._place(self._eligibility.shapes[number], count):
                packed.placements.append(Placement(number, rows, taken))
                unplaced -= taken
            if unplaced:
                packed.remaining[number] = unplaced
        return packed

    def fail(self, tree: int, demand: Iterable[tuple[int, int]]) -> Packed:
        """Place as many as fit if a tree fails. The state stays as it was.

        :param demand: what was on the tree, as for ``pack``.
        """
        failed = self._hosts.rows(tree)
        self._free[failed] = -1
        packed = self.pack(demand)
        changed = [*range(failed.start, failed.stop), *(row for place in packed.placements for row in place.rows)]
        self._free[changed] = self._hosts.free[changed]
        return packed

    def _place(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield rows and the number of consumers placed there."""
        if shape.shared:
            yield from self._place_with_pools(shape, count)
        elif self._fit is Fit.BEST:
            for place in self._eligibility.fullest_first(shape):
                for rows, taken in self._fill(shape, place, count):
                    yield rows, taken
                    count -= taken
                if not count:
                    return
        else:
            yield from self._place_by_score(shape, count)

    def _place_by_score(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Place in the row, or for several roles in the tree, with the highest score, which changes its score."""
        places = np.flatnonzero(self._eligibility.candidates(shape, self._free))
        trees = self._hosts.tree_of[places] if shape.is_simple else places
        free = self._free if shape.is_simple else self._hosts.by_tree(np.maximum(self._free, 0))
        scores = self._scores(shape, free[places], self._is_used[trees])
        # Where placing lowers the score, the next consumer goes elsewhere.
        per_place = count if self._fit is Fit.FEWEST else 1
        while count and len(places) and scores[index := int(np.argmax(scores))] > -np.inf:
            scores[index] = -np.inf
            for rows, taken in self._fill(shape, int(places[index]), min(count, per_place)):
                yield rows, taken
                count -= taken
                room = self._free[[places[index]] if shape.is_simple else self._hosts.rows(places[index])]
                [scores[index]] = self._scores(shape, np.maximum(room, 0).sum(axis=0, keepdims=True), True)

    def _scores(self, shape: Shape, room: Matrix, is_used: Flags | bool) -> Floats:
        """Return how well a consumer suits places by the policy; the first of equal ones is taken.

        :param room: what is free in each place.
        :param is_used: whether something was placed in its tree.
        """
        if self._fit is Fit.ALIGNED:
            # The cosine of the angle between what is left and what is needed. So each class runs out at the same time.
            scaled = room * self._hosts.weights
            size = amounts_of([shape.roles], room.shape[1])[0] * self._hosts.weights
            scores = scaled @ size / np.maximum(np.sqrt((scaled * scaled).sum(axis=1)), 1e-9)
        else:
            scores = room @ self._hosts.weights
            if self._fit is Fit.FEWEST:
                # More than can be left anywhere.
                scores = scores + self._free.size * is_used
        return np.round(scores, 9)

    def _fill(self, shape: Shape, place: int, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Place as many as fit in one row or, for several roles, in one tree."""
        if shape.is_simple:
            if taken := min(count, self._room(shape.roles, (place,))):
                self._take(shape.roles, (place,), taken)
                yield (place,), taken
            return
        while count and (rows := self._solver.assign(shape, place, self._free[self._hosts.rows(place)])):
            self._take(shape.roles, rows, 1)
            yield rows, 1
            count -= 1

    def _place_with_pools(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Place consumers whose shared allocations may move: first without moving these, then from pool to pool."""
        if self._eligibility.is_kept(shape):
            for rows, taken in self._place(replace(shape, shared=()), count):
                yield rows, taken
                count -= taken
        choices = [np.flatnonzero(self._eligibility.pools(role)).tolist() for role in shape.shared]
        for pools in itertools.product(*choices):
            moved = replace(shape, stays=frozenset(pools), shared=())
            for rows, taken in self._place(moved, min(count, self._room(shape.shared, pools))):
                self._take(shape.shared, pools, taken)
                yield rows + pools, taken
                count -= taken

    def _room(self, roles: Sequence[Role], rows: Sequence[int]) -> int:
        """Return how many consumers fit if each role goes to one of the rows, which may be equal."""
        needs = Counter[tuple[int, int]]()
        for role, row in zip(roles, rows, strict=True):
            for column, amount in role:
                needs[row, column] += amount
        return max(min(self._free.item(cell) // amount for cell, amount in needs.items()), 0)

    def _take(self, roles: Sequence[Role], rows: Sequence[int], count: int) -> None:
        for role, row in zip(roles, rows, strict=True):
            for column, amount in role:
                self._free[row, column] -= count * amount
            self._is_used[self._hosts.tree_of[row]] = True


def attempts(
    eligibility: Eligibility, demand: Mapping[int, int], solver: TreeSolver, policies: Sequence[Fit]
) -> Iterator[Packed]:
    """Yield what each policy places in each order, the most promising first."""
    for order, policy in itertools.product(orders(eligibility, demand), policies):
        yield Packing(eligibility, solver, policy).pack([(number, demand[number]) for number in order])


def orders(eligibility: Eligibility, demand: Mapping[int, int]) -> list[list[int]]:
    """Return orders in which to place shapes, the most promising first, without repetitions.

    The first has the largest shapes first, by the sum of their shares of a mean provider, the second by the largest
    share. The third has those whose consumers need the largest part of the slots for them. Then follow the orders by
    the amount of each class. Shapes that need several providers come first, except in the fourth order: where they are
    last, they leave the one provider with enough room to a shape that needs it.
    """
    hosts, shapes = eligibility.hosts, eligibility.shapes
    numbers = sorted(demand)
    shares = amounts_of([shapes[number].roles for number in numbers], len(hosts.classes)) * hosts.weights
    room = [
        slots(hosts.free, role)[eligibility.rows(shapes[number], role)].sum()
        for number in numbers
        for role in shapes[number].roles[:1]
    ]
    scarcity = np.array([demand[number] for number in numbers]) / np.maximum(room, 1e-9)
    total = shares.sum(axis=1)
    largest = [
        total,
        shares.max(axis=1, initial=0),
        scarcity,
        *(column + 1e-9 * total for column in shares.T if column.any()),
    ]
    ranked = [sorted(range(len(numbers)), key=lambda n: rank(shapes[numbers[n]], key[n])) for key in largest]
    ranked.insert(3, sorted(ranked[0], key=lambda n: not shapes[numbers[n]].is_simple))
    return [[numbers[n] for n in order] for order in dict.fromkeys(map(tuple, ranked))]


def rank(shape: Shape, size: float) -> tuple[Any, ...]:
    """Return the key that sorts the larger shapes first, and those for several providers before all others."""
    return shape.is_simple, -size, shape.roles
