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
from placement.observability.metrics import REFUSALS, RETRIES, Metrics
from placement.observability.saturation import Saturation

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
COUNTS = (0, 1, 10, 100, 1000, 10000, 100000)


class _ResponseMetrics(NamedTuple):
    """The metrics of responses with one route, method, microversion and status."""

    counter: Counter
    seconds: Histogram
    parts: Mapping[str, Counter]


class PrometheusMetrics(Metrics):
    """Counters and histograms in ``registry``; see doc/observability.md for what each one means."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._spent = timing.PhaseTimes()
        self._load = Saturation(self.registry)
        #: By route, method, microversion and status. Looking them up in the registry takes as long as counting.
        self._responses: dict[tuple[str, str, str, int], _ResponseMetrics] = {}
        self._add_requests()
        self._add_claims()
        self._add_searches()
        self._add_mirror()

    def _add_requests(self) -> None:
        self._requests = Counter(
            'placement_requests',
            'Requests answered.',
            ('route', 'method', 'microversion', 'status'),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            'placement_request_seconds',
            'Time to answer a request.',
            ('route', 'method'),
            registry=self.registry,
            buckets=SECONDS,
        )
        self._request_parts = Counter(
            'placement_request_part_seconds',
            'What the time of requests was spent on.',
            ('route', 'method', 'part'),
            registry=self.registry,
        )
        self._errors = Counter(
            'placement_server_errors',
            'Requests answered with a status of 500 or above.',
            ('route', 'status'),
            registry=self.registry,
        )

    def _add_claims(self) -> None:
        self._accepted = Counter('placement_claims_accepted', 'Claims granted.', registry=self.registry)
        self._refused = Counter('placement_claims_refused', 'Claims refused.', ('reason',), registry=self.registry)
        self._retries = Counter(
            'placement_transaction_retries', 'Transactions begun again.', ('reason',), registry=self.registry
        )
        for _, reason in REFUSALS:
            self._refused.labels(reason)
        for reason in RETRIES:
            self._retries.labels(reason)

    def _add_searches(self) -> None:
        self._candidates = Histogram(
            'placement_candidates', 'Candidates returned by a search.', registry=self.registry, buckets=COUNTS
        )
        self._search_seconds = Histogram(
            'placement_candidates_search_seconds', 'Time of a search.', registry=self.registry, buckets=SECONDS
        )
        self._bounded = Counter(
            'placement_candidates_bounded', 'Searches cut short.', ('bound',), registry=self.registry
        )

    def _add_mirror(self) -> None:
        self._mirror_providers = Gauge(
            'placement_mirror_providers',
            'Resource providers in the mirror.',
            registry=self.registry,
            multiprocess_mode='mostrecent',
        )
        self._mirror_checked = Gauge(
            'placement_mirror_checked_timestamp_seconds',
            'When a mirror was last held against the database.',
            registry=self.registry,
            multiprocess_mode='max',
        )
        self._mirror_changes = Counter(
            'placement_mirror_changes', 'Resource providers read to bring mirrors forward.', registry=self.registry
        )
        self._mirror_rebuilds = Counter('placement_mirror_rebuilds', 'Mirrors read as a whole.', registry=self.registry)
        self._mirror_seconds = Histogram(
            'placement_mirror_seconds',
            'Time to bring a mirror forward, or to build it.',
            registry=self.registry,
            buckets=SECONDS,
        )

    def expect(self, operations: Iterable[tuple[str, str]], bounds: Iterable[str]) -> None:
        for route, method in operations:
            self._request_seconds.labels(route, method)
            for part in timing.PARTS:
                self._request_parts.labels(route, method, part)
            for status in ('500', '503'):
                self._errors.labels(route, status)
        for bound in bounds:
            self._bounded.labels(bound)

    def request_begun(self) -> None:
        self._spent.clear()
        self._load.begin()

    def request_answered(self, route: str, method: str, microversion: str, status: int, seconds: float) -> None:
        self._load.end()
        key = (route, method, microversion, status)
        response = self._responses.get(key)
        if response is None:
            response = self._responses[key] = self._metrics_of(*key)
        response.counter.inc()
        response.seconds.observe(seconds)
        for part, spent in self._spent.seconds.items():
            if spent:
                response.parts[part].inc(spent)
        if status >= 500:
            self._errors.labels(route, str(status)).inc()

    def _metrics_of(self, route: str, method: str, microversion: str, status: int) -> _ResponseMetrics:
        return _ResponseMetrics(
            self._requests.labels(route, method, microversion, str(status)),
            self._request_seconds.labels(route, method),
            {part: self._request_parts.labels(route, method, part) for part in timing.PARTS},
        )

    def threads(self, count: int) -> None:
        self._load.threads(count)

    def requests_waiting(self, count: int) -> None:
        self._load.requests_waiting(count)

    def watch(self, pool: str, engine: sa.Engine, limit: int) -> None:
        timing.watch_statements(engine, self._spent)
        self._load.watch(pool, engine, limit)

    def connecting(self, pool: str) -> contextlib.AbstractContextManager[None]:
        return timing.Span(self._spent, timing.CONNECTION, self._load.waiting[pool])

    def spending(self, part: str) -> contextlib.AbstractContextManager[None]:
        return timing.Span(self._spent, part)

    def claim_accepted(self) -> None:
        self._accepted.inc()

    def claim_refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def retried(self, reason: str) -> None:
        self._retries.labels(reason).inc()

    def candidates(self, count: int, seconds: float) -> None:
        self._candidates.observe(count)
        self._search_seconds.observe(seconds)

    def search_bounded(self, bound: str) -> None:
        self._bounded.labels(bound).inc()

    def mirror_checked(self) -> None:
        self._mirror_checked.set_to_current_time()

    def mirrored(self, providers: int, changes: int, seconds: float, rebuilt: bool) -> None:
        self._mirror_providers.set(providers)
        self._mirror_changes.inc(changes)
        self._mirror_rebuilds.inc(rebuilt)
        self._mirror_seconds.observe(seconds)
