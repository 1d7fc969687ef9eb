"""Places shapes by a fit policy, in an order. Equal arguments always give equal placements."""

from __future__ import annotations

import enum
import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Integers
from placement.ops.planning.eligibility import Eligibility, slots
from placement.ops.planning.hosts import Matrix
from placement.ops.planning.loads import Role, Shape
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

    placements: list[Placement] = field(default_factory=list)
    remaining: dict[int, int] = field(default_factory=dict)
    #: What is free afterwards; None if it was not computed.
    free: Matrix | None = None


class Packing:
    """The state of one attempt to place shapes.

    :param columns: the classes that count for ``Fit.ALIGNED``.
    """

    def __init__(
        self,
        eligibility: Eligibility,
        shapes: Sequence[Shape],
        solver: TreeSolver,
        fit: Fit,
        columns: Sequence[int] = (),
    ) -> None:
        self._hosts = eligibility.hosts
        self._eligibility = eligibility
        self._shapes = shapes
        self._solver = solver
        self._fit = fit
        self._free = self._hosts.free.copy()
        #: What makes amounts comparable for ``Fit.ALIGNED``.
        self._weights: Floats = np.zeros(len(self._hosts.classes))
        self._weights[columns] = self._hosts.weights[columns]
        #: The trees where something was placed.
        self._is_used = np.zeros(len(self._hosts.trees), np.bool_)

    def pack(self, demand: Iterable[tuple[int, int]]) -> Packed:
        """Place as many as fit.

        :param demand: pairs of the index of a shape and the number of its consumers, in the order of placing.
        """
        packed = Packed(free=self._free)
        for number, count in demand:
            unplaced = count
            for rows, taken in self._place(self._shapes[number], count):
                packed.placements.append(Placement(number, rows, taken))
                unplaced -= taken
            if unplaced:
                packed.remaining[number] = unplaced
        return packed

    def fail(self, tree: int, demand: Iterable[tuple[int, int]]) -> dict[int, int]:
        """Return how many consumers of each shape are left if a tree fails. The state stays as it was.

        :param demand: what was on the tree, as for ``pack``.
        """
        self._free[self._hosts.rows(tree)] = -1
        changed = list(range(self._hosts.starts[tree], self._hosts.starts[tree + 1]))
        remaining = {}
        for number, count in demand:
            unplaced = count
            for rows, taken in self._place(self._shapes[number], count):
                changed += rows
                unplaced -= taken
            if unplaced:
                remaining[number] = unplaced
        self._free[changed] = self._hosts.free[changed]
        return remaining

    def _place(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield rows and the number of consumers placed there."""
        if shape.shared:
            return self._place_with_pools(shape, count)
        return self._place_in_rows(shape, count) if shape.is_simple else self._place_in_trees(shape, count)

    def _place_in_rows(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Place in one row after the other. Where placing lowers the score of a row, only one consumer goes there."""
        [role] = shape.roles
        rows = self._eligibility.fullest_first(shape) if self._fit is Fit.BEST else self._rows_by_score(shape)
        per_row = 1 if self._fit in (Fit.WORST, Fit.ALIGNED) else count
        for row in rows:
            free = self._free[row].tolist()
            taken = min(per_row, count, *[free[column] // amount for column, amount in role])
            if taken > 0:
                for column, amount in role:
                    free[column] -= taken * amount
                self._free[row] = free
                yield (row,), taken
                count -= taken
                if not count:
                    break

    def _rows_by_score(self, shape: Shape) -> Iterator[int]:
        """Yield the row with the highest score. What is placed there changes its score."""
        [role] = shape.roles
        rows = np.flatnonzero(self._eligibility.rows_elsewhere(shape))
        scores = self._scores(rows, role)
        while len(rows) and scores[index := int(np.argmax(scores))] > -np.inf:
            self._is_used[self._hosts.tree_of[rows[index]]] = True
            yield int(rows[index])
            scores[index] = self._scores(rows[index : index + 1], role)[0]

    def _scores(self, rows: Integers, role: Role) -> Floats:
        """Return how well a consumer suits each row by the policy; the first of equal rows is taken."""
        free = self._free[rows]
        room = np.maximum(free, 0)
        if self._fit is Fit.ALIGNED:
            # The cosine of the angle between what is left and what is needed. So each class runs out at the same time.
            scaled = room * self._weights
            size = np.zeros(scaled.shape[1])
            size[[column for column, _ in role]] = [amount for _, amount in role]
            scores = scaled @ (size * self._weights) / np.maximum(np.sqrt((scaled * scaled).sum(axis=1)), 1e-9)
        else:
            scores = room @ self._hosts.weights
            if self._fit is Fit.FEWEST:
                # More than can be left anywhere.
                scores[self._is_used[self._hosts.tree_of[rows]]] += self._free.size
        rounded: Floats = np.where(slots(free, role) > 0, np.round(scores, 9), -np.inf)
        return rounded

    def _place_in_trees(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Fill one tree after the other, or for ``Fit.WORST`` place one consumer in each of them, and start again."""
        trees = self._trees(shape)
        while count:
            used = []
            for tree in trees:
                while count and (rows := self._solver.assign(shape, tree, self._free[self._hosts.rows(tree)])):
                    self._take(shape.roles, rows, 1)
                    yield rows, 1
                    count -= 1
                    if self._fit is Fit.WORST:
                        used.append(tree)
                        break
                if not count:
                    return
            if not used:
                break
            trees = used

    def _trees(self, shape: Shape) -> Iterable[int]:
        if self._fit in (Fit.BEST, Fit.ALIGNED):
            return self._eligibility.fullest_first(shape)
        trees = self._eligibility.candidate_trees(shape, self._free)
        if not len(trees):
            return ()
        room = np.add.reduceat(np.maximum(self._free, 0) @ self._hosts.weights, self._hosts.starts[:-1])[trees]
        order: list[int] = trees[np.lexsort((-room, ~self._is_used[trees] & (self._fit is Fit.FEWEST)))].tolist()
        return order

    def _place_with_pools(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Place consumers whose shared allocations may move: first without moving these, then from pool to pool."""
        if self._eligibility.is_kept(shape):
            for rows, taken in self._place(replace(shape, shared=()), count):
                yield rows, taken
                count -= taken
        choices = [np.flatnonzero(self._eligibility.pools(role)).tolist() for role in shape.shared]
        for pools in itertools.product(*choices):
            moved = replace(shape, stays=frozenset(pools), shared=())
            while count and (room := self._slots_of_pools(shape, pools)):
                placed = 0
                for rows, taken in self._place(moved, min(count, room)):
                    yield rows + pools, taken
                    placed += taken
                self._take(shape.shared, pools, placed)
                count -= placed
                if not placed:
                    break

    def _slots_of_pools(self, shape: Shape, pools: Sequence[int]) -> int:
        needs: defaultdict[tuple[int, int], int] = defaultdict(int)
        for role, pool in zip(shape.shared, pools, strict=True):
            for column, amount in role:
                needs[pool, column] += amount
        return max(min(int(self._free[place]) // amount for place, amount in needs.items()), 0)

    def _take(self, roles: Sequence[Role], rows: Sequence[int], count: int) -> None:
        for role, row in zip(roles, rows, strict=True):
            free = self._free[row]
            for column, amount in role:
                free[column] -= count * amount
            self._is_used[self._hosts.tree_of[row]] = True


def pack(
    eligibility: Eligibility,
    shapes: Sequence[Shape],
    demand: Mapping[int, int],
    solver: TreeSolver,
    policies: Sequence[Fit],
    max_attempts: int,
) -> Packed:
    """Try orders and policies until all consumers are placed; return the attempt that left the fewest."""
    columns = sorted({column for number in demand for role in shapes[number].roles for column, _ in role})
    attempts = itertools.product(orders(eligibility, shapes, demand), policies)
    best = None
    for order, policy in itertools.islice(attempts, max_attempts):
        packing = Packing(eligibility, shapes, solver, policy, columns)
        packed = packing.pack([(number, demand[number]) for number in order])
        if best is None or sum(packed.remaining.values()) < sum(best.remaining.values()):
            best = packed
        if not best.remaining:
            break
    return best or Packed()


def orders(eligibility: Eligibility, shapes: Sequence[Shape], demand: Mapping[int, int]) -> list[list[int]]:
    """Return orders in which to place shapes, the most promising first, without repetitions.

    The first has the largest shapes first, by the sum of their shares of a mean provider, the second by the largest
    share. The third has those whose consumers need the largest part of the slots for them. Then follow the orders by
    the amount of each class. Shapes that need several providers come first, except in the fourth order: where they are
    last, they leave the one provider with enough room to a shape that needs it.
    """
    hosts = eligibility.hosts
    size = {number: size_of(shapes[number], hosts.weights) for number in demand}
    keys: list[dict[int, tuple[float, ...]]] = [
        {number: (-sum(shares.values()),) for number, shares in size.items()},
        {number: (-max(shares.values(), default=0.0),) for number, shares in size.items()},
    ]
    scarcity: dict[int, tuple[float, ...]] = {}
    for number, count in demand.items():
        role = shapes[number].roles[0]
        room = int(slots(hosts.free, role)[eligibility.rows(shapes[number], role)].sum())
        scarcity[number] = (-count / max(room, 1e-9),)
    keys.append(scarcity)
    keys += [
        {number: (-shares.get(column, 0.0), -sum(shares.values())) for number, shares in size.items()}
        for column in sorted({column for shares in size.values() for column in shares})
    ]
    ranked = [sorted(demand, key=lambda n: (shapes[n].is_simple, key[n], shapes[n].roles, n)) for key in keys]
    ranked.insert(3, sorted(ranked[0], key=lambda n: not shapes[n].is_simple))
    return [list(order) for order in dict.fromkeys(map(tuple, ranked))]


def size_of(shape: Shape, weights: NDArray[np.float64]) -> dict[int, float]:
    """Return the share of a mean provider that a shape needs, by column."""
    shares: dict[int, float] = {}
    for role in shape.roles:
        for column, amount in role:
            shares[column] = shares.get(column, 0.0) + amount * float(weights[column])
    return shares
