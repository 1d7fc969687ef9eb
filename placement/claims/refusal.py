"""Why a claim was refused: the checks of inventories in api-ref/allocations.md#the-order-of-checks.

Reads again, once, because a claim that is accepted never needs to know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement import exception, room
from placement.claims import holding
from placement.claims.holding import Held
from placement.claims.request import Wish
from placement.claims.usage_moves import InventoryKey
from placement.db import api as db_api
from placement.db import statements, tables

_inventories, _providers = tables.inventories, tables.resource_providers


def explain(tx: sa.Connection, wishes: Sequence[Wish], consumers: Sequence[str], held: Held) -> Exception:
    """The exception that says which rule ``wishes`` break.

    :param tx: a transaction that sees one state of the database, without what the claim had written.
    :param consumers: the uuids of all consumers that the request names.
    :param held: what they held when the claim was refused.
    :returns: ``TryAgain`` when that has changed, or no rule is broken any more: another writer was faster.
    """
    if set(holding.read(tx, consumers).rows) != set(held.rows):
        return db_api.TryAgain(exception.ConcurrentUpdate())
    records = _read(tx, wishes)
    return (
        _provider_gone(tx, wishes)
        or _provider_without_inventory(wishes, records)
        or _first_broken(wishes, records, held.amounts())
        or db_api.TryAgain(exception.ConcurrentProviderUpdate())
    )


def _read(tx: sa.Connection, wishes: Sequence[Wish]) -> dict[InventoryKey, sa.Row[Any]]:
    named = {wish.key[1] for wish in wishes}
    return {
        (row.resource_provider_id, row.resource_class_id): row
        for batch in statements.batches(sorted({wish.key[0] for wish in wishes}))
        for row in tx.execute(sa.select(_inventories).where(_inventories.c.resource_provider_id.in_(batch)))
        if row.resource_class_id in named
    }


def _provider_gone(tx: sa.Connection, wishes: Sequence[Wish]) -> db_api.TryAgain | None:
    """Start over when a provider was deleted since we looked; the next attempt says so."""
    ids = {wish.key[0] for wish in wishes}
    present = sa.select(sa.func.count()).select_from(_providers)
    found = sum(
        tx.execute(present.where(_providers.c.id.in_(batch))).scalar_one() for batch in statements.batches(sorted(ids))
    )
    return None if found == len(ids) else db_api.TryAgain()


def _provider_without_inventory(
    wishes: Sequence[Wish], records: Mapping[InventoryKey, sa.Row[Any]]
) -> exception.InvalidAllocationInventory | None:
    equipped = {provider_id for provider_id, _class_id in records}
    bare = dict.fromkeys(wish.provider_uuid for wish in wishes if wish.key[0] not in equipped)
    if not bare:
        return None
    classes = dict.fromkeys(wish.class_name for wish in wishes)
    return exception.InvalidAllocationInventory(resource_classes=', '.join(classes), uuids=', '.join(bare))


def _first_broken(
    wishes: Sequence[Wish],
    records: Mapping[InventoryKey, sa.Row[Any]],
    held: Mapping[InventoryKey, int],
) -> exception.Conflict | None:
    running: dict[InventoryKey, int] = {}
    for wish in wishes:
        record = records.get(wish.key)
        if record is None:
            return exception.InvalidAllocationInventory(resource_classes=wish.class_name, uuids=wish.provider_uuid)
        if not room.obeys_units(record, wish.amount, wish.amount, wish.amount):
            return exception.AllocationConstraintsViolated(resource_class=wish.class_name, uuid=wish.provider_uuid)
        running[wish.key] = running.get(wish.key, 0) + wish.amount
        total = record.used - held.get(wish.key, 0) + running[wish.key]
        if total > room.limit(record) and total > record.used:
            return exception.AllocationCapacityExceeded(resource_class=wish.class_name, uuid=wish.provider_uuid)
    return None
