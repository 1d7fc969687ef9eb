"""What a claim asks for: per consumer as the caller says it, and per amount once its names are ids."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from placement.absent import ABSENT, Absent
from placement.claims.usage_moves import InventoryKey


@dataclasses.dataclass(frozen=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on.

    ``consumer_uuid`` is canonical. ``allocations`` maps provider uuid to class name to amount (1 or more), in the order
    of the request; empty: the consumer gives up everything. ``generation`` is what the caller believes: None for "does
    not exist yet", ``ABSENT`` where the request does not say (below microversion 1.28).
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    allocations: Mapping[str, Mapping[str, int]]
    generation: int | Absent | None = ABSENT


@dataclasses.dataclass(frozen=True)
class Wish:
    """One amount that a request asks for, with the names it used and the ids they stand for."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    key: InventoryKey
    amount: int
