"""What is there: providers, their inventories and trees as plain rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placement import room
from placement.candidates.reasons import Reason


class InventoryRecord(NamedTuple):
    """One inventory record. ``used`` is what all consumers hold of it together."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = room.LARGEST
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0

    @property
    def capacity(self) -> int:
        """What can be handed out in all, truncated towards zero."""
        return room.capacity(self)

    @property
    def headroom(self) -> int:
        """The most that one candidate may take: what is left, or ``max_unit`` when that is less."""
        return min(self.capacity - self.used, self.max_unit)

    def rejection(self, amount: int) -> Reason | None:
        """Return the part of the room rule that ``amount`` breaks, or None when there is room for it."""
        if amount > self.max_unit:
            return Reason.ABOVE_MAX_UNIT
        if amount < self.min_unit:
            return Reason.BELOW_MIN_UNIT
        if amount % self.step_size:
            return Reason.WRONG_STEP
        if self.used + amount > room.limit(self):
            return Reason.NO_CAPACITY
        return None


@dataclass(eq=False)
class Provider:
    """One resource provider, with what the request can ask about.

    ``inventories`` is keyed by class name, ``traits`` holds trait names, ``aggregates`` the uuids of its aggregates (at
    least those that the request names). Two objects may stand for one provider; ``id`` tells.
    """

    __slots__ = ('aggregates', 'id', 'inventories', 'parent_id', 'root_id', 'traits', 'uuid')

    id: int
    uuid: str
    root_id: int
    parent_id: int | None
    inventories: Mapping[str, InventoryRecord]
    traits: frozenset[str] | set[str]
    aggregates: frozenset[str] | set[str]


class Anchor(NamedTuple):
    """Where a candidate is built: one tree, root first, and the sharing providers of other trees that reach it.

    A *bridge* has no tree of its own. It is there because several sharing providers, which no aggregate has in common,
    reach the same root: together they may serve a request to which that root's tree adds nothing.
    """

    tree: tuple[Provider, ...]
    sharing: tuple[Provider, ...]
