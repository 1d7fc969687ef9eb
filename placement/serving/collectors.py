"""Collects the metrics that the exporter reads from the database: inventories, allocations, and the schema version."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable
from importlib import metadata
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement.db import migration
from placement.db.api import Database
from placement.reports import database_health, inventory_stats
from placement.reports.inventory_stats import AllocationStats, ClassTotals, InventoryStats
from placement.serving.background_query import BackgroundQuery, refresh

_FIELDS = ('total', 'reserved', 'capacity', 'used')
_MAX_ALLOCATABLE = 'The largest amount that one more allocation from one inventory may have.'

#: The metric families, in the order in which they are shown: name, help, labels.
_FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        'placement_build_info',
        'The release, and the version of the schema that it needs.',
        ('version', 'schema'),
    ),
    ('placement_database_up', 'Whether the database answered this scrape.', ()),
    ('placement_database_schema_info', 'The version of the schema that the database has.', ('schema',)),
    ('placement_resource_providers', 'Resource providers.', ()),
    ('placement_trees', 'Trees of resource providers.', ()),
    ('placement_consumers', 'Consumers.', ()),
    ('placement_allocations', 'Allocations: one per consumer, provider and class.', ()),
    ('placement_inventory_units', 'Sum over all inventories of a class.', ('resource_class', 'field')),
    ('placement_inventory_max_allocatable', _MAX_ALLOCATABLE, ('resource_class',)),
    ('placement_usage_mismatches', 'Inventories whose recorded usage is not the sum of their allocations.', ()),
    ('placement_aggregate_resource_providers', 'Resource providers of an aggregate.', ('aggregate',)),
    ('placement_aggregate_trees', 'Trees of an aggregate.', ('aggregate',)),
    ('placement_aggregate_consumers', 'Consumers with allocations in an aggregate.', ('aggregate',)),
    ('placement_aggregate_allocations', 'Allocations in an aggregate.', ('aggregate',)),
    (
        'placement_aggregate_inventory_units',
        'Sum over the inventories of a class in an aggregate.',
        ('aggregate', 'resource_class', 'field'),
    ),
    ('placement_aggregate_inventory_max_allocatable', _MAX_ALLOCATABLE, ('aggregate', 'resource_class')),
    ('placement_collector_last_success_timestamp_seconds', 'When a collector last read the database.', ('collector',)),
    ('placement_collector_duration_seconds', 'How long that took.', ('collector',)),
)


class _Families:
    """The metric families of one scrape, to which samples are added."""

    def __init__(self) -> None:
        self._families = {name: GaugeMetricFamily(name, text, labels=labels) for name, text, labels in _FAMILIES}

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add one sample to the family called ``name``."""
        self._families[name].add_metric(labels, value)

    def add_classes(self, prefix: str, classes: Iterable[ClassTotals], *labels: str) -> None:
        """Add the sums over inventories to the families whose names begin with ``prefix``."""
        for totals in classes:
            for field in _FIELDS:
                self.add(f'{prefix}_units', getattr(totals, field), *labels, totals.resource_class, field)
            self.add(f'{prefix}_max_allocatable', totals.largest_free, *labels, totals.resource_class)

    def all(self) -> Iterable[GaugeMetricFamily]:
        """Return the families, also those without samples."""
        return self._families.values()


class DatabaseCollector(Collector):
    """Reads inventories and allocations for a scrape, unless they were read within the intervals of the configuration.

    :param options: the configuration group ``metrics``.
    """

    def __init__(self, db: Database, options: Any) -> None:
        uuids = {uuid.lower() for uuid in options.aggregates}
        self._database = BackgroundQuery('database', functools.partial(database_health.trouble, db), 0)
        self._inventory = BackgroundQuery(
            'inventory', functools.partial(inventory_stats.read_cloud, db, uuids), options.inventory_refresh_interval
        )
        self._allocation = BackgroundQuery(
            'allocation',
            functools.partial(inventory_stats.read_allocations, db, uuids),
            options.allocation_refresh_interval,
        )

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the families without samples, so that registering the collector does not read the database."""
        return _Families().all()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the families with the latest values; without those of the database while it is unavailable.

        It never raises an exception, because the other metrics are needed most while the database does not work.
        """
        scraped_at = time.time()
        refresh((self._database, self._inventory, self._allocation))
        families = _Families()
        families.add('placement_build_info', 1, metadata.version('placement'), migration.head())
        is_up = self._database.succeeded_at >= scraped_at and self._database.result is None
        families.add('placement_database_up', is_up)
        for query in (self._inventory, self._allocation):
            if query.succeeded_at:
                families.add('placement_collector_last_success_timestamp_seconds', query.succeeded_at, query.name)
                families.add('placement_collector_duration_seconds', query.seconds, query.name)
        if is_up:
            _add_inventory_stats(families, self._inventory.result)
            _add_allocation_stats(families, self._allocation.result)
        return families.all()


def _add_inventory_stats(families: _Families, stats: InventoryStats | None) -> None:
    if stats is None:
        return
    families.add('placement_database_schema_info', 1, stats.schema)
    for name, count in stats.counts._asdict().items():
        families.add(f'placement_{name}', count)
    families.add_classes('placement_inventory', stats.classes)
    for one in stats.aggregates:
        families.add('placement_aggregate_resource_providers', one.resource_providers, one.aggregate)
        families.add('placement_aggregate_trees', one.trees, one.aggregate)
        families.add_classes('placement_aggregate_inventory', one.classes, one.aggregate)


def _add_allocation_stats(families: _Families, stats: AllocationStats | None) -> None:
    if stats is None:
        return
    families.add('placement_usage_mismatches', stats.wrong_usages)
    for one in stats.aggregates:
        families.add('placement_aggregate_consumers', one.consumers, one.aggregate)
        families.add('placement_aggregate_allocations', one.allocations, one.aggregate)
