"""Proofs that shapes cannot be placed: necessary conditions that they violate.

*Slots*: a role takes one slot of every smaller role that may use the same rows. If more consumers need a slot than
there are, they cannot be placed. *Sums*: the amounts of a class exceed all that is free in the rows that may take them.
Both are relaxations: they forget that classes are needed together, or that consumers of different sizes leave gaps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from placement.cache.inventory_columns import Flags, Integers
from placement.ops.planning.eligibility import Eligibility, slots
from placement.ops.planning.loads import Role, amounts_of

#: Maximum number of roles whose slots are counted, of each group. The others count only as users of their slots.
_MAX_TARGETS = 60


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


def find_shortage(eligibility: Eligibility, demand: Mapping[int, int]) -> Shortage | None:
    """Return a proof that a demand cannot be placed; None if there is none of these forms."""
    vector = np.zeros(len(eligibility.shapes))
    vector[list(demand)] = list(demand.values())
    for bound in necessary_conditions(eligibility, demand):
        needed, available = int(bound.needs @ vector), int(bound.supply.sum())
        if needed > available:
            hosts = eligibility.hosts
            name = None if bound.column is None else hosts.classes[bound.column]
            return Shortage(needed, available, name, hosts.resources(bound.role))
    return None


def necessary_conditions(eligibility: Eligibility, demand: Mapping[int, int]) -> Iterator[Bound]:
    """Yield the bounds for the rows of each group of roles, and for the rows of all groups together."""
    groups = group_roles(eligibility, demand)
    if not groups:
        return
    packed = np.packbits([group.rows for group in groups], axis=1)
    union = RoleGroup(np.logical_or.reduce([group.rows for group in groups]), [])
    for group in [*groups, union] if len(groups) > 1 else groups:
        # The groups that have only rows of this one.
        is_within = ~(packed & ~np.packbits(group.rows)).any(axis=1)
        rivals = [member for index in np.flatnonzero(is_within).tolist() for member in groups[index].members]
        yield from _of_rows(eligibility, demand, np.flatnonzero(group.rows), group.members, rivals)


def group_roles(eligibility: Eligibility, numbers: Iterable[int]) -> list[RoleGroup]:
    """Divide the roles of shapes into groups with equal rows."""
    groups: dict[bytes, RoleGroup] = {}
    for number in sorted(numbers):
        shape = eligibility.shapes[number]
        usable = [(role, eligibility.rows(shape, role)) for role in shape.roles]
        if shape.shared and not eligibility.is_kept(shape):
            usable += [(role, eligibility.pools(role)) for role in shape.shared]
        for role, rows in usable:
            groups.setdefault(np.packbits(rows).tobytes(), RoleGroup(rows, [])).members.append((number, role))
    return list(groups.values())


def _of_rows(
    eligibility: Eligibility,
    demand: Mapping[int, int],
    rows: Integers,
    members: Sequence[tuple[int, Role]],
    rivals: Sequence[tuple[int, Role]],
) -> Iterator[Bound]:
    """Yield the bounds of some rows.

    :param members: the roles that may use all of these rows; they are also among ``rivals``.
    :param rivals: the roles that may use only these rows, or some of them.
    """
    free, shape_count = eligibility.hosts.free[rows], len(eligibility.shapes)
    numbers = np.array([number for number, _ in rivals], np.int64)
    amounts = amounts_of([[role] for _, role in rivals], free.shape[1])
    consumers = Counter[Role]()
    for number, role in members:
        consumers[role] += demand[number]
    for role in sorted(consumers, key=lambda role: (-consumers[role], role))[:_MAX_TARGETS]:
        takes = (amounts >= amounts_of([[role]], free.shape[1])).all(axis=1)
        needs = np.bincount(numbers[takes], minlength=shape_count).astype(np.float64)
        yield Bound(needs, rows, slots(free, role), role=role)
    for column in np.flatnonzero(amounts.any(axis=0)).tolist():
        is_using = amounts[:, column] > 0
        # What is free where not even the smallest amounts fit is of no use.
        least = amounts[is_using].min(axis=0)
        has_room = ((free >= least) | (least == 0)).all(axis=1)
        supply = np.where(has_room, np.maximum(free[:, column], 0), 0)
        weights = amounts[is_using, column]
        needs = np.bincount(numbers[is_using], weights=weights, minlength=shape_count).astype(np.float64)
        yield Bound(needs, rows, supply, column=column)
