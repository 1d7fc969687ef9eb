"""Replaces the inventories of several providers in the transaction of a claim, for a reshape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement import exception, validation
from placement.claims.plan import ClaimPlan
from placement.claims.requested import ReshapedProvider
from placement.claims.usage import InventoryKey
from placement.db import change_log, generation, inventory_rows, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderGeneration

_inventories = tables.inventories

_INDEX = 'FORCE INDEX (uniq_inventories0resource_provider_resource_class)'
#: Locks rows in the order in which claims lock them.
_LOCK: sa.Select[Any] = (
    sa.select(
        _inventories.c.id, _inventories.c.resource_provider_id, _inventories.c.resource_class_id, _inventories.c.used
    )
    .where(_inventories.c.resource_provider_id.in_(sa.bindparam('providers', expanding=True)))
    .order_by(_inventories.c.resource_provider_id, _inventories.c.resource_class_id)
    .with_hint(_inventories, _INDEX, 'mysql')
    .with_for_update(key_share=True)
)


def read_and_check_providers(tx: sa.Connection, reshaped: Sequence[ReshapedProvider]) -> dict[str, ProviderGeneration]:
    """Read the ids and generations of the providers of a reshape, and check the providers in the order of the request.

    :returns: as ``read_providers``.
    :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: for the first provider that
        does not exist, has another generation, or has an inventory that may not be stored.
    """
    providers = read_providers(tx, reshaped)
    for provider in reshaped:
        stored = providers.get(provider.uuid)
        if stored is None:
            raise exception.ResourceProviderNotFound(uuid=provider.uuid)
        if stored.generation != provider.generation:
            raise exception.ReshapeGenerationConflict(
                uuid=stored.uuid, actual=stored.generation, given=provider.generation
            )
        for resource_class, inventory in provider.inventories.items():
            # Since microversion 1.26 a capacity may be 0, and reshapes came later.
            validation.check_capacity(inventory, resource_class, provider.uuid, zero_allowed=True)
    return providers


def read_providers(tx: sa.Connection, reshaped: Sequence[ReshapedProvider]) -> dict[str, ProviderGeneration]:
    """Read the ids and generations of the providers of a reshape, by uuid."""
    rows: list[Any] = []
    for chunk in sql.chunks([provider.uuid for provider in reshaped]):
        template = 'SELECT id, uuid, generation FROM {table} WHERE uuid IN ({uuids})'
        text = sql.statement(template, table=tables.resource_providers, uuids=sql.placeholders(len(chunk)))
        rows += sql.execute_text(tx, text, *chunk)
    return {row.uuid: ProviderGeneration(*row) for row in rows}


def add_increments(batch: StatementBatch, plan: ClaimPlan) -> None:
    """Add the statements that increment the generations of all providers (api-ref/reshaper.md#generations)."""
    amounts, expected = dict.fromkeys(plan.incremented, 1), dict[int, int]()
    for provider in plan.reshaped:
        id_ = plan.providers[provider.uuid].id
        amounts[id_] = (2 if provider.inventories else 1) + (id_ in plan.incremented)
        expected[id_] = provider.generation
    generation.increment(batch, amounts, expected)


def lock_inventories(tx: sa.Connection, plan: ClaimPlan) -> dict[InventoryKey, sa.Row[Any]]:
    """Lock all inventories of the reshaped providers, and of the providers whose usage changes.

    :returns: the inventories of the reshaped providers.
    """
    rows: list[sa.Row[Any]] = []
    for chunk in sql.chunks(sorted(plan.reshaped_ids.union(change.inventory[0] for change in plan.changes))):
        rows += tx.execute(_LOCK, {'providers': chunk})
    return {
        (row.resource_provider_id, row.resource_class_id): row
        for row in rows
        if row.resource_provider_id in plan.reshaped_ids
    }


def add_writes(batch: StatementBatch, plan: ClaimPlan, present: Mapping[InventoryKey, sa.Row[Any]]) -> None:
    """Add the statements that overwrite existing inventories and insert new ones.

    :param present: from ``lock_inventories``.
    """
    inventories = plan.inventories
    inventory_rows.overwrite(batch, {row.id: inventories[key] for key, row in present.items() if key in inventories})
    inventory_rows.insert(batch, {key: inventories[key] for key in inventories.keys() - present})
    change_log.record_providers(batch.tx, plan.reshaped_ids)


def add_deletions(
    batch: StatementBatch,
    plan: ClaimPlan,
    present: Mapping[InventoryKey, sa.Row[Any]],
    rejection: Callable[[], Exception],
) -> None:
    """Add the statements that delete the inventories which the request removes.

    :param present: from ``lock_inventories``.
    :param rejection: makes the exception to raise if some are in use.
    """
    removed = [row.id for key, row in present.items() if key not in plan.inventories]
    inventory_rows.delete_unused(batch, removed, rejection)


def usage_after(plan: ClaimPlan, present: Mapping[InventoryKey, sa.Row[Any]]) -> dict[str, dict[str, int]]:
    """Return the usage after the reshape, by provider uuid and class name; 0 for new inventories.

    :param present: from ``lock_inventories``.
    """
    used = {key: row.used for key, row in present.items()}
    for change in plan.changes:
        if change.inventory in used:
            used[change.inventory] += change.delta
    return {
        provider.uuid: {
            name: used.get((plan.providers[provider.uuid].id, plan.class_ids[name]), 0) for name in provider.inventories
        }
        for provider in plan.reshaped
    }
