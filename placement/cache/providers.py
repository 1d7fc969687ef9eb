"""The data that a search compares with a request: resource providers with their inventories."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from placement.capacity import InventoryRecord

__all__ = ['SHARING_TRAIT', 'InventoryRecord', 'Provider']

#: A provider with this trait shares its inventory with the trees of all providers that are in one of its aggregates.
SHARING_TRAIT = 'MISC_SHARES_VIA_AGGREGATE'


@dataclass(eq=False, slots=True)
class Provider:
    """One resource provider, with all that a search and a list of providers show of it. Never changed once made.

    ``inventories`` is by class name, in order of the class ids. ``traits`` are names, ``aggregates`` uuids.
    ``modified`` is the aware time of the last update of its row, None if none is recorded. ``ancestors`` are the ids of
    the providers above a sharing provider, which search units of other trees do not contain; it is empty for other
    providers. There may be several objects of one provider: compare ``id``.
    """

    id: int
    uuid: str
    root_id: int
    parent_id: int | None
    inventories: Mapping[str, InventoryRecord]
    traits: frozenset[str] = frozenset()
    aggregates: frozenset[str] = frozenset()
    name: str | None = None
    generation: int = 0
    parent_provider_uuid: str | None = None
    root_provider_uuid: str = ''
    modified: dt.datetime | None = None
    ancestors: frozenset[int] = frozenset()

    @property
    def display_name(self) -> str:
        """The name, or the uuid if it has no name."""
        return self.name or self.uuid
