"""The requests for claims and reshapes: as the caller sends them, and each allocation with the ids of its names."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping

from placement import exception
from placement.claims.usage import InventoryKey
from placement.db import inventory_rows


class Unset(enum.Enum):
    """The type of ``UNSET``: the request has no such member, where null (None) has a meaning of its own."""

    UNSET = 'unset'


UNSET = Unset.UNSET


@dataclasses.dataclass(frozen=True)
class ConsumerClaim:
    """The desired allocations of one consumer, which replace all that it has.

    ``consumer_uuid`` is canonical. ``project_id`` and ``user_id`` are external ids. ``allocations`` maps provider uuid
    to class name to amount (1 or more), in the order of the request; empty means that the consumer releases everything.
    ``generation`` is the one that the request names: None for a consumer that must not exist yet, ``UNSET`` where the
    request cannot name one (below microversion 1.28). ``consumer_type`` is ``UNSET`` below microversion 1.38: then a
    consumer that exists keeps its type, and a new one has none.
    """

    consumer_uuid: str
    project_id: str
    user_id: str
    allocations: Mapping[str, Mapping[str, int]]
    generation: int | Unset | None = UNSET
    consumer_type: str | Unset = UNSET


@dataclasses.dataclass(frozen=True)
class RequestedAllocation:
    """One requested allocation. ``inventory`` has the ids of ``provider_uuid`` and ``class_name``."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    inventory: InventoryKey
    amount: int


def amounts_by_inventory(requested: Iterable[RequestedAllocation]) -> dict[InventoryKey, list[int]]:
    """Return the requested amounts, by the ids of provider and class."""
    amounts: dict[InventoryKey, list[int]] = {}
    for one in requested:
        amounts.setdefault(one.inventory, []).append(one.amount)
    return amounts


@dataclasses.dataclass(frozen=True)
class NewInventories:
    """All inventories that one provider is to have after a reshape; ``records`` are by class name.

    ``generation`` is the one that the caller sent. ``invalid`` is the error of the first record that may not be stored;
    it is raised after the provider was found and its generation was compared.
    """

    provider_uuid: str
    generation: int
    records: Mapping[str, inventory_rows.Record]
    invalid: exception.InvalidInventoryCapacity | None = None
