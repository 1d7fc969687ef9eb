"""Writes the inventories of providers: all inserts, overwrites and deletions of their rows, but not their ``used``.

Existing rows keep their ``used``. ``used`` of a new row is the sum of the allocations of its provider and class, which
another program may have left without an inventory. No claim can add such allocations. A claim that releases one deletes
it, and then subtracts its amount from the inventory, if this exists by then. The INSERT locks these allocations. So
either the claim runs later and finds the inventory, or the INSERT waits for the claim and does not count the deleted
allocation.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_utils import timeutils

from placement.capacity import FIELDS, InventoryRecord
from placement.db import sql, tables
from placement.db.batch import StatementBatch

#: Identifies one inventory: the ids of its provider and of its class.
InventoryKey = tuple[int, int]

_inventories = tables.inventories
_KEY = 'resource_provider_id, resource_class_id'
_COLUMNS = ', '.join((_KEY, 'used', *FIELDS))
#: For each column that an upsert overwrites, the column of the new row with the value.
_OVERWRITTEN = {**{name: name for name in FIELDS}, 'updated_at': 'created_at'}
#: Selects the sum of the allocations of a provider and class, and locks them.
_ALLOCATED = (
    '(SELECT COALESCE(SUM(used), 0) FROM (SELECT used FROM {allocations}'
    ' WHERE resource_provider_id = ? AND resource_class_id = ?{lock}) AS allocated)'
)

#: The largest number of rows that one statement overwrites.
_MAX_ROWS_PER_UPDATE = 100


@dataclasses.dataclass(frozen=True)
class InventoryReplacement:
    """The inventories that one read found, and those to be written in their place."""

    #: The rows with ``id`` and ``used``.
    present: Mapping[InventoryKey, sa.Row[Any]]
    desired: Mapping[InventoryKey, InventoryRecord]

    @property
    def removed(self) -> list[sa.Row[Any]]:
        """The rows to be deleted, in the order of ``present``."""
        return [row for key, row in self.present.items() if key not in self.desired]

    def add_deletions(self, batch: StatementBatch, error: Callable[[], Exception]) -> None:
        """Add the DELETE of the removed inventories.

        :param error: makes the exception to raise if some are in use or do not exist.
        """
        text = 'DELETE FROM {table} WHERE id IN ({ids}) AND used = 0'
        batch.add_for_ids(text, [row.id for row in self.removed], error=error, table=_inventories)

    def add_writes(self, batch: StatementBatch) -> None:
        """Add the statements that overwrite the inventories to be kept, and insert the new ones."""
        updated = self.desired.keys() & self.present
        added = {key: record for key, record in self.desired.items() if key not in updated}
        if self.removed and updated and added:
            # One statement inserts and overwrites. It is used only here, because on some databases it uses up an id for
            # each row, even for a row that exists.
            _add_insert(batch, self.desired, updated)
        else:
            # The UPDATEs lock rows in no fixed order.
            records = {self.present[key].id: self.desired[key] for key in updated}
            for ids in sql.chunks(sorted(records), _MAX_ROWS_PER_UPDATE):
                values: list[Any] = []
                for index in range(len(FIELDS)):
                    for id_ in ids:
                        values += (id_, records[id_][index])
                cases = ' '.join(['WHEN ? THEN ?'] * len(ids))
                assignments = ', '.join(f'{name} = CASE id {cases} END' for name in FIELDS)
                template = 'UPDATE {table} SET {assignments}, updated_at = ? WHERE id IN ({ids})'
                moment = timeutils.utcnow()
                batch.add_for_ids(template, ids, *values, moment, table=_inventories, assignments=assignments)
            _add_insert(batch, added)


def _add_insert(
    batch: StatementBatch, records: Mapping[InventoryKey, InventoryRecord], present: Collection[InventoryKey] = ()
) -> None:
    """Add the INSERT of ``records``. Those that are ``present`` are overwritten, and their allocations are not read."""
    rows = [(*key, key[0], None if key in present else key[1], *records[key][:-1]) for key in sorted(records)]
    lock = sql.SHARED_LOCKS[batch.tx.dialect.name]
    allocated = sql.statement(_ALLOCATED, allocations=tables.allocations, lock=lock)
    row = f'?, ?, {allocated}, {sql.placeholders(len(FIELDS))}'
    otherwise = sql.upsert_clause(batch.tx, _KEY, _OVERWRITTEN) if present else ''
    batch.add_insert(_inventories, _COLUMNS, rows, row, otherwise=otherwise)


#: Locks the inventories of providers in the order in which claims lock them.
_LOCK: sa.Select[Any] = (
    sa.select(
        _inventories.c.id, _inventories.c.resource_provider_id, _inventories.c.resource_class_id, _inventories.c.used
    )
    .where(_inventories.c.resource_provider_id.in_(sa.bindparam('providers', expanding=True)))
    .order_by(_inventories.c.resource_provider_id, _inventories.c.resource_class_id)
    .with_hint(_inventories, 'FORCE INDEX (uniq_inventories0resource_provider_resource_class)', 'mysql')
    .with_for_update(key_share=True)
)


def lock_inventories(tx: sa.Connection, provider_ids: Collection[int]) -> dict[InventoryKey, sa.Row[Any]]:
    """Lock all inventories of the providers, and return their rows with ``id`` and ``used``."""
    rows: list[sa.Row[Any]] = []
    for chunk in sql.chunks(sorted(provider_ids)):
        rows += tx.execute(_LOCK, {'providers': chunk})
    return {(row.resource_provider_id, row.resource_class_id): row for row in rows}
