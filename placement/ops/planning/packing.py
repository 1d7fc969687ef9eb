"""Places shapes by a fit policy, in an order. Equal arguments always give equal placements."""

from __future__ import annotations

import enum
import itertools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Integers
from placement.ops.planning.eligibility import Eligibility, slots
from placement.ops.planning.hosts import Matrix
from placement.ops.planning.loads import Role, Shape
from placement.ops.planning.nested import TreeSolver, candidate_trees

Floats = NDArray[np.float64]


class Fit(enum.Enum):
    """Where the next consumer goes."""

    BEST = 'where least is left'
    ALIGNED = 'where what is left is in the proportion of what is needed'
    WORST = 'where most is left'
    FEWEST = 'where something was placed before, then where most is left'


#: What is tried, one after the other, until everything is placed.
POLICIES = (Fit.ALIGNED, Fit.BEST)


@dataclass(frozen=True)
class Placement:
    """``count`` consumers of a shape, with the row of each role and then that of each shared role that moves."""

    shape: int
    rows: tuple[int, ...]
    count: int


@dataclass
class Packed:
    """What was placed, and how many consumers of each shape were left."""

    placements: list[Placement] = field(default_factory=list)
    remaining: dict[int, int] = field(default_factory=dict)
    #: What is free afterwards; None if it was not computed.
    free: Matrix | None = None


