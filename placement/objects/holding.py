"""What consumers hold at the moment, read in one statement together with the generations that guard it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement.db import statements, tables
from placement.objects.consumer import Consumer

_allocations, _consumers = tables.allocations, tables.consumers


def _reading() -> sa.CompoundSelect[Any]:
    none = sa.null()
    uuids: sa.BindParameter[str] = sa.bindparam('uuids', expanding=True)
    consumer, held = _consumers.c, _allocations.c
    return sa.union_all(
        sa.select(consumer.uuid, consumer.id, consumer.generation, none, none, none).where(consumer.uuid.in_(uuids)),
        sa.select(held.consumer_id, held.id, none, held.resource_provider_id, held.resource_class_id, held.used).where(
            held.consumer_id.in_(uuids)
        ),
    )


_READ = _reading()


@dataclasses.dataclass(frozen=True)
class HeldRow:
    """One allocation as it was read."""

    consumer_uuid: str
    id: int
    resource_provider_id: int
    resource_class_id: int
    used: int


@dataclasses.dataclass(frozen=True)
class Held:
    """The consumers that exist, by uuid, and all their allocations."""

    consumers: Mapping[str, Consumer]
    rows: Sequence[HeldRow]

    def generations(self) -> dict[str, int]:
        """The generation of each consumer that holds something, 0 where there is no record (contract B 2.1)."""
        recorded = {uuid: present.generation for uuid, present in self.consumers.items()}
        return {row.consumer_uuid: 0 for row in self.rows} | recorded

    def provider_ids(self) -> set[int]:
        """The providers that they hold something of."""
        return {row.resource_provider_id for row in self.rows}

    def amounts(self) -> dict[tuple[int, int], int]:
        """The sum of what they hold by (provider id, class id)."""
        sums: dict[tuple[int, int], int] = {}
        for row in self.rows:
            slot = (row.resource_provider_id, row.resource_class_id)
            sums[slot] = sums.get(slot, 0) + row.used
        return sums


def read(tx: sa.Connection, consumer_uuids: Sequence[str]) -> Held:
    """What the consumers with these canonical uuids hold.

    One statement sees one state of a consumer: whoever then compare-and-swaps its generation knows that its allocations
    are still those. An adopted database may hold allocations without a consumer record.
    """
    rows = [row for batch in statements.batches(consumer_uuids) for row in tx.execute(_READ, {'uuids': batch})]
    consumers = {row[0]: Consumer(uuid=row[0], id=row[1], generation=row[2]) for row in rows if row[3] is None}
    held = [HeldRow(row[0], row[1], row[3], row[4], row[5]) for row in rows if row[3] is not None]
    return Held(consumers, held)
