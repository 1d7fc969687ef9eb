"""The activity of the service in the last minutes: the difference between two samples of its metrics."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from placement.observability.metrics import ACCEPTED

if TYPE_CHECKING:
    # The first import of the library reads PROMETHEUS_MULTIPROC_DIR, so this module does not import it at run time.
    from prometheus_client import CollectorRegistry

SAMPLE_INTERVAL_SECONDS = 15.0
WINDOW_SECONDS = 300.0

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True)
class Route:
    """The requests for one route and method: their number, how many of them failed, and how many seconds they took.

    ``mean`` is the average time. ``slowest_tenth`` is the upper bound of the histogram bucket that the slowest tenth of
    the requests begins in.
    """

    route: str
    method: str
    requests: int
    client_errors: int
    server_errors: int
    mean: float
    slowest_tenth: float


@dataclass(frozen=True)
class Activity:
    """The counts of the last ``seconds``.

    ``cache_checked`` is when any process last compared its provider cache with the change log, in seconds since 1970.
    """

    seconds: float
    routes: Sequence[Route] = field(default_factory=list)
    claims_accepted: int = 0
    claims_rejected: Mapping[str, int] = field(default_factory=dict)
    transactions_retried: Mapping[str, int] = field(default_factory=dict)
    searches: int = 0
    empty_searches: int = 0
    cache_checked: float | None = None


class SlidingWindow:
    """Keeps samples of ``registry`` from the last minutes."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: collections.deque[tuple[float, Samples]] = collections.deque()

    def sample(self) -> None:
        """Take a sample if the last one is ``SAMPLE_INTERVAL_SECONDS`` old. Call it at least that often."""
        with self._lock:
            now = self._clock()
            if self._kept and now - self._kept[-1][0] < SAMPLE_INTERVAL_SECONDS:
                return
            self._kept.append((now, _samples(self._registry)))
            while now - self._kept[0][0] > WINDOW_SECONDS:
                self._kept.popleft()

    def activity(self) -> Activity:
        """Return the counts since the oldest sample; without any sample, since the start of the service."""
        with self._lock:
            now, current = self._clock(), _samples(self._registry)
            started, before = self._kept[0] if self._kept else (now, {})
        return _Difference(before, current).activity(now - started)


def _samples(registry: CollectorRegistry) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith('placement_')
    }


class _Difference:
    """The growth of each value. One that has become smaller was reset to 0 by a restart of the service."""

    def __init__(self, before: Samples, current: Samples) -> None:
        self._current = current
        self._growth = {
            key: value - before.get(key, 0.0) if value >= before.get(key, 0.0) else value
            for key, value in current.items()
        }

    def activity(self, seconds: float) -> Activity:
        checked = self._current.get(('placement_cache_checked_timestamp_seconds', ()))
        claims = self._by('placement_claims_total', 'result')
        searches = sum(self._values('placement_allocation_candidates_returned_count').values())
        return Activity(
            seconds,
            sorted(self._routes(), key=lambda one: (-one.requests, one.route, one.method)),
            claims.pop(ACCEPTED, 0),
            claims,
            self._by('placement_transaction_retries_total', 'reason'),
            int(searches),
            int(
                sum(
                    value
                    for labels, value in self._values('placement_allocation_candidates_returned_bucket').items()
                    if ('le', '0.0') in labels
                )
            ),
            checked,
        )

    def _values(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        return {labels: value for (own, labels), value in self._growth.items() if own == name}

    def _by(self, name: str, label: str) -> dict[str, int]:
        found: collections.Counter[str] = collections.Counter()
        for labels, value in self._values(name).items():
            found[dict(labels)[label]] += int(value)
        return {key: count for key, count in sorted(found.items()) if count}

    def _routes(self) -> Iterator[Route]:
        answers: dict[tuple[str, str], collections.Counter[str]] = {}
        for labels, value in self._values('placement_requests_total').items():
            known = dict(labels)
            counted = answers.setdefault((known['route'], known['method']), collections.Counter())
            counted[known['status'][0]] += int(value)
        for (route, method), counted in answers.items():
            if counted.total():
                labels = (('method', method), ('route', route))
                seconds = self._growth.get(('placement_request_duration_seconds_sum', labels), 0.0)
                yield Route(
                    route,
                    method,
                    counted.total(),
                    counted['4'],
                    counted['5'],
                    seconds / counted.total(),
                    self._slowest_tenth(route, method),
                )

    def _slowest_tenth(self, route: str, method: str) -> float:
        """Return the upper bound of the first bucket that includes nine of ten requests, in seconds."""
        buckets = {
            float(dict(labels)['le']): value
            for labels, value in self._values('placement_request_duration_seconds_bucket').items()
            if dict(labels)['route'] == route and dict(labels)['method'] == method
        }
        most = max(buckets.values(), default=0.0)
        return next((bound for bound, value in sorted(buckets.items()) if value >= 0.9 * most), 0.0)
