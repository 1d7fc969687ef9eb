"""Finds out why a claim was rejected, by the checks of inventories in api-ref/allocations.md#the-order-of-checks.

The inventories are read only here, after the claim was rolled back: a claim that is accepted does not read them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement import capacity, exception
from placement.claims import usage
from placement.claims.current import CurrentAllocations, read_current_allocations
from placement.claims.inventory_replacement import InventoryReplacement
from placement.claims.request import RequestedAllocation, amounts_by_inventory
from placement.claims.usage import InventoryKey
from placement.db import api as db_api
from placement.db import sql, tables

_inventories, _providers = tables.inventories, tables.resource_providers


def explain(
    tx: sa.Connection,
    requested: Sequence[RequestedAllocation],
    consumers: Sequence[str],
    current: CurrentAllocations,
    replacement: InventoryReplacement | None = None,
) -> Exception:
    """Return the exception that names the rule which the first invalid one of the ``requested`` allocations violates.

    If none does, it names the inventories in use that a reshape removes.

    :param tx: a transaction that sees one state of the database, after the claim was rolled back.
    :param consumers: the uuids of all consumers that the request names.
    :param current: their allocations as the claim read them.
    :param replacement: the new inventories of a reshape.
    :returns: ``RetryTransaction`` when they have other allocations now, a provider was deleted or changed, or no rule
        is violated any more, because another transaction was committed meanwhile.
    """
    if set(read_current_allocations(tx, consumers).rows) != set(current.rows):
        return db_api.RetryTransaction(exception.ConcurrentUpdate())
    if replacement is not None and not replacement.is_current(tx):
        return db_api.RetryTransaction(exception.ConcurrentProviderUpdate())
    records = _read_inventories(tx, requested, replacement)
    return (
        _provider_deleted(tx, requested)
        or _provider_without_inventory(requested, records)
        or _first_violation(requested, records, current.amounts())
        or (replacement and replacement.in_use(tx, usage.deltas(current.amounts(), amounts_by_inventory(requested))))
        or db_api.RetryTransaction(exception.ConcurrentProviderUpdate())
    )


def _read_inventories(
    tx: sa.Connection, requested: Sequence[RequestedAllocation], replacement: InventoryReplacement | None
) -> dict[InventoryKey, Any]:
    """Read the inventories of the requested providers and classes, as ``replacement`` changes them."""
    stored: dict[InventoryKey, Any] = {
        (row.resource_provider_id, row.resource_class_id): row
        for chunk in sql.chunks(sorted({one.inventory[0] for one in requested}))
        for row in tx.execute(sa.select(_inventories).where(_inventories.c.resource_provider_id.in_(chunk)))
    }
    class_ids = {one.inventory[1] for one in requested}
    records = stored if replacement is None else replacement.applied_to(stored)
    return {key: record for key, record in records.items() if key[1] in class_ids}


def _provider_deleted(tx: sa.Connection, requested: Sequence[RequestedAllocation]) -> db_api.RetryTransaction | None:
    """Return ``RetryTransaction`` if a provider was deleted since the claim read its id: the next attempt names it."""
    ids = {one.inventory[0] for one in requested}
    count = sa.select(sa.func.count()).select_from(_providers)
    found = sum(tx.execute(count.where(_providers.c.id.in_(chunk))).scalar_one() for chunk in sql.chunks(sorted(ids)))
    return None if found == len(ids) else db_api.RetryTransaction()


def _provider_without_inventory(
    requested: Sequence[RequestedAllocation], records: Mapping[InventoryKey, Any]
) -> exception.InvalidAllocationInventory | None:
    with_inventory = {provider_id for provider_id, _class_id in records}
    without = dict.fromkeys(one.provider_uuid for one in requested if one.inventory[0] not in with_inventory)
    if not without:
        return None
    classes = dict.fromkeys(one.class_name for one in requested)
    return exception.InvalidAllocationInventory(resource_classes=', '.join(classes), uuids=', '.join(without))


def _first_violation(
    requested: Sequence[RequestedAllocation],
    records: Mapping[InventoryKey, Any],
    current: Mapping[InventoryKey, int],
) -> exception.Conflict | None:
    so_far: dict[InventoryKey, int] = {}
    for one in requested:
        record = records.get(one.inventory)
        if record is None:
            return exception.InvalidAllocationInventory(resource_classes=one.class_name, uuids=one.provider_uuid)
        if not capacity.satisfies_unit_constraints(record, one.amount, one.amount, one.amount):
            return exception.AllocationConstraintsViolated(resource_class=one.class_name, uuid=one.provider_uuid)
        so_far[one.inventory] = so_far.get(one.inventory, 0) + one.amount
        used = record.used - current.get(one.inventory, 0) + so_far[one.inventory]
        if used > capacity.capacity_limit(record) and used > record.used:
            return exception.AllocationCapacityExceeded(resource_class=one.class_name, uuid=one.provider_uuid)
    return None
