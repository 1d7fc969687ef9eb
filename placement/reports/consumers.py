"""The consumers of a provider tree, and the allocations of one consumer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.api import Database

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users
_types = tables.consumer_types


@dataclass(frozen=True)
class Held:
    """One allocation. If the provider or class does not exist any more, its name is a text with its id."""

    provider_uuid: str | None
    provider_name: str
    resource_class: str
    amount: int


@dataclass(frozen=True)
class Consumer:
    """One consumer and its allocations. ``project``, ``user`` and ``generation`` are None if it has no record.

    ``type`` is also None if no client gave it one.
    """

    uuid: str
    project: str | None
    user: str | None
    generation: int | None
    type: str | None
    held: Sequence[Held] = field(default_factory=list)


@dataclass(frozen=True)
class ConsumerPage:
    """Some of the consumers with allocations in a tree, ordered by uuid; ``consumers`` is the number of all."""

    consumers: int
    rows: Sequence[Consumer]


def of_tree(db: Database, root_id: int, first: int, count: int) -> ConsumerPage:
    """The consumers with allocations in the tree with this root, and these allocations, in four statements.

    :param first: how many consumers to skip.
    :param count: most consumers to return.
    """
    inside = _providers.c.root_provider_id == root_id
    holders = (
        sa.select(_allocations.c.consumer_id)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .where(inside)
        .distinct()
    )
    with db.reader() as tx:
        total = tx.execute(sa.select(sa.func.count()).select_from(holders.subquery())).scalar_one()
        some = holders.order_by(_allocations.c.consumer_id).limit(count).offset(first)
        uuids = list(tx.scalars(some))
        return ConsumerPage(total, _read(tx, uuids, inside))


def one(db: Database, uuid: str) -> Consumer | None:
    """A consumer and all its allocations; None when there is neither a record of it nor an allocation."""
    if not sql.storable(uuid):
        return None
    with db.reader() as tx:
        (found,) = _read(tx, [uuid], sa.true())
    return found if found.held or found.generation is not None else None


def _read(tx: sa.Connection, uuids: Sequence[str], within: sa.ColumnElement[bool]) -> list[Consumer]:
    held: defaultdict[str, list[Held]] = defaultdict(list)
    for row in tx.execute(_held_query().where(_allocations.c.consumer_id.in_(uuids), within)):
        held[row.consumer_id].append(_held(row))
    owners: Mapping[str, Any] = {
        row.uuid: row for row in tx.execute(_owner_query().where(_consumers.c.uuid.in_(uuids)))
    }
    return [_consumer(uuid, owners.get(uuid), held[uuid]) for uuid in uuids]


def _consumer(uuid: str, row: Any, held: Sequence[Held]) -> Consumer:
    if row is None:
        return Consumer(uuid, None, None, None, None, held)
    return Consumer(uuid, row.project, row.user, row.generation, row.type, held)


def _held(row: Any) -> Held:
    provider = row.provider or row.uuid
    return Held(row.uuid, provider, row.resource_class or f'class number {row.resource_class_id}', row.used)


def _held_query() -> sa.Select[Any]:
    return (
        sa.select(
            _allocations.c.consumer_id,
            _allocations.c.resource_provider_id,
            _allocations.c.resource_class_id,
            _allocations.c.used,
            _providers.c.uuid,
            _providers.c.name.label('provider'),
            _classes.c.name.label('resource_class'),
        )
        .select_from(_allocations)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .outerjoin(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .order_by(_providers.c.name, _allocations.c.resource_provider_id, _allocations.c.resource_class_id)
    )


def _owner_query() -> sa.Select[Any]:
    return (
        sa.select(
            _consumers.c.uuid,
            _consumers.c.generation,
            _projects.c.external_id.label('project'),
            _users.c.external_id.label('user'),
            _types.c.name.label('type'),
        )
        .join(_projects, _projects.c.id == _consumers.c.project_id)
        .join(_users, _users.c.id == _consumers.c.user_id)
        .outerjoin(_types, _types.c.id == _consumers.c.consumer_type_id)
    )
