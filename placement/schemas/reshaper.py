"""Schemas of /reshaper."""

from __future__ import annotations

from placement.schemas import Schema, Windows, allocation, by_uuid, inventory, object_of


def _body(consumer: Schema) -> Schema:
    return object_of({'inventories': by_uuid(inventory.PUT_ALL), 'allocations': by_uuid(consumer, minimum=0)})


#: A consumer is described as in POST /allocations at the same microversion.
POST: Windows = tuple((max(since, (1, 30)), _body(consumer)) for since, consumer in allocation.CONSUMER)
