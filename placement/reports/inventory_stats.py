"""Numbers about the whole cloud for the metrics: inventories, usages, counts, and how many usages are wrong.

The number of statements does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import capacity as capacity_rule
from placement.db import tables, types
from placement.db.api import Database

_inventories, _allocations, _providers = tables.inventories, tables.allocations, tables.resource_providers
_members = tables.resource_provider_aggregates


class ClassTotals(NamedTuple):
    """The sums over the inventories of one resource class.

    ``capacity`` is the sum of the capacities, each truncated to a whole number as in the API. ``largest_free`` is the
    largest amount that one allocation can take of one inventory.
    """

    resource_class: str
    total: int
    reserved: int
    capacity: float
    used: int
    largest_free: int


class Counts(NamedTuple):
    """The numbers of records. The trees are the providers without a parent."""

    resource_providers: int
    trees: int
    consumers: int
    allocations: int


class AggregateStats(NamedTuple):
    """The numbers of one aggregate: of its members, and of the providers below a member in its tree.

    ``trees`` counts those without a parent among them.
    """

    aggregate: str
    resource_providers: int
    trees: int
    classes: tuple[ClassTotals, ...]


class InventoryStats(NamedTuple):
    """The result of ``read_cloud``. ``schema`` is the version of the schema, ``none`` if there is none."""

    schema: str
    counts: Counts
    classes: tuple[ClassTotals, ...]
    aggregates: tuple[AggregateStats, ...]


class AllocationTotals(NamedTuple):
    """How many consumers and allocations the providers of one aggregate have."""

    aggregate: str
    consumers: int
    allocations: int


class AllocationStats(NamedTuple):
    """The result of ``read_allocations``.

    ``wrong_usages`` is the number of inventories whose recorded usage is not the sum of their allocations.
    """

    wrong_usages: int
    aggregates: tuple[AllocationTotals, ...]


def read_cloud(db: Database, aggregates: Collection[str]) -> InventoryStats:
    """Read everything that does not take long, all but the version of the schema in one transaction.

    :param aggregates: uuids of the aggregates to report. The numbers of one that does not exist are 0.
    :raises database_health.TROUBLES: the database cannot be read.
    """
    schema = db.schema_version() or 'none'
    with db.reader() as tx:
        counts = Counts(*tx.execute(_COUNTS).one())
        classes = tuple(ClassTotals(*row) for row in tx.execute(_TOTALS))
        of_aggregates = tuple(_of_aggregates(tx, aggregates)) if aggregates else ()
    return InventoryStats(schema, counts, classes, of_aggregates)


def read_allocations(db: Database, aggregates: Collection[str]) -> AllocationStats:
    """Read what takes long, because the database has to read all allocations.

    :param aggregates: as for ``read_cloud``.
    :raises database_health.TROUBLES: the database cannot be read.
    """
    with db.reader() as tx:
        wrong = int(tx.execute(_WRONG_USAGES).scalar_one())
        found = (
            {row.uuid: row for row in tx.execute(_AGGREGATE_HOLDINGS, {'wanted': list(aggregates)})}
            if aggregates
            else {}
        )
    holdings = (
        AllocationTotals(uuid, found[uuid].consumers, found[uuid].allocations)
        if uuid in found
        else AllocationTotals(uuid, 0, 0)
        for uuid in sorted(aggregates)
    )
    return AllocationStats(wrong, tuple(holdings))


def _of_aggregates(tx: sa.Connection, aggregates: Collection[str]) -> Iterator[AggregateStats]:
    wanted = {'wanted': list(aggregates)}
    counted = {row.uuid: row for row in tx.execute(_AGGREGATE_COUNTS, wanted)}
    summed: dict[str, list[ClassTotals]] = {}
    for uuid, *totals in tx.execute(_AGGREGATE_TOTALS, wanted):
        summed.setdefault(uuid, []).append(ClassTotals(*totals))
    for uuid in sorted(aggregates):
        row = counted.get(uuid)
        classes = tuple(summed.get(uuid, ()))
        yield AggregateStats(uuid, row.resource_providers if row else 0, row.trees if row else 0, classes)


# The statements ----------------------------------------------------------------------------------------------


def _largest_free(inventories: Any, capacity: sa.ColumnElement[float]) -> sa.ColumnElement[int]:
    """The largest amount that one allocation can take of an inventory (api-ref/capacity.md#room); 0 if none fits."""
    left = capacity - inventories.used
    most = sa.cast(sa.case((left < inventories.max_unit, left), else_=inventories.max_unit), sa.BigInteger)
    # Division by 0 is an error on some databases.
    largest = most - most % sa.func.nullif(inventories.step_size, 0, type_=sa.Integer)
    fits = sa.and_(most > 0, largest >= inventories.min_unit)
    return sa.case((fits, largest), else_=0)


def _total_columns() -> list[sa.ColumnElement[Any]]:
    inventories = _inventories.c
    capacity: sa.ColumnElement[float] = types.Truncated(capacity_rule.capacity_limit(inventories))
    sums = {name: sa.cast(sa.func.sum(inventories[name]), sa.BigInteger) for name in ('total', 'reserved', 'used')}
    largest = sa.cast(sa.func.max(_largest_free(inventories, capacity)), sa.BigInteger)
    return [sums['total'], sums['reserved'], sa.func.sum(capacity), sums['used'], largest]


_CLASS = tables.resource_classes.c.name
_IS_OF_CLASS = _inventories.c.resource_class_id == tables.resource_classes.c.id
_TOTALS = (
    sa.select(_CLASS, *_total_columns())
    .join_from(_inventories, tables.resource_classes, _IS_OF_CLASS)
    .group_by(_CLASS)
    .order_by(_CLASS)
)

_COUNTS = sa.select(
    sa.func.count(),
    sa.func.count() - sa.func.count(_providers.c.parent_provider_id),
    sa.select(sa.func.count()).select_from(tables.consumers).scalar_subquery(),
    sa.select(sa.func.count()).select_from(_allocations).scalar_subquery(),
).select_from(_providers)


def _within_aggregates() -> sa.CTE:
    """The id of each provider of the aggregates ``wanted``, with its root's and the aggregate's uuid."""
    uuid = tables.placement_aggregates.c.uuid
    members = (
        sa.select(uuid, _providers.c.id, _providers.c.root_provider_id.label('root_id'))
        .join_from(tables.placement_aggregates, _members, _members.c.aggregate_id == tables.placement_aggregates.c.id)
        .join(_providers, _providers.c.id == _members.c.resource_provider_id)
        .where(uuid.in_(sa.bindparam('wanted', expanding=True)))
        .cte('within', recursive=True)
    )
    below = sa.select(members.c.uuid, _providers.c.id, members.c.root_id).join_from(
        members, _providers, _providers.c.parent_provider_id == members.c.id
    )
    return members.union(below)


_within = _within_aggregates()
_AGGREGATE_COUNTS = sa.select(
    _within.c.uuid,
    sa.func.count().label('resource_providers'),
    sa.func.count(sa.distinct(_within.c.root_id)).label('trees'),
).group_by(_within.c.uuid)

_AGGREGATE_TOTALS = (
    sa.select(_within.c.uuid, _CLASS, *_total_columns())
    .join_from(_within, _inventories, _inventories.c.resource_provider_id == _within.c.id)
    .join(tables.resource_classes, _IS_OF_CLASS)
    .group_by(_within.c.uuid, _CLASS)
    .order_by(_within.c.uuid, _CLASS)
)

_WRONG_USAGES = sa.select(sa.func.count()).select_from(_inventories).where(_inventories.c.used != tables.HELD)

_AGGREGATE_HOLDINGS = (
    sa.select(
        _within.c.uuid,
        sa.func.count(sa.distinct(_allocations.c.consumer_id)).label('consumers'),
        sa.func.count().label('allocations'),
    )
    .join_from(_within, _allocations, _allocations.c.resource_provider_id == _within.c.id)
    .group_by(_within.c.uuid)
)