class Packing:
    """The state of one attempt to place shapes."""

    def __init__(self, eligibility: Eligibility, shapes: Sequence[Shape], solver: TreeSolver, fit: Fit) -> None:
        self._hosts = eligibility.hosts
        self._eligibility = eligibility
        self._shapes = shapes
        self._solver = solver
        self._fit = fit
        self._free = self._hosts.free.copy()
        #: What makes amounts comparable; 0 for classes that no consumer needs.
        self._weights: Floats = np.zeros(len(self._hosts.classes))
        #: What is left in each row, in mean providers.
        self._left = np.maximum(self._free, 0) @ self._hosts.weights
        #: The trees where something was placed.
        self._is_used = np.zeros(len(self._hosts.trees), np.bool_)

    def pack(self, demand: Sequence[tuple[int, int]]) -> Packed:
        """Place as many as fit.

        :param demand: pairs of the index of a shape and the number of its consumers, in the order of placing.
        """
        packed = Packed(free=self._free)
        needed = sorted({column for number, _ in demand for role in self._shapes[number].roles for column, _ in role})
        self._weights[needed] = self._hosts.weights[needed]
        for number, count in demand:
            unplaced = count
            for rows, taken in self._place(self._shapes[number], count):
                packed.placements.append(Placement(number, rows, taken))
                unplaced -= taken
            if unplaced:
                packed.remaining[number] = unplaced
        return packed

    def _place(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Yield rows and the number of consumers placed there."""
        if shape.shared:
            yield from self._place_with_pools(shape, count)
        elif len(shape.roles) > 1:
            yield from self._place_in_trees(shape, count)
        else:
            yield from self._place_in_rows(shape, count)

    def _place_in_rows(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        """Place at the row with the highest score. Where placing raises it, a chosen row is filled at once."""
        [role] = shape.roles
        room = self._room(shape)
        rows = np.flatnonzero(room)
        room = room[rows]
        scores = self._scores(rows, role)
        while count and room.any():
            index = int(np.argmax(scores))
            row = rows[index : index + 1]
            taken = 1 if self._fit in (Fit.WORST, Fit.ALIGNED) else min(int(room[index]), count)
            self._take(shape.roles, row.tolist(), taken)
            yield tuple(row.tolist()), taken
            count -= taken
            room[index] -= taken
            scores[index] = self._scores(row, role)[0] if room[index] else -np.inf

    def _scores(self, rows: Integers, role: Role) -> Floats:
        """Return how well a consumer suits each row by the policy; the first of equal rows is taken."""
        remaining = self._left[rows]
        if self._fit is Fit.FEWEST:
            return remaining + np.where(self._is_used[self._hosts.tree_of[rows]], self._left.sum() + 1, 0)
        if self._fit is not Fit.ALIGNED:
            return remaining if self._fit is Fit.WORST else -remaining
        # The cosine of the angle between what is left and what is needed. So each class runs out at the same time.
        scaled = np.maximum(self._free[rows], 0) * self._weights
        size = np.zeros(scaled.shape[1])
        size[[column for column, _ in role]] = [amount for _, amount in role]
        lengths = np.maximum(np.sqrt((scaled * scaled).sum(axis=1)), 1e-9)
        scores: Floats = np.round(scaled @ (size * self._weights) / lengths, 9)
        return scores

    def _room(self, shape: Shape) -> Matrix:
        """Return for each row how many consumers of a shape with one role fit."""
        room = slots(self._free, shape.roles[0])
        room[~self._eligibility.rows(shape, shape.roles[0])] = 0
        for tree in shape.elsewhere:
            room[self._hosts.rows(tree)] = 0
        return room

    def _place_in_trees(self, shape: Shape, count: int) -> Iterator[tuple[tuple[int, ...], int]]:
        trees = candidate_trees(self._eligibility, shape, self._free)
        if len(trees):
            room = np.add.reduceat(self._left, self._hosts.starts[:-1])[trees]
            key = room if self._fit in (Fit.BEST, Fit.ALIGNED) else -room
            trees = trees[np.lexsort((key, ~self._is_used[trees] & (self._fit is Fit.FEWEST)))]
        waiting = deque(trees.tolist())
        while waiting and count:
            tree = waiting.popleft()
            rows = self._solver.assign(shape, tree, np.ascontiguousarray(self._free[self._hosts.rows(tree)]))
            if rows is None:
                continue
            self._take(shape.roles, rows, 1)
            yield rows, 1
            count -= 1
            if self._fit is Fit.WORST:
                waiting.append(tree)
            else:
                waiting.appendleft(tree)

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
        needs = np.zeros(self._free.shape[1], np.int64)
        room = 2**40
        for pool in set(pools):
            needs[:] = 0
            for role, row in zip(shape.shared, pools, strict=True):
                for column, amount in role if row == pool else ():
                    needs[column] += amount
            room = min(room, int((self._free[pool][needs > 0] // needs[needs > 0]).min(initial=room)))
        return max(room, 0)

    def _take(self, roles: Sequence[Role], rows: Sequence[int], count: int) -> None:
        for role, row in zip(roles, rows, strict=True):
            for column, amount in role:
                self._free[row, column] -= count * amount
        for row in rows:
            self._is_used[self._hosts.tree_of[row]] = True
            self._left[row] = np.maximum(self._free[row], 0) @ self._hosts.weights


def pack(
    eligibility: Eligibility,
    shapes: Sequence[Shape],
    demand: Mapping[int, int],
    solver: TreeSolver,
    policies: Sequence[Fit],
    max_attempts: int,
) -> Packed:
    """Try orders and policies until all consumers are placed; return the attempt that left the fewest."""
    attempts = itertools.product(orders(eligibility, shapes, demand), policies)
    best = None
    for order, policy in itertools.islice(attempts, max_attempts):
        packed = Packing(eligibility, shapes, solver, policy).pack([(number, demand[number]) for number in order])
        if best is None or sum(packed.remaining.values()) < sum(best.remaining.values()):
            best = packed
        if not best.remaining:
            break
    return best or Packed()


def orders(eligibility: Eligibility, shapes: Sequence[Shape], demand: Mapping[int, int]) -> list[list[int]]:
    """Return orders in which to place shapes, the most promising first, without repetitions.

    The first has the largest shapes first, by the sum of their shares of a mean provider, the second by the largest
    share. The third has those whose consumers need the largest part of the slots for them. Then follow the orders by
    the amount of each class. Shapes that need several providers always come first.
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
    return [list(order) for order in dict.fromkeys(map(tuple, ranked))]


def size_of(shape: Shape, weights: NDArray[np.float64]) -> dict[int, float]:
    """Return the share of a mean provider that a shape needs, by column."""
    shares: dict[int, float] = {}
    for role in shape.roles:
        for column, amount in role:
            shares[column] = shares.get(column, 0.0) + amount * float(weights[column])
    return shares
