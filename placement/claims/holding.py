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
from placement.db import statements


class _Kind(enum.IntEnum):
    """What a row of the reading is about."""

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
            key = (row.resource_provider_id, row.resource_class_id)
            sums[key] = sums.get(key, 0) + row.used
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
        text = _reading(len(consumers), len(providers), len(projects), len(users))
        rows += statements.run(tx, text, *consumers, *consumers, *projects, *users, *providers)
    return rows


@functools.lru_cache(maxsize=256)
def _reading(consumers: int, providers: int, projects: int, users: int) -> str:
    """The statement that looks for so many things of those kinds."""
    held = ('id', 'resource_provider_id', 'resource_class_id', 'used')
    parts = (
        _part(_Kind.CONSUMERS, 'placement_consumers', 'uuid', consumers, 'id', 'generation'),
        _part(_Kind.ALLOCATIONS, 'placement_allocations', 'consumer_id', consumers, *held),
        _part(_Kind.PROJECTS, 'placement_projects', 'external_id', projects, 'id'),
        _part(_Kind.USERS, 'placement_users', 'external_id', users, 'id'),
        _part(_Kind.PROVIDERS, 'placement_resource_providers', 'uuid', providers, 'id'),
    )
    return ' UNION ALL '.join(filter(None, parts))


def _part(kind: _Kind, table: str, name: str, count: int, *values: str) -> str:
    """Rows of six columns: the kind, the name, and up to four numbers; of those with ``count`` names."""
    if not count:
        return ''
    numbers = ', '.join([*values, *['0'] * (4 - len(values))])
    return f'SELECT {int(kind)}, {name}, {numbers} FROM {table} WHERE {name} IN ({statements.marks(count)})'  # noqa: S608


_FORGET = 'DELETE FROM placement_consumers WHERE uuid = ? RETURNING uuid, id, generation'
_IS_RECORDED = 'SELECT id FROM placement_consumers WHERE uuid = ?'
_GIVE_UP = (
    'DELETE FROM placement_allocations WHERE consumer_id = ?'
    ' RETURNING consumer_id, id, resource_provider_id, resource_class_id, used'
)


def can_take(tx: sa.Connection) -> bool:
    """Whether the database can do what ``take`` needs. MySQL cannot."""
    return tx.dialect.delete_returning


def take(tx: sa.Connection, consumer: str) -> Held:
    """Delete a consumer and its allocations, and return what they were; in two statements, and without reading first.

    Its record is locked before its allocations, so they are still those that others saw with it.

    :raises TryAgain: it had no record, and was created between the two statements.
    """
    gone = [Present._make(row) for row in statements.run(tx, _FORGET, consumer)]
    rows = [HeldRow._make(row) for row in statements.run(tx, _GIVE_UP, consumer)]
    # Allocations without a record are what an adopted database may have. Any others came with a record, which must go.
    if rows and not gone and statements.run(tx, _IS_RECORDED, consumer).first() is not None:
        raise db_api.TryAgain(exception.ConcurrentUpdate())
    return Held({one.uuid: one for one in gone}, rows, {}, {}, {})
