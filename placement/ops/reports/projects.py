"""What the consumers of a project have allocated: in all, by consumer, by provider and by aggregate."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.api import Database
from placement.ops.reports.consumer_reports import ConsumerAllocation, read_allocations, read_records

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_members = tables.resource_provider_aggregates


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
    of_project = tables.projects.c.external_id == project
    uuids = sa.select(_consumers.c.uuid).join(tables.projects, tables.projects.c.id == _consumers.c.project_id)
    is_held = _allocations.c.consumer_id.in_(uuids.where(of_project))
    with db.reader() as tx:
        consumers = read_records(tx, of_project)
        if not consumers:
            return None
        held = list(read_allocations(tx, is_held, _allocations.c.resource_class_id))
        aggregates: defaultdict[str, list[str]] = defaultdict(list)
        for chunk in sql.chunks(sorted({allocation.provider_uuid for _, allocation in held})):
            for provider, aggregate in tx.execute(_MEMBERSHIPS.where(_providers.c.uuid.in_(chunk))):
                aggregates[provider].append(aggregate)
    totals: Counter[str] = Counter()
    amounts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for consumer, allocation in held:
        totals[allocation.resource_class] += allocation.amount
        amounts[consumer][allocation.resource_class] += allocation.amount
    listed = [
        ProjectConsumer(
            record.uuid,
            record.type,
            record.created_at,
            dict(amounts[record.uuid]),
            max((amount / totals[name] for name, amount in amounts[record.uuid].items()), default=0.0),
        )
        for record in consumers
    ]
    listed.sort(key=lambda consumer: (-consumer.share, consumer.uuid))
    by_aggregate = (
        (uuid, uuid, consumer, allocation)
        for consumer, allocation in held
        for uuid in aggregates[allocation.provider_uuid]
    )
    by_provider = ((item.provider_name, item.provider_uuid, consumer, item) for consumer, item in held)
    return ProjectReport(project, dict(totals), listed, _holdings(by_provider), _holdings(by_aggregate))


def _holdings(places: Iterable[tuple[str, str, str, ConsumerAllocation]]) -> list[Holding]:
    """Sum up allocations by place.

    :param places: name and uuid of a place, the uuid of a consumer, and an allocation of it there.
    """
    amounts: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    consumers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for name, uuid, consumer, allocation in places:
        amounts[name, uuid][allocation.resource_class] += allocation.amount
        consumers[name, uuid].add(consumer)
    holdings = [Holding(*place, len(consumers[place]), dict(amounts[place])) for place in amounts]
    return sorted(holdings, key=lambda holding: (-holding.consumers, holding.name))


_MEMBERSHIPS = (
    sa.select(_providers.c.uuid, tables.placement_aggregates.c.uuid)
    .join_from(_providers, _members, _members.c.resource_provider_id == _providers.c.id)
    .join(tables.placement_aggregates, tables.placement_aggregates.c.id == _members.c.aggregate_id)
)
