"""Finds out why a claim was rejected: makes the checks of inventories in api-ref/allocations.md#the-order-of-checks.

This happens after the rollback. The claim itself reads no capacity: the UPDATE of the usage checks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa

from placement import capacity, exception
from placement.capacity import InventoryRecord
from placement.claims.current import concurrent_update, read_current_state
from placement.claims.plan import ClaimPlan, RequestedAllocation, read_providers
from placement.db import errors, sql, tables
from placement.db.inventories import InventoryKey

_allocations, _inventories = tables.allocations, tables.inventories
_classes = tables.resource_classes


def diagnose(tx: sa.Connection, plan: ClaimPlan) -> Exception:
    """Return the exception for the first requested allocation that violates a rule.

    If no allocation does, the exception names the removed inventories of a reshape that are in use.

    :param tx: a transaction that sees one state of the database, begun after the claim was rolled back.
    :returns: ``RetryTransaction`` if, because of other transactions, the consumers have other allocations now, a
        provider was deleted or changed, or no rule is violated now.
    """
    current = read_current_state(tx, [claim.consumer_uuid for claim in plan.claims], plan.claims)
    if set(current.rows) != set(plan.current.rows):
        return concurrent_update()
    # If a provider was deleted, the next attempt names it.
    if current.providers != plan.current.providers or read_providers(tx, plan.reshaped) != plan.providers:
        return errors.RetryTransaction()
    stored, class_names = _read_inventories(tx, plan)
    # The check precedes the removal of inventories, so ``stored`` ones count even if the request removes them.
    inventories = {**stored, **plan.inventories}
    used = _read_allocated(tx, plan) | {key: inventory.used for key, inventory in stored.items()}
    return (
        _provider_without_inventory(plan.requested, inventories)
        or _first_violation(plan, inventories, used)
        or _removed_in_use(plan, stored, class_names)
        or errors.RetryTransaction()
    )


def _read_inventories(tx: sa.Connection, plan: ClaimPlan) -> tuple[dict[InventoryKey, InventoryRecord], dict[int, str]]:
    """Read the inventories of the requested and of the reshaped providers, in order of class.

    :returns: the inventories, and the names of their classes by id.
    """
    provider_ids = plan.reshaped_ids | {allocation.inventory[0] for allocation in plan.requested}
    columns = (_inventories.c[name] for name in ('resource_provider_id', 'resource_class_id', *InventoryRecord._fields))
    query = sa.select(_classes.c.name, *columns).join(_classes).order_by(_classes.c.id)
    inventories: dict[InventoryKey, InventoryRecord] = {}
    class_names: dict[int, str] = {}
    for chunk in sql.chunks(sorted(provider_ids)):
        rows = tx.execute(query.where(_inventories.c.resource_provider_id.in_(chunk)))
        for name, provider_id, class_id, *record in rows:
            inventories[provider_id, class_id] = InventoryRecord(*record)
            class_names[class_id] = name
    return inventories, class_names


def _read_allocated(tx: sa.Connection, plan: ClaimPlan) -> dict[InventoryKey, int]:
    """Read the sums of the allocations of the reshaped providers: the initial usage of new inventories."""
    key = (_allocations.c.resource_provider_id, _allocations.c.resource_class_id)
    query = sa.select(*key, sa.func.sum(_allocations.c.used)).group_by(*key)
    return {
        (provider_id, class_id): int(used)
        for chunk in sql.chunks(sorted(plan.reshaped_ids))
        for provider_id, class_id, used in tx.execute(query.where(key[0].in_(chunk)))
    }


def _provider_without_inventory(
    requested: Sequence[RequestedAllocation], inventories: Mapping[InventoryKey, InventoryRecord]
) -> exception.InvalidAllocationInventory | None:
    class_ids = {allocation.inventory[1] for allocation in requested}
    with_inventory = {provider_id for provider_id, class_id in inventories if class_id in class_ids}
    without = [allocation for allocation in requested if allocation.inventory[0] not in with_inventory]
    if not without:
        return None
    return exception.InvalidAllocationInventory(
        resource_classes=', '.join(dict.fromkeys(allocation.class_name for allocation in requested)),
        uuids=', '.join(dict.fromkeys(allocation.provider_uuid for allocation in without)),
        consumer=without[0].consumer_uuid,
    )


def _first_violation(
    plan: ClaimPlan, inventories: Mapping[InventoryKey, InventoryRecord], used: Mapping[InventoryKey, int]
) -> exception.Conflict | None:
    so_far: dict[InventoryKey, int] = {}
    for allocation in plan.requested:
        key, amount = allocation.inventory, allocation.amount
        class_name, uuid, consumer = allocation.class_name, allocation.provider_uuid, allocation.consumer_uuid
        inventory = inventories.get(key)
        if inventory is None:
            return exception.InvalidAllocationInventory(resource_classes=class_name, uuids=uuid, consumer=consumer)
        data = {'resource_class': class_name, 'uuid': uuid, 'consumer': consumer, 'amount': amount}
        if not inventory.allows_amount(amount):
            return exception.AllocationConstraintsViolated(**data, **inventory._asdict())
        so_far[key] = so_far.get(key, 0) + amount
        used_before = used.get(key, 0)
        used_after = used_before - plan.released.get(key, 0) + so_far[key]
        if used_after > capacity.capacity_limit(inventory) and used_after > used_before:
            # Without what this request releases, and with what it allocates before.
            used_by_others = used_after - amount
            return exception.AllocationCapacityExceeded(
                **data, used=used_by_others, capacity=max(inventory.capacity, 0)
            )
    return None


def _removed_in_use(
    plan: ClaimPlan, stored: Mapping[InventoryKey, InventoryRecord], class_names: Mapping[int, str]
) -> exception.InventoryInUse | None:
    """Return the error for the first reshaped provider that would have allocations of a removed class."""
    delta = {change.inventory: change.delta for change in plan.changes}
    in_use: dict[int, list[str]] = {}
    for key, inventory in stored.items():
        if key not in plan.inventories and inventory.used + delta.get(key, 0) > 0:
            provider_id, class_id = key
            in_use.setdefault(provider_id, []).append(class_names[class_id])
    for provider in plan.reshaped:
        if names := in_use.get(plan.providers[provider.uuid].id):
            return exception.InventoryInUse(resource_classes=', '.join(names), uuid=provider.uuid)
    return None
