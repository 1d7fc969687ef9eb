"""What a claim asks for: as the caller says it, and allocation by allocation with the ids that belong to the names."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from placement.absent import ABSENT, Absent
from placement.claims.usage_moves import InventoryKey


@dataclasses.dataclass(frozen=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on.

    ``consumer_uuid`` is canonical. ``project_id`` and ``user_id`` are external ids. ``allocations`` maps provider uuid
    to class name to amount (1 or more), in the order of the request; empty means that the consumer gives up everything.
    ``generation`` is the one that the request names: None for a consumer that must not exist yet, ``ABSENT`` where the
    request cannot name one (below microversion 1.28).
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    allocations: Mapping[str, Mapping[str, int]]
    generation: int | Absent | None = ABSENT


@dataclasses.dataclass(frozen=True)
class RequestedAllocation:
    """One allocation that a request asks for. ``inventory`` has the ids of ``provider_uuid`` and ``class_name``."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    inventory: InventoryKey
    amount: int
