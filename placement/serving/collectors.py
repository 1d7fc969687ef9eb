"""Collects the metrics of inventories, allocations and the schema version, which the exporter reads.

Their queries run in threads, at most once in an interval, and a scrape waits a limited time for them.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable
from importlib import metadata
from typing import Any, Generic, TypeVar

from oslo_log import log
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement.cache.refresh import ProviderCache
from placement.db import errors, migration
from placement.db.api import Database
from placement.reports import database_health, inventory_stats
from placement.reports.capacity import ClassFigures
from placement.reports.inventory_stats import AllocationStats, InventoryStats
from placement.reports.tree_filter import FULL, InventoryState

LOG = log.getLogger(__name__)

T = TypeVar('T')

#: How long a scrape waits for the queries. By default Prometheus cancels a scrape after ten seconds.
MAX_WAIT_SECONDS = 2.0

_FIELDS = ('total', 'reserved', 'capacity', 'used', 'free', 'over_committed')
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

    def add_classes(self, prefix: str, classes: Iterable[ClassFigures], *labels: str) -> None:
        """Add the sums over inventories to the families whose names begin with ``prefix``."""
        for figures in classes:
            for field in _FIELDS:
                self.add(f'{prefix}_units', getattr(figures, field), *labels, figures.resource_class, field)
            self.add(f'{prefix}_max_allocatable', figures.max_allocatable, *labels, figures.resource_class)

    def all(self) -> Iterable[GaugeMetricFamily]:
        """Return the families, also those without samples."""
        return self._families.values()


class BackgroundQuery(Generic[T]):
    """Keeps the result of a query, and runs it again in a thread when the result is older than an interval.

    :param name: of the collector, for the log and the metrics.
    :param query: returns the result. If it raises an exception there is no result until it is called again; those of
        ``errors.DATABASE_ERRORS`` are expected and not logged.
    :param interval: seconds from one call of ``query`` to the next; below zero for no call at all.
    """

    def __init__(self, name: str, query: Callable[[], T], interval: float) -> None:
        self.name = name
        self.result: T | None = None
        #: When the query last succeeded, in seconds since 1970, and how many seconds it took; 0 before the first time.
        self.succeeded_at = self.seconds = 0.0
        self._query = query
        self._interval = interval
        self._lock = threading.Lock()
        self._started = -float('inf')
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run the query in a thread if the interval is over and the query is not running."""
        with self._lock:
            if self._interval < 0 or self._thread is not None:
                return
            if time.monotonic() - self._started >= self._interval:
                self._started = time.monotonic()
                self._thread = threading.Thread(target=self._run, name=f'query {self.name}', daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended, but at most so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(max(seconds, 0))

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self.result = self._query()
            self.succeeded_at, self.seconds = time.time(), time.monotonic() - started
        except errors.DATABASE_ERRORS:
            self.result = None
        except Exception:
            self.result = None
            LOG.exception('Collector %s failed', self.name)
        finally:
            self._thread = None


def refresh(queries: Collection[BackgroundQuery[Any]]) -> None:
    """Run those queries at the same time whose interval is over, and wait ``MAX_WAIT_SECONDS`` at most."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    for query in queries:
        query.start()
    for query in queries:
        query.wait(deadline - time.monotonic())


class DatabaseCollector(Collector):
    """Reads inventories and allocations for a scrape, unless they were read within the intervals of the configuration.

    :param provider_cache: refreshed when inventories are read. It may be shared.
    :param options: the configuration group ``metrics``.
    """

    def __init__(self, db: Database, provider_cache: ProviderCache, options: Any) -> None:
        uuids = {uuid.lower() for uuid in options.aggregates}
        self._database = BackgroundQuery('database', functools.partial(database_health.trouble, db), 0)
        self._inventory = BackgroundQuery(
            'inventory',
            functools.partial(inventory_stats.read_inventories, db, provider_cache, uuids),
            options.inventory_refresh_interval,
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
    families.add('placement_resource_providers', stats.summary.providers)
    families.add('placement_trees', stats.summary.trees)
    families.add('placement_consumers', stats.consumers)
    families.add('placement_allocations', stats.allocations)
    families.add_classes('placement_inventory', stats.summary.classes)
    for figures in stats.summary.classes:
        counts = {state.value: getattr(figures, f'providers_{state.value}') for state in FULL}
        counts[InventoryState.AVAILABLE.value] = figures.providers - figures.full
        for state, count in sorted(counts.items()):
            families.add('placement_inventories', count, figures.resource_class, state)
    for one in stats.aggregates:
        families.add('placement_aggregate_resource_providers', one.summary.providers, one.aggregate)
        families.add('placement_aggregate_trees', one.summary.trees, one.aggregate)
        families.add_classes('placement_aggregate_inventory', one.summary.classes, one.aggregate)


def _add_allocation_stats(families: _Families, stats: AllocationStats | None) -> None:
    if stats is None:
        return
    families.add('placement_usage_mismatches', stats.usage_mismatches)
    for one in stats.aggregates:
        families.add('placement_aggregate_consumers', one.consumers, one.aggregate)
        families.add('placement_aggregate_allocations', one.allocations, one.aggregate)
