"""What a claim has to know, read in one statement: what consumers hold, and the ids of what the claim names."""

from __future__ import annotations

import dataclasses
import enum
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.db import api as db_api
from placement.db import statements, tables

_allocations, _consumers = tables.allocations, tables.consumers


class _Kind(enum.IntEnum):
    """What a row of the reading is about, and the name of the parameter with what is looked for."""

    CONSUMERS = 1
    ALLOCATIONS = 2
    PROVIDERS = 3
    PROJECTS = 4
    USERS = 5


class Present(NamedTuple):
    """A consumer as it was read."""

    uuid: str
    id: int
    generation: int


class HeldRow(NamedTuple):
    """One allocation as it was read."""

    consumer_uuid: str
    id: int
    resource_provider_id: int
    resource_class_id: int
    used: int


@dataclasses.dataclass(frozen=True)
class Held:
    """The consumers that exist, by uuid, and all their allocations; and the ids of what a claim names, as far as known.

    ``providers`` is by uuid, ``projects`` and ``users`` are by external id.
    """

    consumers: Mapping[str, Present]
    rows: Sequence[HeldRow]
    providers: Mapping[str, int]
    projects: Mapping[str, int]
    users: Mapping[str, int]

    def generations(self) -> dict[str, int]:
        """The generation of each consumer that holds something, 0 where there is no record."""
        recorded = {uuid: present.generation for uuid, present in self.consumers.items()}
        return {row.consumer_uuid: 0 for row in self.rows} | recorded

    def provider_ids(self) -> set[int]:
        """The providers that they hold something of."""
        return {row.resource_provider_id for row in self.rows}

    def amounts(self) -> dict[tuple[int, int], int]:
        """The sum of what they hold by (provider id, class id)."""
        sums: dict[tuple[int, int], int] = {}
        for row in self.rows:
            slot = (row.resource_provider_id, row.resource_class_id)
            sums[slot] = sums.get(slot, 0) + row.used
        return sums


def read(
    tx: sa.Connection,
    consumers: Sequence[str],
    providers: Sequence[str] = (),
    projects: Collection[str] = (),
    users: Collection[str] = (),
) -> Held:
    """What ``consumers`` hold, and the ids of the others that exist.

    One statement (but for very many names) sees one state of a consumer: whoever then compare-and-swaps its generation
    knows that its allocations are still those. An adopted database may hold allocations without a consumer record.

    :param consumers: canonical uuids.
    :param providers: canonical uuids.
    :param projects: external ids, as are ``users``.
    """
    rows = _rows(tx, consumers, providers, sorted(projects), sorted(users))
    found: dict[int, list[Any]] = {kind: [] for kind in _Kind}
    for row in rows:
        found[row[0]].append(row)
    return Held(
        {row[1]: Present(row[1], row[2], row[3]) for row in found[_Kind.CONSUMERS]},
        [HeldRow(*row[1:]) for row in found[_Kind.ALLOCATIONS]],
        *({row[1]: row[2] for row in found[kind]} for kind in (_Kind.PROVIDERS, _Kind.PROJECTS, _Kind.USERS)),
    )


def _rows(tx: sa.Connection, *wanted: Sequence[str]) -> list[Any]:
    rows: list[Any] = []
    batched = (statements.batches(one) for one in wanted)
    for consumers, providers, projects, users in itertools.zip_longest(*batched, fillvalue=()):
        parameters = {'CONSUMERS': consumers, 'PROVIDERS': providers, 'PROJECTS': projects, 'USERS': users}
        asked = {name: names for name, names in parameters.items() if names}
        rows += tx.execute(_reading(tuple(asked)), asked)
    return rows


@functools.cache
def _reading(names: tuple[str, ...]) -> sa.CompoundSelect[Any]:
    """The statement that looks for those kinds of things."""
    parts = []
    if 'CONSUMERS' in names:
        consumer, held = _consumers.c, _allocations.c
        parts += [
            _part(_Kind.CONSUMERS, consumer.uuid, consumer.id, consumer.generation),
            _part(
                _Kind.ALLOCATIONS,
                held.consumer_id,
                held.id,
                held.resource_provider_id,
                held.resource_class_id,
                held.used,
                wanted='CONSUMERS',
            ),
        ]
    for kind, table in ((_Kind.PROJECTS, tables.projects), (_Kind.USERS, tables.users)):
        if kind.name in names:
            parts.append(_part(kind, table.c.external_id, table.c.id))
    if 'PROVIDERS' in names:
        parts.append(_part(_Kind.PROVIDERS, tables.resource_providers.c.uuid, tables.resource_providers.c.id))
    return sa.union_all(*parts)


def _part(kind: _Kind, name: sa.Column[str], *values: sa.Column[int], wanted: str | None = None) -> sa.Select[Any]:
    """Rows of six columns: the kind, the name, and up to four numbers."""
    numbers: list[sa.ColumnElement[int]] = [*values, *[sa.literal_column('0', sa.Integer)] * (4 - len(values))]
    selected: Any = sa.select(sa.literal_column(str(int(kind)), sa.Integer), name, *numbers)
    found: sa.Select[Any] = selected.where(name.in_(sa.bindparam(wanted or kind.name, expanding=True)))
    return found


_FORGET = (
    _consumers.delete()
    .where(_consumers.c.uuid == sa.bindparam('consumer'))
    .returning(_consumers.c.uuid, _consumers.c.id, _consumers.c.generation)
)
_IS_RECORDED = sa.select(_consumers.c.id).where(_consumers.c.uuid == sa.bindparam('consumer'))
_GIVE_UP = (
    _allocations.delete()
    .where(_allocations.c.consumer_id == sa.bindparam('consumer'))
    .returning(
        _allocations.c.consumer_id,
        _allocations.c.id,
        _allocations.c.resource_provider_id,
        _allocations.c.resource_class_id,
        _allocations.c.used,
    )
)


def can_take(tx: sa.Connection) -> bool:
    """Whether the database can do what ``take`` needs. MySQL cannot."""
    return tx.dialect.delete_returning


def take(tx: sa.Connection, consumer: str) -> Held:
    """Delete a consumer and its allocations, and return what they were; in two statements, and without reading first.

    Its record is locked before its allocations, so they are still those that others saw with it.

    :raises TryAgain: it had no record, and was created between the two statements.
    """
    gone = [Present(*row) for row in tx.execute(_FORGET, {'consumer': consumer})]
    rows = [HeldRow(*row) for row in tx.execute(_GIVE_UP, {'consumer': consumer})]
    # Allocations without a record are what an adopted database may have. Any others came with a record, which must go.
    if rows and not gone and tx.execute(_IS_RECORDED, {'consumer': consumer}).first() is not None:
        raise db_api.TryAgain(exception.ConcurrentUpdate())
    return Held({one.uuid: one for one in gone}, rows, {}, {}, {})
