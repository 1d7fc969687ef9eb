"""Checks provider trees: parents that form a loop, and recorded roots that do not match the parents."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from placement.audit import repairs
from placement.db import roots, tables

_providers = tables.resource_providers


@dataclasses.dataclass(frozen=True)
class Problem:
    """An invalid parent or root of one provider. ``repair`` is None if only a person can decide."""

    uuid: str
    detail: str
    repair: repairs.Repair | None = None


def problems(tx: sa.Connection) -> Iterator[Problem]:
    """Find everything that is wrong with the trees, in one statement that reads the ids of all providers."""
    columns = _providers.c
    query = sa.select(columns.id, columns.uuid, columns.parent_provider_id, columns.root_provider_id)
    found = tx.execute(query.order_by(columns.id)).all()
    parents: dict[int, int | None] = {id_: parent_id for id_, _, parent_id, _ in found}
    root_of = roots.of(parents)
    wrong = [id_ for id_, _, _, root_id in found if root_of[id_] != root_id]
    if wrong:
        rows = {id_: _Row(uuid, root_id) for id_, uuid, _, root_id in found}
        yield from (_problem(id_, rows, root_of[id_]) for id_ in wrong)


class _Row(NamedTuple):
    uuid: str
    root_id: int | None


def _problem(id_: int, rows: Mapping[int, _Row], root_id: int | None) -> Problem:
    """Return the problem of a provider whose parents lead to ``root_id``, or to a loop if that is None."""
    uuid, recorded_id = rows[id_]
    if root_id is None:
        return Problem(uuid, 'its parents form a loop: set parent_provider_id of one of them to NULL by hand')
    recorded = rows[recorded_id].uuid if recorded_id is not None else None
    detail = f'its root is recorded as {recorded}, but its parents lead to {rows[root_id].uuid}'
    return Problem(uuid, detail, repairs.root(id_, root_id))
