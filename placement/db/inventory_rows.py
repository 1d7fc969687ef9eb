"""Inserts, overwrites and deletes rows of inventories. ``used`` of a row that exists stays as it is."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from placement import capacity
from placement.db import sql
from placement.db.batch import StatementBatch, expect_rows

#: The columns that a request sets, in the order of ``values``.
FIELDS = ('total', 'reserved', 'min_unit', 'max_unit', 'step_size', 'allocation_ratio')

KEY = 'resource_provider_id, resource_class_id'
_COLUMNS = ', '.join((KEY, 'used', *FIELDS))

#: The largest number of rows that one statement overwrites.
_MAX_ROWS_PER_UPDATE = 100


class Record(capacity.HasCapacity, capacity.HasUnits, Protocol):
    """An object with ``FIELDS`` as attributes."""


def insert(batch: StatementBatch, records: Mapping[tuple[int, int], Record], otherwise: str = '') -> None:
    """Add the INSERT of ``records``, which are by provider id and class id; nothing of them is used.

    :param otherwise: the end of the statement, from ``sql.upsert_clause``, if some of them exist.
    """
    rows = [(*key, 0, *values(record)) for key, record in sorted(records.items(), key=lambda item: item[0])]
    for text, given in sql.bulk_insert(batch.tx, 'placement_inventories', _COLUMNS, rows):
        batch.add(text + otherwise, *given)


def overwrite(batch: StatementBatch, records: Mapping[int, Record], provider_id: int | None = None) -> None:
    """Add the UPDATE of inventories that exist, one for every 100 of them.

    :param records: by row id; if ``provider_id`` is given, by class id.
    :param provider_id: the provider of all of them. Its rows are then locked in order of class, as claims lock them.
    """
    for some in sql.chunks(sorted(records), _MAX_ROWS_PER_UPDATE):
        columns = zip(*(values(records[id_]) for id_ in some), strict=True)
        cases = [item for column in columns for case in zip(some, column, strict=True) for item in case]
        provider = [] if provider_id is None else [provider_id]
        text = _overwriting(len(some), provider_id is not None)
        batch.add(text, *cases, sql.now(batch.tx), *provider, *some)


@functools.lru_cache(maxsize=2 * _MAX_ROWS_PER_UPDATE)
def _overwriting(count: int, of_one_provider: bool) -> str:
    """Return the UPDATE of ``count`` inventories."""
    key = 'resource_class_id' if of_one_provider else 'id'
    cases = ' '.join(['WHEN ? THEN ?'] * count)
    changed = ', '.join(f'{name} = CASE {key} {cases} END' for name in FIELDS)
    which = f'{"resource_provider_id = ? AND " if of_one_provider else ""}{key} IN ({sql.placeholders(count)})'
    return f'UPDATE placement_inventories SET {changed}, updated_at = ? WHERE {which}'  # noqa: S608


def delete_unused(batch: StatementBatch, ids: Sequence[int], error: Callable[[], Exception]) -> None:
    """Add the DELETE of inventories by id.

    :param ids: as many as one statement takes.
    :param error: makes the exception to raise when some are in use or do not exist.
    """
    unused = f'id IN ({sql.placeholders(len(ids))}) AND used = 0'
    batch.add(f'DELETE FROM placement_inventories WHERE {unused}', *ids, check=expect_rows(len(ids), error))  # noqa: S608


def values(record: Record) -> tuple[Any, ...]:
    """Return the values of ``FIELDS``, in their order."""
    return tuple(getattr(record, name) for name in FIELDS)
