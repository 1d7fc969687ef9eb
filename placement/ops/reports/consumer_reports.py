"""The consumers of trees, providers and projects, the allocations of one consumer, and the most common size."""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import sqlalchemy as sa

from placement import exception, uuid_spelling
from placement.db import sql, tables
from placement.db.api import Database

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_classes, _projects, _users = tables.resource_classes, tables.projects, tables.users
_types = tables.consumer_types


class ConsumerNotFound(exception.NotFound):
    template = 'There is no consumer with the uuid {uuid!r}: it has neither a record nor allocations.'


@dataclass(frozen=True)
class ConsumerAllocation:
    """One allocation. If the provider has no name, ``provider_name`` is its uuid.

    If the class no longer exists, ``resource_class`` is a text with its id.
    ``created_at`` is the aware time at which the consumer was last written: a write replaces all its allocations.
    """

    provider_uuid: str
    provider_name: str
    resource_class: str
    amount: int
    created_at: dt.datetime | None


@dataclass(frozen=True)
class ConsumerReport:
    """One consumer and its allocations. ``project``, ``user`` and ``generation`` are None if it has no record.

    ``type`` is also None if no client gave it one. The aware times of its first and latest write are None if unknown.
    """

    uuid: str
    project: str | None = None
    user: str | None = None
    generation: int | None = None
    type: str | None = None
    created_at: dt.datetime | None = None
    updated_at: dt.datetime | None = None
    allocations: Sequence[ConsumerAllocation] = field(default_factory=list)


def consumers_of_tree(db: Database, root_id: int, first: int, count: int) -> tuple[int, list[ConsumerReport]]:
    """Return the consumers with allocations in a tree, with these allocations, in four statements.

    :param first: how many consumers to skip.
    :param count: maximum number of consumers to return.
    :returns: the number of all such consumers, and those to return, ordered by uuid.
    """
    inside = _providers.c.root_provider_id == root_id
    consumer_ids = (
        sa.select(_allocations.c.consumer_id)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .where(inside)
        .distinct()
    )
    with db.reader() as tx:
        return _page(tx, consumer_ids, inside, first, count)


def consumers_by_provider(tx: sa.Connection, provider_ids: Sequence[int]) -> Mapping[str, list[ConsumerReport]]:
    """Return the consumers of some providers, by the uuid of the provider.

    The consumers are ordered by uuid, each with its allocations of that provider. This takes one statement for each 900
    providers, and another for each 900 consumers.
    """
    allocations: defaultdict[tuple[str, str], list[ConsumerAllocation]] = defaultdict(list)
    for ids in sql.chunks(sorted(provider_ids)):
        for uuid, allocation in read_allocations(tx, _allocations.c.resource_provider_id.in_(ids)):
            allocations[uuid, allocation.provider_uuid].append(allocation)
    records = _read_records(tx, sorted({uuid for uuid, _ in allocations}))
    by_provider: defaultdict[str, list[ConsumerReport]] = defaultdict(list)
    for uuid, provider_uuid in sorted(allocations):
        record = records.get(uuid, ConsumerReport(uuid))
        by_provider[provider_uuid].append(replace(record, allocations=allocations[uuid, provider_uuid]))
    return by_provider


def consumers_of_project(db: Database, project: str, first: int, count: int) -> tuple[int, list[ConsumerReport]]:
    """Return the consumers of a project with all their allocations, in four statements.

    :param first: how many consumers to skip.
    :param count: maximum number of consumers to return.
    :returns: the number of all such consumers, and those to return, ordered by uuid.
    """
    if not sql.storable(project):
        return 0, []
    consumers = sa.select(_consumers.c.uuid).join(_projects, _projects.c.id == _consumers.c.project_id)
    with db.reader() as tx:
        return _page(tx, consumers.where(_projects.c.external_id == project), sa.true(), first, count)


def _page(
    tx: sa.Connection, consumers: sa.Select[Any], within: sa.ColumnElement[bool], first: int, count: int
) -> tuple[int, list[ConsumerReport]]:
    """Return the number of the ``consumers`` that a statement selects, and one page of them.

    :param within: selects the allocations to report.
    """
    total = tx.execute(sa.select(sa.func.count()).select_from(consumers.subquery())).scalar_one()
    uuids = tx.scalars(consumers.order_by(*consumers.selected_columns).limit(count).offset(first)).all()
    return total, _read(tx, uuids, within)


