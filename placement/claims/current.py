"""Reads and deletes the current allocations of consumers, and resolves the names in a claim to ids."""

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
from placement.db import sql


class _Kind(enum.IntEnum):
    """The table that a row of ``read_current_allocations`` comes from."""

    CONSUMERS = 1
    ALLOCATIONS = 2
    PROVIDERS = 3
    PROJECTS = 4
    USERS = 5
    CONSUMER_TYPES = 6


class ConsumerRow(NamedTuple):
    """The row of a consumer as it was read."""

    uuid: str
    id: int
    generation: int


class AllocationRow(NamedTuple):
    """One allocation as it was read. ``inventories`` is the number of inventories of its provider and class: 0 or 1."""

    consumer_uuid: str
    id: int
    resource_provider_id: int
    resource_class_id: int
    used: int
    inventories: int


#: The kinds of which ``CurrentAllocations`` maps names to ids, in the order of its fields.
_NAMED = (_Kind.PROVIDERS, _Kind.PROJECTS, _Kind.USERS, _Kind.CONSUMER_TYPES)

#: The expressions of the fields of an ``AllocationRow`` after the first.
_ALLOCATION_COLUMNS = (
    *AllocationRow._fields[1:-1],
    (
        '(SELECT count(*) FROM placement_inventories inv'
        ' WHERE inv.resource_provider_id = placement_allocations.resource_provider_id'
        ' AND inv.resource_class_id = placement_allocations.resource_class_id)'
    ),
)


@dataclasses.dataclass(frozen=True)
class CurrentAllocations:
    """The result of ``read_current_allocations``; names that are not in the database are left out.

    ``consumers`` is by uuid, and ``rows`` has all their allocations. The others map names to ids: ``providers`` by
    uuid, ``projects`` and ``users`` by external id, ``consumer_types`` by name.
    """

    consumers: Mapping[str, ConsumerRow]
    rows: Sequence[AllocationRow]
    providers: Mapping[str, int]
    projects: Mapping[str, int]
    users: Mapping[str, int]
    consumer_types: Mapping[str, int]

    def generations(self) -> dict[str, int]:
        """Return the generations of the consumers, by uuid."""
        return {uuid: row.generation for uuid, row in self.consumers.items()}

    def provider_ids(self) -> set[int]:
        """Return the ids of the providers that the consumers have allocations of."""
        return {row.resource_provider_id for row in self.rows}

    def amounts(self) -> dict[tuple[int, int], int]:
        """Return the sums of the allocations by (provider id, class id), but for inventories that do not exist."""
        sums: dict[tuple[int, int], int] = {}
        for row in self.rows:
            if row.inventories:
                inventory = (row.resource_provider_id, row.resource_class_id)
                sums[inventory] = sums.get(inventory, 0) + row.used
        return sums


def read_current_allocations(
    tx: sa.Connection,
    consumers: Sequence[str],
    providers: Sequence[str] = (),
    projects: Collection[str] = (),
    users: Collection[str] = (),
    consumer_types: Collection[str] = (),
) -> CurrentAllocations:
    """Read the allocations of ``consumers``, and the ids of the providers, projects, users and types. Locks nothing.

    One statement (more for over 900 names of a kind) reads a consumer together with its allocations. So if its row
    still has that generation when it is updated, the allocations are still the same.

    :param consumers: canonical uuids.
    :param providers: canonical uuids.
    :param projects: external ids, as are ``users``.
    :param consumer_types: names.
    """
    rows = _rows(tx, consumers, providers, sorted(projects), sorted(users), sorted(consumer_types))
    found: dict[int, list[Any]] = {kind: [] for kind in _Kind}
    for row in rows:
        found[row[0]].append(row)
    return CurrentAllocations(
        {row[1]: ConsumerRow(row[1], row[2], row[3]) for row in found[_Kind.CONSUMERS]},
        [AllocationRow(*row[1:]) for row in found[_Kind.ALLOCATIONS]],
        *({row[1]: row[2] for row in found[kind]} for kind in _NAMED),
    )


def _rows(tx: sa.Connection, *names: Sequence[str]) -> list[Any]:
    rows: list[Any] = []
    chunks = (sql.chunks(some) for some in names)
    for consumers, providers, projects, users, types in itertools.zip_longest(*chunks, fillvalue=()):
        text = _query(len(consumers), len(providers), len(projects), len(users), len(types))
        rows += sql.run(tx, text, *consumers, *consumers, *projects, *users, *types, *providers)
    return rows


@functools.lru_cache(maxsize=256)
def _query(consumers: int, providers: int, projects: int, users: int, types: int) -> str:
    """Return the statement that finds so many consumers, providers, projects, users and types of consumers."""
    parts = (
        _part(_Kind.CONSUMERS, 'placement_consumers', 'uuid', consumers, 'id', 'generation'),
        _part(_Kind.ALLOCATIONS, 'placement_allocations', 'consumer_id', consumers, *_ALLOCATION_COLUMNS),
        _part(_Kind.PROJECTS, 'placement_projects', 'external_id', projects, 'id'),
        _part(_Kind.USERS, 'placement_users', 'external_id', users, 'id'),
        _part(_Kind.CONSUMER_TYPES, 'placement_consumer_types', 'name', types, 'id'),
        _part(_Kind.PROVIDERS, 'placement_resource_providers', 'uuid', providers, 'id'),
    )
    return ' UNION ALL '.join(filter(None, parts))


def _part(kind: _Kind, table: str, name: str, count: int, *values: str) -> str:
    """Return a SELECT for UNION ALL: the kind, the name, and ``values`` filled up to as many as an allocation has."""
    if not count:
        return ''
    numbers = ', '.join([*values, *['0'] * (len(_ALLOCATION_COLUMNS) - len(values))])
    return f'SELECT {int(kind)}, {name}, {numbers} FROM {table} WHERE {name} IN ({sql.placeholders(count)})'  # noqa: S608


_DELETE_CONSUMER = 'DELETE FROM placement_consumers WHERE uuid = ? RETURNING uuid, id, generation'
# Inventories are not counted: rows of those that do not exist are then not updated, which a release does not check.
_DELETE_ALLOCATIONS = (
    f'DELETE FROM placement_allocations WHERE consumer_id = ?'  # noqa: S608
    f' RETURNING consumer_id, {", ".join(AllocationRow._fields[1:-1])}, 1'
)


def delete_returning(tx: sa.Connection, consumer: str) -> CurrentAllocations:
    """Delete a consumer, then its allocations, in two statements, and return them as they were.

    Not for MySQL and for SQLite before 3.35, which have no DELETE ... RETURNING.

    :param consumer: canonical uuid.
    :raises RetryTransaction: the consumer was created between the two statements.
    """
    deleted = [ConsumerRow._make(row) for row in sql.run(tx, _DELETE_CONSUMER, consumer)]
    rows = [AllocationRow._make(row) for row in sql.run(tx, _DELETE_ALLOCATIONS, consumer)]
    # Another transaction has just inserted both, and the row of the consumer must be deleted, too.
    if rows and not deleted:
        raise db_api.RetryTransaction(exception.ConcurrentUpdate())
    return CurrentAllocations({one.uuid: one for one in deleted}, rows, {}, {}, {}, {})
