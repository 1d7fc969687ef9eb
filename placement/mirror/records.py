"""One resource provider as the tables have it, with everything that a search or a list of providers shows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import NamedTuple

from placement.candidates.providers import InventoryRecord

#: Resource class ids with the inventory of each, in order of the id.
Inventories = tuple[tuple[int, InventoryRecord], ...]


class Record(NamedTuple):
    """One provider. Equal records show the same.

    ``modified`` is when the row was last written, None if nobody recorded it. ``traits`` are names, ``aggregates``
    uuids.
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


class Usage(NamedTuple):
    """What a claim changes of a provider: its generation, when that was, and what is used by resource class id."""

    generation: int
    modified: dt.datetime | None
    used: Mapping[int, int]


def with_usage(record: Record, usage: Usage) -> Record:
    """Return ``record`` after the claims that led to ``usage``; inventories that it does not name stay as they are."""
    used = usage.used
    inventories = tuple(
        (class_id, one if used.get(class_id, one.used) == one.used else one._replace(used=used[class_id]))
        for class_id, one in record.inventories
    )
    return record._replace(generation=usage.generation, modified=usage.modified, inventories=inventories)
