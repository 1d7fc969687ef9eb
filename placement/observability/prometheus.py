"""The metrics of one application, in a Prometheus registry of their own.

If ``PROMETHEUS_MULTIPROC_DIR`` is in the environment when this is imported, each process keeps the values in files in
that directory, and ``shared.registry`` adds them up. A process can have only one application then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from placement.observability import timing
from placement.observability.metrics import ACCEPTED, CLAIM_REJECTIONS, RETRY_REASONS, Metrics
from placement.observability.saturation import Saturation

DURATION_BUCKETS_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
CANDIDATE_COUNT_BUCKETS = (0, 1, 10, 100, 1000, 10000, 100000)


class _ResponseMetrics(NamedTuple):
    """The metrics of responses with one route, method, microversion and status."""

    counter: Counter
    duration: Histogram
    phases: Mapping[str, Counter]


class PrometheusMetrics(Metrics):
    """Counters and histograms in ``registry``; see doc/observability.md for what each one means."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._phase_times = timing.PhaseTimes()
        self._saturation = Saturation(self.registry)
        #: By route, method, microversion and status. Looking them up in the registry takes as long as counting.
        self._responses: dict[tuple[str, str, str, int], _ResponseMetrics] = {}

        self._requests = self._counter(
            'placement_requests', 'Requests answered.', 'route', 'method', 'microversion', 'status'
        )
        self._request_duration = self._duration(
            'placement_request_duration_seconds', 'Time to answer a request.', 'route', 'method'
        )
        self._request_phases = self._counter(
            'placement_request_phase_seconds', 'Time of requests by phase.', 'route', 'method', 'phase'
        )
        self._errors = self._counter(
            'placement_server_errors', 'Requests answered with a status of 500 or above.', 'route', 'status'
        )
        self._claims = self._counter('placement_claims', 'Claims, by result.', 'result')
        self._retries = self._counter('placement_transaction_retries', 'Retries of transactions.', 'reason')
        self._candidates_returned = Histogram(
            'placement_allocation_candidates_returned',
            'Candidates returned by a search.',
            registry=self.registry,
            buckets=CANDIDATE_COUNT_BUCKETS,
        )
        self._search_duration = self._duration(
            'placement_allocation_candidates_duration_seconds', 'Time of a search for candidates.'
        )
        self._searches_truncated = self._counter(
            'placement_allocation_candidates_truncated', 'Searches for candidates that reached a limit.', 'limit'
        )
        self._cache_providers = Gauge(
            'placement_cache_providers',
            'Resource providers in the cache.',
            registry=self.registry,
            multiprocess_mode='mostrecent',
        )
        self._cache_checked = Gauge(
            'placement_cache_checked_timestamp_seconds',
            'When a cache was last compared with the change log.',
            registry=self.registry,
            multiprocess_mode='max',
        )
        self._cache_updates = self._counter(
            'placement_cache_updates', 'Changed resource providers that refreshes of caches read.'
        )
        self._cache_reloads = self._counter('placement_cache_reloads', 'Refreshes of caches that read all tables.')
        self._refresh_duration = self._duration('placement_cache_refresh_duration_seconds', 'Time to refresh a cache.')

        for result in (ACCEPTED, *(result for _, result in CLAIM_REJECTIONS)):
            self._claims.labels(result)
        for reason in RETRY_REASONS:
            self._retries.labels(reason)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self.registry)

    def _duration(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, registry=self.registry, buckets=DURATION_BUCKETS_SECONDS)

    def initialize(self, operations: Iterable[tuple[str, str]], limits: Iterable[str]) -> None:
        for route, method in operations:
            self._request_duration.labels(route, method)
            for phase in timing.PHASES:
                self._request_phases.labels(route, method, phase)
            for status in ('500', '503'):
                self._errors.labels(route, status)
        for limit in limits:
            self._searches_truncated.labels(limit)

    def request_started(self) -> None:
        self._phase_times.clear()
        self._saturation.request_started()

    def request_finished(self, route: str, method: str, microversion: str, status: int, seconds: float) -> None:
        self._saturation.request_finished()
        key = (route, method, microversion, status)
        response = self._responses.get(key)
        if response is None:
            response = self._responses[key] = _ResponseMetrics(
                self._requests.labels(route, method, microversion, str(status)),
                self._request_duration.labels(route, method),
                {phase: self._request_phases.labels(route, method, phase) for phase in timing.PHASES},
            )
        response.counter.inc()
        response.duration.observe(seconds)
        for phase, phase_seconds in self._phase_times.seconds.items():
            if phase_seconds:
                response.phases[phase].inc(phase_seconds)
        if status >= 500:
            self._errors.labels(route, str(status)).inc()

    def set_threads(self, count: int) -> None:
        self._saturation.set_threads(count)

    def set_requests_waiting(self, count: int) -> None:
        self._saturation.set_requests_waiting(count)

    def instrument(self, pool: str, engine: sa.Engine, limit: int) -> None:
        timing.time_statements(engine, self._phase_times)
        self._saturation.instrument(pool, engine, limit)

    def connection_wait(self, pool: str) -> contextlib.AbstractContextManager[None]:
        return timing.Span(self._phase_times, timing.CONNECTION, self._saturation.waiting_threads[pool])

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        return timing.Span(self._phase_times, name)

    def claim_finished(self, result: str) -> None:
        self._claims.labels(result).inc()

    def transaction_retried(self, reason: str) -> None:
        self._retries.labels(reason).inc()

    def search_finished(self, candidates: int, seconds: float) -> None:
        self._candidates_returned.observe(candidates)
        self._search_duration.observe(seconds)

    def search_truncated(self, limit: str) -> None:
        self._searches_truncated.labels(limit).inc()

    def cache_checked(self) -> None:
        self._cache_checked.set_to_current_time()

    def cache_refreshed(self, providers: int, changes: int, seconds: float, reloaded: bool) -> None:
        self._cache_providers.set(providers)
        self._cache_updates.inc(changes)
        self._cache_reloads.inc(reloaded)
        self._refresh_duration.observe(seconds)
