"""The metrics that the exporter reads from the database: the state of the cloud, and the versions of the schema."""

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
_PIECE = 'The largest amount that one allocation could still take of one inventory.'

#: The metric families, in the order in which they are shown: name, help, labels.
_FAMILIES: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        'placement_build_info',
        'The version of this service, and of the schema that it works with.',
        ('version', 'schema'),
    ),
    ('placement_database_up', 'Whether the database answered this scrape.', ()),
    ('placement_database_schema_info', 'The version of the schema that the database has.', ('schema',)),
    ('placement_resource_providers', 'Resource providers.', ()),
    ('placement_trees', 'Trees of resource providers.', ()),
    ('placement_consumers', 'Consumers.', ()),
    ('placement_allocations', 'Allocations: one per consumer, provider and class.', ()),
    ('placement_inventory_units', 'Sum over all inventories of a class.', ('resource_class', 'field')),
    ('placement_inventory_largest_free', _PIECE, ('resource_class',)),
    ('placement_wrong_usages', 'Inventories whose usage is not the sum of their allocations.', ()),
    ('placement_aggregate_resource_providers', 'Resource providers of an aggregate.', ('aggregate',)),
    ('placement_aggregate_trees', 'Trees of an aggregate.', ('aggregate',)),
    ('placement_aggregate_consumers', 'Consumers with allocations in an aggregate.', ('aggregate',)),
    ('placement_aggregate_allocations', 'Allocations in an aggregate.', ('aggregate',)),
    (
        'placement_aggregate_inventory_units',
        'Sum over the inventories of a class in an aggregate.',
        ('aggregate', 'resource_class', 'field'),
    ),
    ('placement_aggregate_inventory_largest_free', _PIECE, ('aggregate', 'resource_class')),
    ('placement_reading_timestamp_seconds', 'When something was last read of the database.', ('reading',)),
    ('placement_reading_seconds', 'How long that took.', ('reading',)),
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
            self.add(f'{prefix}_largest_free', totals.largest_free, *labels, totals.resource_class)

    def all(self) -> Iterable[GaugeMetricFamily]:
        """The families, also those without samples."""
        return self._families.values()


class DatabaseCollector(Collector):
    """Reads the state of the cloud for a scrape, unless it was read within the intervals of the configuration.

    :param options: the configuration group ``metrics``.
    """

    def __init__(self, db: Database, options: Any) -> None:
        uuids = {uuid.lower() for uuid in options.aggregates}
        self._up = BackgroundQuery('database', functools.partial(database_health.trouble, db), 0)
        self._cloud = BackgroundQuery(
            'cloud', functools.partial(inventory_stats.read_cloud, db, uuids), options.cloud_interval
        )
        self._allocations = BackgroundQuery(
            'allocations',
            functools.partial(inventory_stats.read_allocations, db, uuids),
            options.allocations_interval,
        )

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """The families without samples, so that registering the collector does not read the database."""
        return _Families().all()

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """The families with the latest values; without those of the database while it cannot be used.

        It never raises an exception, because the other metrics are needed most while the database does not work.
        """
        scraped_at = time.time()
        refresh((self._up, self._cloud, self._allocations))
        families = _Families()
        families.add('placement_build_info', 1, metadata.version('placement'), migration.head())
        is_up = self._up.read_at >= scraped_at and self._up.value is None
        families.add('placement_database_up', is_up)
        for reading in (self._cloud, self._allocations):
            if reading.read_at:
                families.add('placement_reading_timestamp_seconds', reading.read_at, reading.name)
                families.add('placement_reading_seconds', reading.seconds, reading.name)
        if is_up:
            _add_cloud(families, self._cloud.value)
            _add_allocations(families, self._allocations.value)
        return families.all()


def _add_cloud(families: _Families, cloud: InventoryStats | None) -> None:
    if cloud is None:
        return
    families.add('placement_database_schema_info', 1, cloud.schema)
    for name, count in cloud.counts._asdict().items():
        families.add(f'placement_{name}', count)
    families.add_classes('placement_inventory', cloud.classes)
    for one in cloud.aggregates:
        families.add('placement_aggregate_resource_providers', one.resource_providers, one.aggregate)
        families.add('placement_aggregate_trees', one.trees, one.aggregate)
        families.add_classes('placement_aggregate_inventory', one.classes, one.aggregate)


def _add_allocations(families: _Families, found: AllocationStats | None) -> None:
    if found is None:
        return
    families.add('placement_wrong_usages', found.wrong_usages)
    for one in found.aggregates:
        families.add('placement_aggregate_consumers', one.consumers, one.aggregate)
        families.add('placement_aggregate_allocations', one.allocations, one.aggregate)
