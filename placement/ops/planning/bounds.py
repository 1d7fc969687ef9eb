"""Proofs that shapes cannot be placed: necessary conditions that they violate.

*Slots*: a role takes one slot of every smaller role that may use the same rows. If more consumers need a slot than
there are, they cannot be placed. *Sums*: the amounts of a class exceed all that is free in the rows that may take them.
Both are relaxations: they forget that classes are needed together, or that consumers of different sizes leave gaps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers
from placement.ops.planning.eligibility import Eligibility, slots
from placement.ops.planning.hosts import Matrix
from placement.ops.planning.loads import Role, Shape

#: Maximum number of roles whose slots are counted, of each component. The others count only as users of their slots.
_MAX_TARGETS = 60
#: Up to this number of roles, rows without room for any of them are excluded from the sums.
_MAX_ROLES = 100


@dataclass(frozen=True)
class Shortage:
    """Why it is impossible: more is ``needed`` than ``available``, of a class or of the places for a size."""

    needed: int
    available: int
    resource_class: str | None
    slots_of: Mapping[str, int]


@dataclass(frozen=True, eq=False)
class Bound:
    """One necessary condition: what all shapes need together is at most what all rows supply."""

    #: What one consumer of each shape needs, by index of the shape.
    needs: NDArray[np.float64]
    #: The rows, and what each supplies.
    rows: Integers
    supply: Integers
    #: What the supply counts: slots of a role, or amounts of the class at a column.
    role: Role = ()
    column: int | None = None


@dataclass(frozen=True, eq=False)
class RoleGroup:
    """Roles that the same rows may take: pairs of the index of a shape and one of its roles."""

    rows: Flags
    members: list[tuple[int, Role]]


def find_shortage(eligibility: Eligibility, shapes: Sequence[Shape], demand: Mapping[int, int]) -> Shortage | None:
    """Return a proof that a demand cannot be placed; None if there is none of these forms."""
    vector = np.zeros(len(shapes))
    vector[list(demand)] = list(demand.values())
    for bound in necessary_conditions(eligibility, shapes, demand):
        needed, available = int(bound.needs @ vector), int(bound.supply.sum())
        if needed > available:
            hosts = eligibility.hosts
            name = None if bound.column is None else hosts.classes[bound.column]
            return Shortage(needed, available, name, hosts.resources(bound.role))
    return None


def necessary_conditions(
    eligibility: Eligibility, shapes: Sequence[Shape], demand: Mapping[int, int]
) -> Iterator[Bound]:
    """Yield the bounds of each component: of shapes that compete for rows, directly or through others."""
    for groups in components(eligibility, shapes, demand):
        yield from _of_component(shapes, groups, demand, eligibility.hosts.free)


def components(eligibility: Eligibility, shapes: Sequence[Shape], numbers: Iterable[int]) -> list[list[RoleGroup]]:
    """Divide the roles of shapes into groups with equal rows, and these into components without rows in common."""
    by_rows: dict[bytes, RoleGroup] = {}
    # ``Eligibility`` returns the same object for most equal rows. The flags are kept, so that their ids stay distinct.
    digests: dict[int, tuple[bytes, Flags]] = {}
    for number in sorted(numbers):
        shape = shapes[number]
        usable = [(role, eligibility.rows(shape, role)) for role in shape.roles]
        if shape.shared and not eligibility.is_kept(shape):
            usable += [(role, eligibility.pools(role)) for role in shape.shared]
        for role, rows in usable:
            if id(rows) not in digests:
                digests[id(rows)] = np.packbits(rows).tobytes(), rows
            by_rows.setdefault(digests[id(rows)][0], RoleGroup(rows, [])).members.append((number, role))
    merged: list[tuple[Flags, list[RoleGroup]]] = []
    for group in by_rows.values():
        union, members, separate = group.rows, [group], []
        for rows, other_groups in merged:
            if (rows & group.rows).any():
                union, members = union | rows, [*other_groups, *members]
            else:
                separate.append((rows, other_groups))
        merged = [*separate, (union, members)]
    return [members for _, members in merged]


def _of_component(
    shapes: Sequence[Shape], groups: Sequence[RoleGroup], demand: Mapping[int, int], free: Matrix
) -> Iterator[Bound]:
    union = np.flatnonzero(np.logical_or.reduce([group.rows for group in groups]))
    part = free[union]
    items = [(number, role, index) for index, group in enumerate(groups) for number, role in group.members]
    numbers, group_of = (np.array([item[place] for item in items], np.int64) for place in (0, 2))
    amounts = np.zeros((len(items), free.shape[1]), np.int64)
    consumers: dict[tuple[Role, int], int] = {}
    for index, (number, role, group) in enumerate(items):
        amounts[index, [column for column, _ in role]] = [amount for _, amount in role]
        consumers[role, group] = consumers.get((role, group), 0) + demand[number]
    usable = np.array([group.rows[union] for group in groups])
    # Which groups have only rows of another one.
    within = np.array([[not (rows & ~other_rows).any() for other_rows in usable] for rows in usable], np.bool_)
    for role, group in sorted(consumers, key=lambda key: (-consumers[key], key))[:_MAX_TARGETS]:
        least = np.zeros(free.shape[1], np.int64)
        least[[column for column, _ in role]] = [amount for _, amount in role]
        takes = (amounts >= least).all(axis=1) & within[group_of, group]
        needs = np.bincount(numbers[takes], minlength=len(shapes)).astype(np.float64)
        yield Bound(needs, union, np.where(usable[group], slots(part, role), 0), role=role)
    sets = [(rows, within[group_of, index]) for index, rows in enumerate(usable)]
    if not usable.all(axis=1).any():
        sets.append((np.ones(len(union), np.bool_), np.ones(len(items), np.bool_)))
    for rows, members in sets:
        for column in np.flatnonzero(amounts[members].any(axis=0)).tolist():
            using = members & (amounts[:, column] > 0)
            supply = np.where(_has_room(part, amounts[using]) & rows, np.maximum(part[:, column], 0), 0)
            weights = amounts[using, column]
            needs = np.bincount(numbers[using], weights=weights, minlength=len(shapes)).astype(np.float64)
            yield Bound(needs, union, supply, column=column)


def _has_room(free: Matrix, amounts: Matrix) -> Flags:
    """Return the rows in which any of the amounts fits or, if they are many, the smallest amounts of each class."""
    distinct = np.unique(amounts, axis=0)
    if len(distinct) > _MAX_ROLES:
        distinct = distinct.min(axis=0, keepdims=True)
    flags: Flags = np.logical_or.reduce([((free >= least) | (least == 0)).all(axis=1) for least in distinct])
    return flags
