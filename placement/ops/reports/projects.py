"""What the consumers of a project have allocated: in all, by consumer, by provider and by aggregate."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.api import Database

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_members, _aggregates = tables.resource_provider_aggregates, tables.placement_aggregates


@dataclasses.dataclass(frozen=True)
class ProjectConsumer:
    """One consumer of a project."""

    uuid: str
    #: None if no client gave it a type.
    type: str | None
    #: The aware time of its first write; None if unknown.
    created_at: dt.datetime | None
    #: What it has allocated of all providers, by resource class.
    amounts: Mapping[str, int]
    #: Its largest part of what the project has allocated of a resource class: from 0 to 1.
    share: float


@dataclasses.dataclass(frozen=True)
class Holding:
    """What a project has allocated of one provider, or of the providers of one aggregate."""

    #: The name of the provider, or its uuid if it has none; the uuid of the aggregate.
    name: str
    uuid: str
    consumers: int
    #: By resource class.
    amounts: Mapping[str, int]


@dataclasses.dataclass(frozen=True)
class ProjectReport:
    """The consumers of one project, those with the largest share first; places with the most consumers first."""

    project: str
    #: By resource class, in the order of their ids.
    totals: Mapping[str, int]
    consumers: Sequence[ProjectConsumer]
    providers: Sequence[Holding]
    #: A provider may be in several aggregates, so their amounts may exceed the totals.
    aggregates: Sequence[Holding]


def read_project(db: Database, project: str) -> ProjectReport | None:
    """Read the allocations of a project in three statements of one transaction.

    :returns: the report, or None if no consumer has the project.
    """
    if not sql.storable(project):
        return None
    of_project = sa.select(tables.projects.c.id).where(tables.projects.c.external_id == project).scalar_subquery()
    with db.reader() as tx:
        consumers = tx.execute(_CONSUMERS.where(_consumers.c.project_id == of_project)).all()
        if not consumers:
            return None
        rows = tx.execute(_ALLOCATIONS.where(_consumers.c.project_id == of_project)).all()
        ids = sorted({row.provider_id for row in rows})
        aggregates: defaultdict[int, list[str]] = defaultdict(list)
        for part in sql.chunks(ids):
            for provider_id, uuid in tx.execute(_MEMBERSHIPS.where(_members.c.resource_provider_id.in_(part))):
                aggregates[provider_id].append(uuid)
    totals: Counter[str] = Counter()
    amounts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        totals[row.resource_class] += row.used
        amounts[row.consumer][row.resource_class] += row.used
    listed = [
        ProjectConsumer(
            row.uuid,
            row.type,
            sql.with_utc(row.created_at),
            dict(amounts[row.uuid]),
            max((amount / totals[name] for name, amount in amounts[row.uuid].items()), default=0.0),
        )
        for row in consumers
    ]
    listed.sort(key=lambda consumer: (-consumer.share, consumer.uuid))
    return ProjectReport(
        project,
        dict(totals),
        listed,
        _holdings((row.provider_name or row.provider_uuid, row.provider_uuid, row) for row in rows),
        _holdings((uuid, uuid, row) for row in rows for uuid in aggregates[row.provider_id]),
    )


def _holdings(places: Iterable[tuple[str, str, Any]]) -> list[Holding]:
    """Sum up allocations by place.

    :param places: name and uuid of a place, and an allocation there.
    """
    amounts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    consumers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, uuid, row in places:
        amounts[name, uuid][row.resource_class] += row.used
        consumers[name, uuid].add(row.consumer)
    holdings = [Holding(*place, len(consumers[place]), dict(amounts[place])) for place in amounts]
    return sorted(holdings, key=lambda holding: (-holding.consumers, holding.name))


_CONSUMERS = sa.select(
    _consumers.c.uuid, tables.consumer_types.c.name.label('type'), _consumers.c.created_at
).outerjoin_from(_consumers, tables.consumer_types, tables.consumer_types.c.id == _consumers.c.consumer_type_id)
_ALLOCATIONS = (
    sa.select(
        _consumers.c.uuid.label('consumer'),
        _allocations.c.resource_provider_id.label('provider_id'),
        _providers.c.uuid.label('provider_uuid'),
        _providers.c.name.label('provider_name'),
        tables.resource_classes.c.name.label('resource_class'),
        _allocations.c.used,
    )
    .join_from(_consumers, _allocations, _allocations.c.consumer_id == _consumers.c.uuid)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .join(tables.resource_classes, tables.resource_classes.c.id == _allocations.c.resource_class_id)
    .order_by(_allocations.c.resource_class_id)
)
_MEMBERSHIPS = sa.select(_members.c.resource_provider_id, _aggregates.c.uuid).join_from(
    _members, _aggregates, _aggregates.c.id == _members.c.aggregate_id
)
