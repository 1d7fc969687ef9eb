"""What claims and reshapes ask for: as the caller says it, and each allocation with the ids of its names."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from placement import exception
from placement.absent import ABSENT, Absent
from placement.claims.usage import InventoryKey
from placement.db import inventory_rows


@dataclasses.dataclass(frozen=True)
class ConsumerClaim:
    """All that one consumer is to hold from now on.

    ``consumer_uuid`` is canonical. ``project_id`` and ``user_id`` are external ids. ``allocations`` maps provider uuid
    to class name to amount (1 or more), in the order of the request; empty means that the consumer gives up everything.
    ``generation`` is the one that the request names: None for a consumer that must not exist yet, ``ABSENT`` where the
    request cannot name one (below microversion 1.28). ``consumer_type`` is ``ABSENT`` below microversion 1.38: then a
    consumer that exists keeps its type, and a new one has none.
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    allocations: Mapping[str, Mapping[str, int]]
    generation: int | Absent | None = ABSENT
    consumer_type: str | Absent = ABSENT


@dataclasses.dataclass(frozen=True)
class RequestedAllocation:
    """One allocation that a request asks for. ``inventory`` has the ids of ``provider_uuid`` and ``class_name``."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    inventory: InventoryKey
    amount: int


def amounts_by_inventory(requested: Iterable[RequestedAllocation]) -> dict[InventoryKey, list[int]]:
    """The requested amounts, by the ids of provider and class."""
    amounts: dict[InventoryKey, list[int]] = {}
    for one in requested:
        amounts.setdefault(one.inventory, []).append(one.amount)
    return amounts


@dataclasses.dataclass(frozen=True)
class NewInventories:
    """All inventories that one provider is to have after a reshape; ``records`` are by class name.

    ``generation`` is the one that the caller sent. ``invalid`` is why a record may not be stored, if so: it is raised
    after the provider was found and its generation was compared.
    """

    provider_uuid: str
    generation: int
    records: Mapping[str, inventory_rows.Record]
    invalid: exception.InvalidInventoryCapacity | None = None
