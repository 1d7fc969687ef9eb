"""Figures for the metrics: sums over inventories from the provider cache, and counts of records from the database.

The number of statements does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import sqlalchemy as sa

from placement.cache.refresh import ProviderCache
from placement.db import tables
from placement.db.api import Database
from placement.ops.reports import capacity
from placement.ops.reports.capacity import Summary
from placement.ops.reports.tree_filter import TreeFilter

_inventories, _allocations, _providers = tables.inventories, tables.allocations, tables.resource_providers
_members = tables.resource_provider_aggregates


class InventoryStats(NamedTuple):
    """The result of ``read_inventories``. ``schema`` is the revision of the schema, or ``none``.

    ``aggregates`` has, by uuid, the figures of the trees that have a provider in an aggregate.
    """

    schema: str
    consumers: int
    allocations: int
    summary: Summary
    aggregates: Mapping[str, Summary]


class AllocationStats(NamedTuple):
    """The result of ``read_allocations``.

    ``usage_mismatches`` is the number of inventories whose recorded usage is not the sum of their allocations.
    ``aggregates`` has, by uuid, the numbers of consumers and of allocations in the trees that have a provider in an
    aggregate.
    """

    usage_mismatches: int
    aggregates: Mapping[str, tuple[int, int]]


def read_inventories(db: Database, provider_cache: ProviderCache, aggregates: Collection[str]) -> InventoryStats:
    """Read the figures that take little time: refresh the cache, and count consumers and allocations.

    :param aggregates: uuids of the aggregates to report. If an aggregate does not exist, its figures are 0.
    :raises errors.DATABASE_ERRORS: the database cannot be read.
    """
    schema = db.schema_revision() or 'none'
    snapshot = provider_cache.up_to_date()
    with db.reader() as tx:
        consumers, allocations = tx.execute(_COUNTS).one()
    by_aggregate = {uuid: capacity.summary(snapshot, TreeFilter(frozenset({uuid}))) for uuid in sorted(aggregates)}
    return InventoryStats(schema, consumers, allocations, capacity.summary(snapshot), by_aggregate)


def read_allocations(db: Database, aggregates: Collection[str]) -> AllocationStats:
    """Read the figures that take long, because the database has to read all allocations.

    :param aggregates: as for ``read_inventories``.
    :raises errors.DATABASE_ERRORS: the database cannot be read.
    """
    with db.reader() as tx:
        mismatches = int(tx.execute(_USAGE_MISMATCHES).scalar_one())
        rows = tx.execute(_AGGREGATE_ALLOCATIONS, {'wanted': list(aggregates)}) if aggregates else ()
        counted = {uuid: (consumers, allocations) for uuid, consumers, allocations in rows}
    return AllocationStats(mismatches, {uuid: counted.get(uuid, (0, 0)) for uuid in sorted(aggregates)})


# The statements ----------------------------------------------------------------------------------------------

_COUNTS = sa.select(
    sa.select(sa.func.count()).select_from(tables.consumers).scalar_subquery(),
    sa.select(sa.func.count()).select_from(_allocations).scalar_subquery(),
)

_USAGE_MISMATCHES = sa.select(sa.func.count()).select_from(_inventories).where(_inventories.c.used != tables.ALLOCATED)

#: For the aggregates ``wanted``: their uuids, each with the root ids of the trees that have a provider in it.
_trees = (
    sa.select(tables.placement_aggregates.c.uuid, _providers.c.root_provider_id)
    .join_from(tables.placement_aggregates, _members, _members.c.aggregate_id == tables.placement_aggregates.c.id)
    .join(_providers, _providers.c.id == _members.c.resource_provider_id)
    .where(tables.placement_aggregates.c.uuid.in_(sa.bindparam('wanted', expanding=True)))
    .distinct()
    .subquery()
)
_AGGREGATE_ALLOCATIONS = (
    sa.select(_trees.c.uuid, sa.func.count(sa.distinct(_allocations.c.consumer_id)), sa.func.count())
    .join_from(_trees, _providers, _providers.c.root_provider_id == _trees.c.root_provider_id)
    .join(_allocations, _allocations.c.resource_provider_id == _providers.c.id)
    .group_by(_trees.c.uuid)
)