def read_consumer(db: Database, uuid: str) -> ConsumerReport:
    """Read a consumer and all its allocations.

    :param uuid: in any spelling.
    :raises ConsumerNotFound: it has neither a record nor allocations.
    """
    if sql.storable(uuid):
        with db.reader() as tx:
            (report,) = _read(tx, [uuid_spelling.canonical_uuid(uuid)], sa.true())
        if report.allocations or report.generation is not None:
            return report
    raise ConsumerNotFound(uuid=uuid)


def most_common_size(db: Database, latest: int) -> dict[str, int] | None:
    """Return the most common size of the newest consumers, in one statement; None if they have no allocations.

    A size has for each class the largest amount that the consumer has of one provider.

    :param latest: how many consumers to examine. A limit prevents reading all allocations of a large cloud.
    """
    recent = sa.select(_consumers.c.uuid).order_by(_consumers.c.id.desc()).limit(latest).subquery()
    amounts = (
        sa.select(_allocations.c.consumer_id, _classes.c.name, sa.func.max(_allocations.c.used))
        .join(recent, recent.c.uuid == _allocations.c.consumer_id)
        .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .group_by(_allocations.c.consumer_id, _classes.c.id, _classes.c.name)
        .order_by(_allocations.c.consumer_id, _classes.c.id)
    )
    sizes: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
    with db.reader() as tx:
        for uuid, name, amount in tx.execute(amounts):
            sizes[uuid].append((name, amount))
    most_common = Counter(map(tuple, sizes.values())).most_common(1)
    return dict(most_common[0][0]) if most_common else None


def _read(tx: sa.Connection, uuids: Sequence[str], within: sa.ColumnElement[bool]) -> list[ConsumerReport]:
    """Read consumers, and their allocations that satisfy a condition, in two statements for at most 900 consumers."""
    allocations: defaultdict[str, list[ConsumerAllocation]] = defaultdict(list)
    for uuid, allocation in read_allocations(tx, sa.and_(_allocations.c.consumer_id.in_(uuids), within)):
        allocations[uuid].append(allocation)
    records = _read_records(tx, uuids)
    return [replace(records.get(uuid, ConsumerReport(uuid)), allocations=allocations[uuid]) for uuid in uuids]


def read_allocations(
    tx: sa.Connection, condition: sa.ColumnElement[bool], *order: sa.ColumnElement[Any]
) -> Iterator[tuple[str, ConsumerAllocation]]:
    """Read the allocations that satisfy a condition, each with the uuid of its consumer.

    :param order: the columns that order them; by default they are ordered by provider and class.
    """
    query = _SELECT_ALLOCATIONS.where(condition).order_by(*(order or _BY_PROVIDER))
    for consumer, class_id, amount, created_at, uuid, name, class_name in tx.execute(query):
        resource_class = class_name or f'class number {class_id}'
        yield consumer, ConsumerAllocation(uuid, name or uuid, resource_class, amount, sql.with_utc(created_at))


def _read_records(tx: sa.Connection, uuids: Sequence[str]) -> dict[str, ConsumerReport]:
    """Read the consumers that have a record, without their allocations."""
    return {
        record.uuid: record for chunk in sql.chunks(uuids) for record in read_records(tx, _consumers.c.uuid.in_(chunk))
    }


def read_records(tx: sa.Connection, condition: sa.ColumnElement[bool]) -> list[ConsumerReport]:
    """Read the consumers whose records satisfy a condition, without their allocations."""
    rows = tx.execute(_SELECT_RECORDS.where(condition))
    return [ConsumerReport(*row[:-2], *map(sql.with_utc, row[-2:])) for row in rows]


_SELECT_ALLOCATIONS = (
    sa.select(
        _allocations.c.consumer_id,
        _allocations.c.resource_class_id,
        _allocations.c.used,
        _allocations.c.created_at,
        _providers.c.uuid,
        _providers.c.name.label('provider'),
        _classes.c.name.label('resource_class'),
    )
    .select_from(_allocations)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .outerjoin(_classes, _classes.c.id == _allocations.c.resource_class_id)
)
_BY_PROVIDER = (_providers.c.name, _allocations.c.resource_provider_id, _allocations.c.resource_class_id)
#: The fields of ``ConsumerReport`` in their order, except the allocations.
_SELECT_RECORDS = (
    sa.select(
        _consumers.c.uuid,
        _projects.c.external_id,
        _users.c.external_id,
        _consumers.c.generation,
        _types.c.name,
        _consumers.c.created_at,
        _consumers.c.updated_at,
    )
    .join(_projects, _projects.c.id == _consumers.c.project_id)
    .join(_users, _users.c.id == _consumers.c.user_id)
    .outerjoin(_types, _types.c.id == _consumers.c.consumer_type_id)
)
