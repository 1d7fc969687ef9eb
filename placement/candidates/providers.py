"""The data that a search works on: providers with their inventories, and anchors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placement import capacity as capacity_rule
from placement.candidates.reasons import Reason


class InventoryRecord(NamedTuple):
    """One inventory. ``used`` is the sum of the allocations of all consumers."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = capacity_rule.MAX_INT32
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0

    @property
    def capacity(self) -> int:
        """How much may be used in all, truncated towards zero."""
        return capacity_rule.capacity(self)

    @property
    def headroom(self) -> int:
        """The most that the sum of the groups of one candidate may be: what is left, and at most ``max_unit``."""
        return min(self.capacity - self.used, self.max_unit)

    def rejection(self, amount: int) -> Reason | None:
        """Return the first rule that ``amount`` breaks, None when there is room for it (api-ref/capacity.md#room)."""
        if amount > self.max_unit:
            return Reason.ABOVE_MAX_UNIT
        if amount < self.min_unit:
            return Reason.BELOW_MIN_UNIT
        if amount % self.step_size:
            return Reason.WRONG_STEP
        if self.used + amount > capacity_rule.capacity_limit(self):
            return Reason.NO_CAPACITY
        return None


@dataclass(eq=False, slots=True)
class Provider:
    """One resource provider.

    ``inventories`` is by class name, ``traits`` are names, ``aggregates`` uuids (at least those that the request
    names). There may be several objects of one provider: compare ``id``. ``ancestors`` are the ids of the providers
    above a sharing provider, as an anchor of another tree does not have these; it is empty for other providers.
    """

    id: int
    uuid: str
    root_id: int
    parent_id: int | None
    inventories: Mapping[str, InventoryRecord]
    traits: frozenset[str] | set[str]
    aggregates: frozenset[str] | set[str]
    ancestors: frozenset[int] = frozenset()


class Anchor(NamedTuple):
    """Where a candidate is built: the providers of one tree, root first, and the sharing providers that reach its root.

    A candidate at an anchor with a tree uses at least one provider of the tree. So there are also anchors whose
    ``tree`` is empty, called *bridges*: sharing providers which together reach some root, though they are in different
    aggregates, and so may serve a request together without that root's tree.
    """

    tree: tuple[Provider, ...]
    sharing: tuple[Provider, ...]
