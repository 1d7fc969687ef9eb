"""The metrics of one application, in their own Prometheus registry.

If ``PROMETHEUS_MULTIPROC_DIR`` is in the environment when this is imported, each process keeps the values in files in
this directory, and ``processes.registry`` adds them up. Then a process can have only one application.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pathlib
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, cast

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, values
from sqlalchemy import event

from placement import exception
from placement.observability import ACCEPTED, CONNECTION, DATABASE, PHASES
from placement.observability.processes import ProcessNumber

# The library has no other way to name its files. This one was read in prometheus-client 0.21.1 to 0.26.0.
if directory := os.environ.get('PROMETHEUS_MULTIPROC_DIR'):
    values.ValueClass = values.MultiProcessValue(ProcessNumber(pathlib.Path(directory)))  # type: ignore[no-untyped-call]

DURATION_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CANDIDATE_COUNT_BUCKETS = (0, 1, 10, 100, 1000, 10000, 100000)
#: The label of the pool of connections.
_POOL = 'database'
#: A thread sets the gauges of threads and connections at this interval, so that requests do not spend time on them.
UPDATE_INTERVAL_SECONDS = 1.0

#: The ``result`` of a claim that was rejected or may have been made, by exception. The first matching class counts.
CLAIM_REJECTIONS: tuple[tuple[type[exception.PlacementError], str], ...] = (
    (exception.AllocationCapacityExceeded, 'capacity'),
    (exception.AllocationConstraintsViolated, 'units'),
    (exception.InvalidAllocationInventory, 'no_inventory'),
    (exception.AllocationProviderNotFound, 'no_provider'),
    (exception.ResourceClassNotFound, 'no_resource_class'),
    (exception.ConsumerGenerationConflict, 'consumer_generation'),
    (exception.ReshapeGenerationConflict, 'provider_generation'),
    (exception.InventoryInUse, 'inventory_in_use'),
    (exception.ConcurrentUpdate, 'concurrent_update'),
    (exception.CommitInDoubt, 'commit_unknown'),
)

#: The usual values of the label for the exception after which a transaction is retried. Other values are possible.
RETRY_REASONS = ('DBDeadlock', 'DBReferenceError', 'RetryTransaction', 'SlotTaken')


class PhaseTimes(threading.local):
    """The seconds that the request of this thread has spent so far, by phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        #: The ``time.perf_counter`` at which the current statement was sent; 0 between statements.
        self.sent_at = 0.0

    def clear(self) -> None:
        for phase in PHASES:
            self.seconds[phase] = 0.0

    def add_time_since(self, phase: str, started: float) -> None:
        """Add the time since ``started``, a value of ``time.perf_counter``."""
        self.seconds[phase] += time.perf_counter() - started


