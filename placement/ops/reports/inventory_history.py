"""The times at which inventories and their allocations were written, and what these tell about over-commitment."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

import sqlalchemy as sa
from oslo_utils import timeutils

from placement import units
from placement.capacity import InventoryRecord, capacity_limit
from placement.db import sql, tables

_inventories, _allocations, _classes = tables.inventories.c, tables.allocations.c, tables.resource_classes.c


@dataclass(frozen=True)
class InventoryHistory:
    """The aware times at which an inventory and its allocations were written; None if unknown.

    ``updated_at`` is the time of the latest change of the inventory, or of its creation; claims do not change it.
    ``allocated`` is the sum of all allocations, ``allocated_before`` the sum of those written before that time.
    ``mismatch`` is ``allocated`` if the recorded usage differs, because another program has written to the database;
    otherwise None.
    """

    updated_at: dt.datetime | None
    allocations_from: dt.datetime | None
    allocations_to: dt.datetime | None
    allocated: int
    allocated_before: int
    mismatch: int | None

    def explain_over_commitment(self, resource_class: str, inventory: InventoryRecord) -> str:
        """Return sentences about when the inventory was over-committed, and why, as far as the times show it."""
        if not self.updated_at or not self.allocations_from or not self.allocations_to:
            return ''
        age = (timeutils.utcnow(with_timezone=True) - self.updated_at).total_seconds()
        times = (
            f'Inventory changed {units.ago(age)} ({units.moment(self.updated_at)}); allocations from'
            f' {units.moment(self.allocations_from)} to {units.moment(self.allocations_to)}.'
        )
        # The inventory before its change, and allocations that were replaced, are not known. What follows is true
        # whatever they were.
        limit = max(capacity_limit(inventory), 0)
        if self.allocated_before > limit:
            amount = units.amount(resource_class, self.allocated_before)
            times += f' That change set the capacity below the {amount} that were already allocated.'
            if inventory.reserved and inventory.total * inventory.allocation_ratio >= inventory.used:
                times += ' With nothing reserved, the capacity would suffice.'
            if inventory.allocation_ratio < 1 and inventory.total - inventory.reserved >= inventory.used:
                times += ' With a ratio of 1, the capacity would suffice.'
        elif self.allocated > limit and self.allocations_to > self.updated_at:
            times += ' Allocations were written after that change: they replaced others of at least the same amount,'
            times += ' which the service accepts, or another program wrote them.'
        return times


def read(tx: sa.Connection, members: sa.Select[tuple[int]] | None) -> dict[tuple[int, str], InventoryHistory]:
    """Read the histories of inventories, by the id of the provider and the class, in one statement.

    :param members: selects the ids of the providers. If None, only inventories that are over-committed or have a wrong
        recorded usage are read, because no index has the times.
    """
    changed = sa.func.coalesce(_inventories.updated_at, _inventories.created_at)
    written = sa.func.coalesce(_allocations.updated_at, _allocations.created_at)
    query = (
        sa.select(
            _inventories.resource_provider_id,
            _classes.name,
            _inventories.used,
            changed.label('changed'),
            sa.func.min(written).label('oldest'),
            sa.func.max(written).label('newest'),
            sa.func.coalesce(sa.func.sum(_allocations.used), 0).label('allocated'),
            sa.func.coalesce(sa.func.sum(sa.case((written < changed, _allocations.used))), 0).label('before'),
        )
        .join(tables.resource_classes, _classes.id == _inventories.resource_class_id)
        .outerjoin(tables.allocations, tables.ALLOCATION_OF_INVENTORY)
        .group_by(_inventories.id, _inventories.resource_provider_id, _classes.name, _inventories.used, changed)
    )
    if members is None:
        is_over_committed = sa.and_(_inventories.used > capacity_limit(_inventories), _inventories.used > 0)
        query = query.where(sa.or_(is_over_committed, _inventories.used != tables.ALLOCATED))
    else:
        query = query.where(_inventories.resource_provider_id.in_(members))
    return {
        (row.resource_provider_id, row.name): InventoryHistory(
            sql.with_utc(row.changed),
            sql.with_utc(row.oldest),
            sql.with_utc(row.newest),
            int(row.allocated),
            int(row.before),
            None if row.used == row.allocated else int(row.allocated),
        )
        for row in tx.execute(query)
    }
