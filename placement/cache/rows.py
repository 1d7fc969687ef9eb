"""Records: a resource provider as it is in the tables, with all that a search and a list of providers need of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import NamedTuple

from placement.candidates.providers import InventoryRecord

#: Pairs of resource class id and inventory, in order of the id.
Inventories = tuple[tuple[int, InventoryRecord], ...]


class ProviderRow(NamedTuple):
    """One provider.

    ``modified`` is the aware time of the last update of its row, None if none is recorded. ``traits`` are names,
    ``aggregates`` uuids.
    """

    id: int
    uuid: str
    name: str | None
    generation: int
    parent_id: int | None
    root_id: int
    parent_provider_uuid: str | None
    root_provider_uuid: str
    modified: dt.datetime | None
    inventories: Inventories
    traits: frozenset[str]
    aggregates: frozenset[str]


class UsageRow(NamedTuple):
    """Changes by claims: generation, ``modified`` as in ``ProviderRow``, and ``used`` by resource class id."""

    generation: int
    modified: dt.datetime | None
    used: Mapping[int, int]


def with_usage(row: ProviderRow, usage: UsageRow) -> ProviderRow:
    """Return ``row`` with ``usage``. Inventories of classes that are not in ``usage.used`` stay as they are."""
    used = usage.used
    inventories = tuple(
        (class_id, one if used.get(class_id, one.used) == one.used else one._replace(used=used[class_id]))
        for class_id, one in row.inventories
    )
    return row._replace(generation=usage.generation, modified=usage.modified, inventories=inventories)
