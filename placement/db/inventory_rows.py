"""The statements that insert and overwrite rows of inventories. They leave ``used`` of a row that exists as it is."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, Protocol

from placement import capacity
from placement.db import sql
from placement.db.batch import StatementBatch

#: The columns that a request sets, in the order of ``values``.
FIELDS = ('total', 'reserved', 'min_unit', 'max_unit', 'step_size', 'allocation_ratio')

KEY = 'resource_provider_id, resource_class_id'
_COLUMNS = ', '.join((KEY, 'used', *FIELDS))

#: How many rows one statement overwrites.
_MOST = 100


class Record(capacity.HasCapacity, capacity.HasUnits, Protocol):
    """An object with ``FIELDS`` as attributes."""


def insert(batch: StatementBatch, records: Mapping[tuple[int, int], Record], otherwise: str = '') -> None:
    """Add the INSERT of ``records``, which are by provider id and class id; nothing of them is used.

    :param otherwise: the end of the statement, from ``statements.upsert_clause``, if some of them exist.
    """
    rows = [(*key, 0, *values(record)) for key, record in sorted(records.items(), key=lambda item: item[0])]
    for text, given in sql.bulk_insert(batch.tx, 'placement_inventories', _COLUMNS, rows):
        batch.add(text + otherwise, *given)


def overwrite(batch: StatementBatch, records: Mapping[int, Record], provider_id: int | None = None) -> None:
    """Add the UPDATE of inventories that exist, one for every 100 of them.

    :param records: by row id; if ``provider_id`` is given, by class id.
    :param provider_id: the provider of all of them. Its rows are then locked in order of class, as claims lock them.
    """
    ids = sorted(records)
    for start in range(0, len(ids), _MOST):
        some = ids[start : start + _MOST]
        columns = zip(*(values(records[id_]) for id_ in some), strict=True)
        cases = [item for column in columns for case in zip(some, column, strict=True) for item in case]
        provider = [] if provider_id is None else [provider_id]
        text = _overwriting(len(some), provider_id is not None)
        batch.add(text, *cases, sql.now(batch.tx), *provider, *some)


@functools.lru_cache(maxsize=2 * _MOST)
def _overwriting(count: int, of_one_provider: bool) -> str:
    """The UPDATE of ``count`` inventories."""
    key = 'resource_class_id' if of_one_provider else 'id'
    cases = ' '.join(['WHEN ? THEN ?'] * count)
    changed = ', '.join(f'{name} = CASE {key} {cases} END' for name in FIELDS)
    which = f'{"resource_provider_id = ? AND " if of_one_provider else ""}{key} IN ({sql.placeholders(count)})'
    return f'UPDATE placement_inventories SET {changed}, updated_at = ? WHERE {which}'  # noqa: S608


def values(record: Record) -> tuple[Any, ...]:
    """The values of ``FIELDS``, in their order."""
    return tuple(getattr(record, name) for name in FIELDS)
