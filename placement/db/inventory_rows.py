"""Inserts, overwrites and deletes rows of inventories.

Existing rows keep their ``used``. ``used`` of a new row is the sum of the allocations of its provider and class, which
another program may have left without an inventory. No claim can add such allocations. A claim that releases one deletes
it, and then subtracts its amount from the inventory, if this exists by then. The INSERT locks these allocations. So
either the claim runs later and finds the inventory, or the INSERT waits for the claim and does not count the deleted
allocation.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence

from oslo_log import log
from oslo_utils import timeutils

from placement.capacity import FIELDS, InventoryRecord
from placement.db import sql, tables
from placement.db.batch import StatementBatch

LOG = log.getLogger(__name__)

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


def insert(
    batch: StatementBatch, records: Mapping[tuple[int, int], InventoryRecord], present: Collection[tuple[int, int]] = ()
) -> None:
    """Add the INSERT of ``records``.

    :param records: by provider id and class id.
    :param present: the keys of inventories that exist. They are overwritten, and their allocations are not read.
    """
    rows = [(*key, key[0], None if key in present else key[1], *records[key][:-1]) for key in sorted(records)]
    lock = sql.SHARED_LOCKS[batch.tx.dialect.name]
    allocated = sql.statement(_ALLOCATED, allocations=tables.allocations, lock=lock)
    row = f'?, ?, {allocated}, {sql.placeholders(len(FIELDS))}'
    otherwise = sql.upsert_clause(batch.tx, _KEY, _OVERWRITTEN) if present else ''
    batch.add_insert(_inventories, _COLUMNS, rows, row, otherwise=otherwise)


def overwrite(batch: StatementBatch, records: Mapping[int, InventoryRecord], provider_id: int | None = None) -> None:
    """Add the UPDATEs of existing inventories, one for every 100 inventories. They lock the rows in no fixed order.

    :param records: by row id; if ``provider_id`` is given, by class id.
    :param provider_id: the provider of all inventories.
    """
    for chunk in sql.chunks(sorted(records), _MAX_ROWS_PER_UPDATE):
        columns = zip(*(records[id_][:-1] for id_ in chunk), strict=True)
        cases = [item for column in columns for case in zip(chunk, column, strict=True) for item in case]
        provider = [] if provider_id is None else [provider_id]
        text = _overwriting(len(chunk), provider_id is not None)
        batch.add_statement(text, *cases, timeutils.utcnow(), *provider, *chunk)


@functools.lru_cache(maxsize=2 * _MAX_ROWS_PER_UPDATE)
def _overwriting(count: int, of_one_provider: bool) -> str:
    """Return the UPDATE of ``count`` inventories."""
    key = 'resource_class_id' if of_one_provider else 'id'
    cases = ' '.join(['WHEN ? THEN ?'] * count)
    changed = ', '.join(f'{name} = CASE {key} {cases} END' for name in FIELDS)
    condition = f'{"resource_provider_id = ? AND " if of_one_provider else ""}{key} IN ({sql.placeholders(count)})'
    template = 'UPDATE {table} SET {set}, updated_at = ? WHERE {condition}'
    return sql.statement(template, table=_inventories, set=changed, condition=condition)


def delete_unused(batch: StatementBatch, ids: Sequence[int], error: Callable[[], Exception]) -> None:
    """Add the DELETE of inventories by id.

    :param error: makes the exception to raise if some are in use or do not exist.
    """
    batch.add_for_ids('DELETE FROM {table} WHERE id IN ({ids}) AND used = 0', ids, error=error, table=_inventories)


def warn_of_overcommitment(uuid: str, used: Mapping[str, int], records: Mapping[str, InventoryRecord]) -> None:
    """Log which of the written ``records`` have less capacity than usage.

    :param uuid: the provider's uuid.
    :param used: the usage by class name; 0 for a missing class.
    :param records: by class name.
    """
    over = [
        f'{name} ({used[name]} used of {record.capacity})'
        for name, record in records.items()
        if used.get(name, 0) > max(record.capacity, 0)
    ]
    if over:
        LOG.warning('Resource provider %s is now over-committed: %s', uuid, ', '.join(over))
