"""The data that a search works on: providers with their inventories, and anchors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placement import capacity as capacity_rule
from placement.candidates.reasons import CAPACITY_REASONS, Reason


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
        """The maximum of the sum of the groups of one candidate."""
        return capacity_rule.headroom(self, math.floor(capacity_rule.capacity_limit(self)))

    def rejection(self, amount: int) -> Reason | None:
        """Return the first rule that ``amount`` breaks, None when there is room for it (api-ref/capacity.md#room)."""
        violations = capacity_rule.violations(self, capacity_rule.capacity_limit(self), amount)
        if True in violations:
            return CAPACITY_REASONS[violations.index(True)]
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
    ``tree`` is empty, called *shared_only_anchors*: sharing providers which together reach some root, though they are
    in different aggregates, and so may serve a request together without that root's tree.
    """

    tree: tuple[Provider, ...]
    sharing: tuple[Provider, ...]