class ThreadCount:
    """A number of threads. Any thread may change it."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def change_by(self, number: int) -> None:
        """Add ``number``, which may be negative."""
        with self._lock:
            self.count += number


class Span:
    """A context manager that adds the time of its block to ``phase``. In the block, ``threads`` counts the thread."""

    def __init__(self, times: PhaseTimes, phase: str, threads: ThreadCount | None = None) -> None:
        self._times = times
        self._phase = phase
        self._threads = threads
        self._started = 0.0

    def __enter__(self) -> None:
        if self._threads is not None:
            self._threads.change_by(1)
        self._started = time.perf_counter()

    def __exit__(self, *_error: object) -> None:
        self._times.add_time_since(self._phase, self._started)
        if self._threads is not None:
            self._threads.change_by(-1)


class Metrics:
    """Counts events in ``registry``. doc/observability.md explains each metric.

    Whoever notices an event counts it with the metric itself, if there is one, and otherwise with a method.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        #: The number of threads that wait for a connection.
        self.waiting_threads = ThreadCount()
        self._busy_threads = ThreadCount()
        self._engine: sa.Engine | None = None
        self._max_connections = 0.0
        self._updating = False
        self._lock = threading.Lock()
        self._phase_times = PhaseTimes()

        counter = functools.partial(Counter, registry=self.registry)
        histogram = functools.partial(Histogram, registry=self.registry, buckets=DURATION_BUCKETS_SECONDS)
        self._requests = counter(
            'placement_requests', 'Requests answered.', ('route', 'method', 'microversion', 'status')
        )
        self._request_duration = histogram(
            'placement_request_duration_seconds', 'Time to answer a request.', ('route', 'method')
        )
        self._request_phases = counter(
            'placement_request_phase_seconds', 'Time of requests by phase.', ('route', 'method', 'phase')
        )
        self._errors = counter(
            'placement_server_errors', 'Requests answered with a status of 500 or above.', ('route', 'status')
        )
        self.tokens_not_cached = counter(
            'placement_tokens_not_cached', 'Tokens that Keystone validated and memcached did not keep.'
        )
        self._claims = counter('placement_claims', 'Claims, by result.', ('result',))
        self.transaction_retries = counter('placement_transaction_retries', 'Retries of transactions.', ('reason',))
        self._candidates_returned = histogram(
            'placement_allocation_candidates_returned',
            'Candidates returned by a search.',
            buckets=CANDIDATE_COUNT_BUCKETS,
        )
        self._search_duration = histogram(
            'placement_allocation_candidates_duration_seconds', 'Time of a search for candidates.'
        )
        self.searches_truncated = counter(
            'placement_allocation_candidates_truncated', 'Searches for candidates that reached a limit.', ('limit',)
        )
        self.explanations_dropped = counter(
            'placement_explanations_dropped', 'Searches without candidates that the log does not explain.'
        )
        self._cache_updates = counter(
            'placement_cache_updates', 'Changed resource providers read by refreshes of caches.'
        )
        self._cache_reloads = counter('placement_cache_reloads', 'Refreshes of caches that read all tables again.')
        self._refresh_duration = histogram('placement_cache_refresh_duration_seconds', 'Time to refresh a cache.')
        self._create_gauges()

    def _create_gauges(self) -> None:
        # By default a scrape shows the sum over all living processes.
        gauge = functools.partial(Gauge, registry=self.registry, multiprocess_mode='livesum')
        self._cache_providers = gauge(
            'placement_cache_providers', 'Resource providers in the cache.', multiprocess_mode='mostrecent'
        )
        self.cache_checked = gauge(
            'placement_cache_checked_timestamp_seconds',
            'When a cache was last compared with the change log.',
            multiprocess_mode='max',
        )
        self.config_reload_success = gauge(
            'placement_config_reload_success',
            'Whether the configuration was valid when it was last loaded.',
            multiprocess_mode='mostrecent',
        )
        # Each process notices only by its own changes, so the last one to notice decides.
        self.read_only = gauge(
            'placement_database_read_only',
            'Whether the database rejects changes, as far as the processes know.',
            multiprocess_mode='mostrecent',
        )
        self.threads = gauge('placement_threads', 'Threads that process requests.')
        self._threads_busy = gauge('placement_threads_busy', 'Threads that are processing a request.')
        self._connections = gauge('placement_database_connections', 'Connections to the database.', ('pool', 'field'))
        self._connections_waiting = gauge(
            'placement_database_connections_waiting', 'Threads that wait for a connection to the database.', ('pool',)
        )

    def initialize(self, operations: Iterable[tuple[str, str]], limits: Iterable[str]) -> None:
        """Create counters with the value 0. Otherwise they would not exist before the first event.

        :param operations: pairs of declared path and method.
        :param limits: the values of ``Limit``.
        """
        for route, method in operations:
            self._request_duration.labels(route, method)
            for phase in PHASES:
                self._request_phases.labels(route, method, phase)
            for status in ('500', '503'):
                self._errors.labels(route, status)
        for limit in limits:
            self.searches_truncated.labels(limit)
        for result in (ACCEPTED, *(result for _, result in CLAIM_REJECTIONS)):
            self._claims.labels(result)
        for reason in RETRY_REASONS:
            self.transaction_retries.labels(reason)
        self.read_only.set(False)

    def request_started(self) -> None:
        """Count the start of a request in this thread."""
        self._phase_times.clear()
        self._busy_threads.change_by(1)
        if self._updating:
            return
        # The first request starts the thread, because a forked process does not have threads from before the fork.
        # If no thread can be started, this request is processed all the same, and the next one tries again.
        with self._lock, contextlib.suppress(RuntimeError):
            if not self._updating:
                threading.Thread(target=_update, args=(weakref.ref(self),), name='saturation', daemon=True).start()
                self._updating = True

    def request_finished(self, route: str, method: str, microversion: str, status: int, seconds: float) -> None:
        """Count the end of a request in this thread. ``route`` is the declared path, not the path in the URL."""
        self._busy_threads.change_by(-1)
        self._requests.labels(route, method, microversion, str(status)).inc()
        self._request_duration.labels(route, method).observe(seconds)
        for phase, phase_seconds in self._phase_times.seconds.items():
            if phase_seconds:
                self._request_phases.labels(route, method, phase).inc(phase_seconds)
        if status >= 500:
            self._errors.labels(route, str(status)).inc()

    def instrument(self, engine: sa.Engine, limit: float) -> None:
        """Measure the connections of ``engine``, and the time that its statements take, from now on.

        :param limit: the maximum number of connections that it opens; infinity if there is none.
        """
        self._engine, self._max_connections = engine, limit
        times = self._phase_times

        def start(*_arguments: Any) -> None:
            times.sent_at = time.perf_counter()

        def end(*_arguments: Any) -> None:
            if times.sent_at:
                times.add_time_since(DATABASE, times.sent_at)
                times.sent_at = 0.0

        event.listen(engine, 'before_cursor_execute', start)
        event.listen(engine, 'after_cursor_execute', end)
        # After a failed statement there is a rollback, but no after_cursor_execute.
        event.listen(engine, 'rollback', end)

    def update_saturation(self) -> None:
        """Set the gauges of busy threads and connections to the current values."""
        self._threads_busy.set(self._busy_threads.count)
        if self._engine is not None:
            connections = cast('sa.QueuePool', self._engine.pool)
            in_use = connections.checkedout()
            self._connections.labels(_POOL, 'in_use').set(in_use)
            self._connections.labels(_POOL, 'open').set(in_use + connections.checkedin())
            self._connections.labels(_POOL, 'limit').set(self._max_connections)
            self._connections_waiting.labels(_POOL).set(self.waiting_threads.count)

    def connection_wait(self) -> contextlib.AbstractContextManager[None]:
        """Return a context manager for a block that waits for a connection."""
        return Span(self._phase_times, CONNECTION, self.waiting_threads)

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return a context manager for a block whose time belongs to the phase ``name``, one of ``PHASES``."""
        return Span(self._phase_times, name)

    @contextlib.contextmanager
    def claim(self) -> Iterator[None]:
        """Count the claim made in the block: as accepted, or as rejected by an exception of ``CLAIM_REJECTIONS``."""
        try:
            yield
        except exception.PlacementError as error:
            for kind, result in CLAIM_REJECTIONS:
                if isinstance(error, kind):
                    self._claims.labels(result).inc()
                    break
            raise
        self._claims.labels(ACCEPTED).inc()

    def search_finished(self, candidates: int, seconds: float) -> None:
        """Count a search that returned ``candidates`` allocation candidates and took ``seconds``."""
        self._candidates_returned.observe(candidates)
        self._search_duration.observe(seconds)

    def cache_refreshed(self, providers: int, changes: int, seconds: float, reloaded: bool) -> None:
        """Count a refresh of the provider cache of this process.

        :param providers: the number of its providers.
        :param changes: the number of providers that were read because of changes.
        :param seconds: the duration of the refresh.
        :param reloaded: whether all tables were read again.
        """
        self._cache_providers.set(providers)
        self._cache_updates.inc(changes)
        self._cache_reloads.inc(reloaded)
        self._refresh_duration.observe(seconds)


def _update(reference: weakref.ref[Metrics]) -> None:
    """Update the gauges periodically, until only this thread refers to the metrics."""
    while (metrics := reference()) is not None:
        metrics.update_saturation()
        del metrics
        time.sleep(UPDATE_INTERVAL_SECONDS)
