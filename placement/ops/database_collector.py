"""Collects the metrics of inventories, allocations and the schema revision, which the exporter reads.

The queries run in threads, at most once per interval. A scrape waits a limited time for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement import release
from placement.cache.refresh import ProviderCache
from placement.db import migration, tables
from placement.db.api import Database
from placement.db.health import TimedCheck
from placement.ops.background_query import BackgroundQuery, plan_query, refresh
from placement.ops.reports import capacity_report
from placement.ops.reports.capacity_report import Summary
from placement.ops.reports.tree_filter import FULL, InventoryState, TreeFilter

#: The name of a metric family, the value of a sample of it, and the values of the labels.
Sample = tuple[str, float, tuple[str, ...]]

_inventories, _allocations, _providers = tables.inventories, tables.allocations, tables.resource_providers
_members = tables.resource_provider_aggregates

#: Maximum age, in seconds, of the sums over all inventories and of the numbers of providers, consumers and allocations.
#: Reading them again takes few statements and, with 100,000 hosts, 25 ms of processor time.
_INVENTORY_INTERVAL_SECONDS = 60
#: The same for the usage mismatches, and for the consumers and allocations of aggregates, which read all allocations.
_ALLOCATION_INTERVAL_SECONDS = 600

_FIELDS = ('total', 'reserved', 'capacity', 'used', 'free', 'over_committed')
_MAX_ALLOCATABLE = 'The largest amount that one more allocation from one inventory may have.'

#: The metric families, in the order in which they are shown: name, help, labels.
_FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ('placement_build_info', 'The release, and the revision of the schema that it needs.', ('version', 'schema')),
    ('placement_database_up', 'Whether the database answered this scrape.', ()),
    ('placement_database_schema_info', 'The revision of the schema of the database.', ('schema',)),
    ('placement_resource_providers', 'Resource providers.', ()),
    ('placement_trees', 'Trees of resource providers.', ()),
    ('placement_consumers', 'Consumers.', ()),
    ('placement_allocations', 'Allocations: one per consumer, provider and class.', ()),
    ('placement_inventory_units', 'Sum over all inventories of a class.', ('resource_class', 'field')),
    ('placement_inventory_max_allocatable', _MAX_ALLOCATABLE, ('resource_class',)),
    ('placement_inventories', 'Inventories of a class, by state.', ('resource_class', 'state')),
    ('placement_usage_mismatches', 'Inventories whose recorded usage is not the sum of their allocations.', ()),
    ('placement_aggregate_resource_providers', 'Resource providers in the trees of an aggregate.', ('aggregate',)),
    ('placement_aggregate_trees', 'Trees that have a provider in an aggregate.', ('aggregate',)),
    ('placement_aggregate_consumers', 'Consumers with allocations in the trees of an aggregate.', ('aggregate',)),
    ('placement_aggregate_allocations', 'Allocations in the trees of an aggregate.', ('aggregate',)),
    (
        'placement_aggregate_inventory_units',
        'Sum over the inventories of a class in the trees of an aggregate.',
        ('aggregate', 'resource_class', 'field'),
    ),
    ('placement_aggregate_inventory_max_allocatable', _MAX_ALLOCATABLE, ('aggregate', 'resource_class')),
    (
        'placement_tolerated_failures',
        'Hosts that may fail together: any that many; 0 if the load of one does not fit on the others.',
        (),
    ),
    ('placement_hosts_not_evacuable', 'Hosts whose load does not fit on the others if they fail.', ()),
    (
        'placement_collector_last_success_timestamp_seconds',
        'When a collector last read the database; 0 for never.',
        ('collector',),
    ),
)


class DatabaseCollector(Collector):
    """Reads inventories and allocations for a scrape, each if its interval is over.

    :param provider_cache: refreshed when inventories are read. It may be shared.
    :param options: the configuration group ``metrics``.
    :param check: checks whether the database responds. It may be shared.
    """

    def __init__(self, db: Database, provider_cache: ProviderCache, options: Any, check: TimedCheck) -> None:
        uuids = sorted({uuid.lower() for uuid in options.aggregates})
        self._check = check
        self._queries: tuple[BackgroundQuery[list[Sample]], ...] = (
            BackgroundQuery(
                'inventory', lambda: inventory_samples(db, provider_cache, uuids), _INVENTORY_INTERVAL_SECONDS
            ),
            BackgroundQuery('allocation', lambda: allocation_samples(db, uuids), _ALLOCATION_INTERVAL_SECONDS),
        )
        #: The check of failing hosts, which the page shows.
        self.plan = plan_query(db, options)

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the families without samples, so that registering the collector does not read the database."""
        return [GaugeMetricFamily(name, text, labels=labels) for name, text, labels in _FAMILIES]

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the families with the latest values. The values stay while the database is unavailable.

        This never raises an exception, because the other metrics are needed most while the database does not work.
        """
        queries: tuple[BackgroundQuery[Any], ...] = (*self._queries, self.plan)
        is_up = self._check.problem() is None
        if is_up:
            refresh(queries)
        samples: list[Sample] = [
            ('placement_build_info', 1, (release(), migration.head())),
            ('placement_database_up', is_up, ()),
        ]
        for query in queries:
            if query.is_enabled:
                name = 'placement_collector_last_success_timestamp_seconds'
                samples.append((name, query.succeeded_at, (query.name,)))
        for sample_query in self._queries:
            samples += sample_query.result or ()
        if (report := self.plan.result) is not None:
            samples += [
                ('placement_tolerated_failures', report['tolerated_failures'], ()),
                ('placement_hosts_not_evacuable', report['not_evacuable'], ()),
            ]
        families = {family.name: family for family in self.describe()}
        for name, value, labels in samples:
            families[name].add_metric(labels, value)
        return families.values()


# What the queries read ---------------------------------------------------------------------------------------
#
# The number of statements does not depend on the number of rows.


def inventory_samples(db: Database, provider_cache: ProviderCache, aggregates: Sequence[str]) -> list[Sample]:
    """Read what takes little time: refresh the cache, sum up inventories, and count consumers and allocations.

    :param aggregates: uuids of the aggregates to report. If an aggregate does not exist, its figures are 0.
    :raises errors.DATABASE_ERRORS: the database cannot be read.
    """
    schema = migration.recorded_revision(db.engine) or 'none'
    snapshot = provider_cache.up_to_date()
    with db.reader() as tx:
        consumers, allocations = tx.execute(_COUNTS).one()
    summary = capacity_report.summary(snapshot)
    samples: list[Sample] = [
        ('placement_database_schema_info', 1, (schema,)),
        ('placement_resource_providers', summary.providers, ()),
        ('placement_trees', summary.trees, ()),
        ('placement_consumers', consumers, ()),
        ('placement_allocations', allocations, ()),
        *_class_samples('placement_inventory', summary),
    ]
    for figures in summary.classes:
        counts = {state.value: getattr(figures, f'providers_{state.value}') for state in FULL}
        counts[InventoryState.AVAILABLE.value] = figures.providers - figures.full
        for state, count in sorted(counts.items()):
            samples.append(('placement_inventories', count, (figures.resource_class, state)))
    for uuid in aggregates:
        of_aggregate = capacity_report.summary(snapshot, TreeFilter(frozenset({uuid})))
        samples += [
            ('placement_aggregate_resource_providers', of_aggregate.providers, (uuid,)),
            ('placement_aggregate_trees', of_aggregate.trees, (uuid,)),
            *_class_samples('placement_aggregate_inventory', of_aggregate, uuid),
        ]
    return samples


def _class_samples(prefix: str, summary: Summary, *labels: str) -> Iterator[Sample]:
    """Yield the sums over inventories by class, for the families whose names begin with ``prefix``."""
    for figures in summary.classes:
        of_class = (*labels, figures.resource_class)
        for field in _FIELDS:
            yield f'{prefix}_units', getattr(figures, field), (*of_class, field)
        yield f'{prefix}_max_allocatable', figures.max_allocatable, of_class


def allocation_samples(db: Database, aggregates: Sequence[str]) -> list[Sample]:
    """Read what takes long, because the database has to read all allocations.

    :param aggregates: as for ``inventory_samples``.
    :raises errors.DATABASE_ERRORS: the database cannot be read.
    """
    with db.reader() as tx:
        mismatches = int(tx.execute(_USAGE_MISMATCHES).scalar_one())
        rows = tx.execute(_AGGREGATE_ALLOCATIONS, {'wanted': aggregates}).all() if aggregates else ()
    counts = {row.uuid: (row.consumers, row.allocations) for row in rows}
    samples: list[Sample] = [('placement_usage_mismatches', mismatches, ())]
    for uuid in aggregates:
        consumers, allocations = counts.get(uuid, (0, 0))
        samples.append(('placement_aggregate_consumers', consumers, (uuid,)))
        samples.append(('placement_aggregate_allocations', allocations, (uuid,)))
    return samples


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
    sa.select(
        _trees.c.uuid,
        sa.func.count(sa.distinct(_allocations.c.consumer_id)).label('consumers'),
        sa.func.count().label('allocations'),
    )
    .join_from(_trees, _providers, _providers.c.root_provider_id == _trees.c.root_provider_id)
    .join(_allocations, _allocations.c.resource_provider_id == _providers.c.id)
    .group_by(_trees.c.uuid)
)
