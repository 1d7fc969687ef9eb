"""The data that a search compares with a request: resource providers with their inventories."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from placement.capacity import InventoryRecord

#: A provider with this trait shares its inventory with the trees of all providers in its aggregates.
SHARING_TRAIT = 'MISC_SHARES_VIA_AGGREGATE'
#: The compute service sets this trait on the root of a host while it places nothing there.
DISABLED_TRAIT = 'COMPUTE_STATUS_DISABLED'

#: The bytes of a uuid, and of the JSON of a provider without names: of the summary, each inventory in it (the numbers
#: have some 14 digits together), and each trait.
UUID_BYTES = 36
_SUMMARY_BYTES = (
    len('"":{"resources":{},"traits":[],"parent_provider_uuid":"","root_provider_uuid":""},') + 3 * UUID_BYTES
)
_INVENTORY_BYTES = len('"":{"capacity":,"used":},') + 14
_TRAIT_BYTES = len('"",')


def summary_size(classes: Iterable[str], traits: frozenset[str]) -> int:
    """Return about how many bytes the summary of a provider with these inventories and traits has in a response."""
    size = sum([len(name) + _INVENTORY_BYTES for name in classes], _SUMMARY_BYTES)
    return size + sum(map(len, traits)) + len(traits) * _TRAIT_BYTES


class Usage(NamedTuple):
    """What claims change of a provider."""

    generation: int
    modified: dt.datetime | None
    #: By class name.
    used: Mapping[str, int]


@dataclass(eq=False, slots=True)
class Provider:
    """One resource provider, with everything that searches and lists of providers show. Objects are immutable.

    There may be several objects of one provider, so compare ``id``.
    """

    id: int
    uuid: str
    root_id: int
    parent_id: int | None
    #: By class name, in order of the class ids.
    inventories: Mapping[str, InventoryRecord]
    #: Names.
    traits: frozenset[str] = frozenset()
    #: Uuids.
    aggregates: frozenset[str] = frozenset()
    name: str | None = None
    generation: int = 0
    parent_provider_uuid: str | None = None
    root_provider_uuid: str = ''
    #: The aware time of the last update of its row; None if it is unknown.
    modified: dt.datetime | None = None
    #: The ids of the providers above it, but only in ``Snapshot.sharing``: search units of other trees do not contain
    #: these. Empty in ``Partition.providers``, also for the same provider.
    ancestors: frozenset[int] = frozenset()

    def with_usage(self, usage: Usage) -> Provider:
        """Return the provider after claims.

        :raises KeyError: it lacks an inventory of ``usage``.
        """
        inventories = dict(self.inventories)
        for name, amount in usage.used.items():
            if inventories[name].used != amount:
                inventories[name] = inventories[name].with_used(amount)
        # This takes a fifth of the time of ``dataclasses.replace``.
        return Provider(
            self.id,
            self.uuid,
            self.root_id,
            self.parent_id,
            inventories,
            self.traits,
            self.aggregates,
            self.name,
            usage.generation,
            self.parent_provider_uuid,
            self.root_provider_uuid,
            usage.modified,
        )

    @property
    def display_name(self) -> str:
        """The name, or the uuid if it has no name."""
        return self.name or self.uuid
