"""The requested claims and reshapes, as the caller sends them."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping

from placement.capacity import InventoryRecord


class Unset(enum.Enum):
    """The type of ``UNSET``: the request does not have this member. None means that it has the value null."""

    UNSET = 'unset'


UNSET = Unset.UNSET


@dataclasses.dataclass(frozen=True)
class ConsumerClaim:
    """The desired allocations of one consumer, which replace all its allocations.

    ``consumer_uuid`` is canonical. ``project_id`` and ``user_id`` are external ids. ``allocations`` maps provider uuid
    and class name to an amount of 1 or more, in the order of the request; if it is empty, the consumer releases
    everything. ``generation`` is the generation in the request: None if the consumer must not exist yet, ``UNSET``
    below microversion 1.28. ``consumer_type`` is ``UNSET`` below microversion 1.38: then an existing consumer keeps its
    type, and a new one has none. ``is_deletion`` is true for DELETE.
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    allocations: Mapping[str, Mapping[str, int]]
    generation: int | Unset | None = UNSET
    consumer_type: str | Unset = UNSET
    is_deletion: bool = False


@dataclasses.dataclass(frozen=True)
class ReshapedProvider:
    """A provider, the generation that the caller sent for it, and all its new inventories, by class name."""

    uuid: str
    generation: int
    inventories: Mapping[str, InventoryRecord]
