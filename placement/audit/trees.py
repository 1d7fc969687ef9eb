"""What can be wrong with provider trees: parents that are gone or go round, roots that do not follow from them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa

from placement.audit import repairs
from placement.db import tables

_providers = tables.resource_providers


@dataclasses.dataclass(frozen=True)
class Flaw:
    """One provider that is not where it says it is. ``repair`` is None where only a person can decide."""

    uuid: str
    detail: str
    repair: repairs.Repair | None = None


def flaws(tx: sa.Connection) -> Iterator[Flaw]:
    """Everything wrong with the trees, from one look at the identifiers of all providers."""
    columns = _providers.c
    query = sa.select(columns.id, columns.uuid, columns.parent_provider_id, columns.root_provider_id)
    rows = {row.id: row for row in tx.execute(query.order_by(columns.id))}
    # Those without their parent first: the roots of what is below them follow once they are roots themselves.
    for row in sorted(rows.values(), key=lambda row: row.parent_provider_id is None or row.parent_provider_id in rows):
        flaw = _flaw(row, rows)
        if flaw is not None:
            yield flaw


def _flaw(row: Any, rows: Mapping[int, Any]) -> Flaw | None:
    parent_id = row.parent_provider_id
    if parent_id is not None and parent_id not in rows:
        detail = f'its parent, provider number {parent_id}, is gone'
        return Flaw(row.uuid, detail, repairs.parent(row.id, parent_id))
    root_id = _root(row, rows)
    if root_id is None:
        return Flaw(row.uuid, 'its parents go round in a loop: set parent_provider_id of one of them to NULL by hand')
    if root_id == row.root_provider_id:
        return None
    recorded = rows[row.root_provider_id].uuid if row.root_provider_id in rows else row.root_provider_id
    detail = f'its root is recorded as {recorded}, but its parents lead to {rows[root_id].uuid}'
    return Flaw(row.uuid, detail, repairs.root(row.id))


def _root(row: Any, rows: Mapping[int, Any]) -> int | None:
    """The id of the topmost provider above ``row``, None when there is no top. A parent that is gone ends the way."""
    seen = set()
    while row.parent_provider_id in rows:
        if row.id in seen:
            return None
        seen.add(row.id)
        row = rows[row.parent_provider_id]
    return int(row.id)
