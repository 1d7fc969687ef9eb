"""What a service counted in the last minutes: the difference between two looks at its metrics."""

from __future__ import annotations

import collections
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The library decides how it stores values when it is first imported, which is not for this module to do.
    from prometheus_client import CollectorRegistry

#: Seconds between two looks, and how far back they go.
PERIOD, SPAN = 15.0, 300.0

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


@dataclass(frozen=True)
class Route:
    """The requests for one route and method: how many, how many of them failed, and how long they took, in seconds."""

    route: str
    method: str
    requests: int
    client_errors: int
    server_errors: int
    mean: float
    slowest_tenth: float


@dataclass(frozen=True)
class Activity:
    """What was counted in the last ``seconds``; ``mirror_checked`` is when a mirror was last found in step."""

    seconds: float
    routes: Sequence[Route] = field(default_factory=list)
    granted: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    retried: Mapping[str, int] = field(default_factory=dict)
    searches: int = 0
    empty_searches: int = 0
    mirror_checked: float | None = None


class Recent:
    """Keeps what ``registry`` held at some moments of the last minutes."""

    def __init__(self, registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: collections.deque[tuple[float, Samples]] = collections.deque()

    def look(self) -> None:
        """Keep what the registry holds now, if the last time was some seconds ago. To be called all the time."""
        with self._lock:
            now = self._clock()
            if self._kept and now - self._kept[-1][0] < PERIOD:
                return
            self._kept.append((now, _samples(self._registry)))
            while now - self._kept[0][0] > SPAN:
                self._kept.popleft()

    def activity(self) -> Activity:
        """What was counted since the oldest look, or ever when there is none."""
        with self._lock:
            now, current = self._clock(), _samples(self._registry)
            began, before = self._kept[0] if self._kept else (now, {})
        return _Difference(before, current).activity(now - began)


def _samples(registry: CollectorRegistry) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith('placement_')
    }


class _Difference:
    """The growth of each sample. One that shrank belongs to a service that was started anew."""

    def __init__(self, before: Samples, current: Samples) -> None:
        self._current = current
        self._grown = {
            key: value - before.get(key, 0.0) if value >= before.get(key, 0.0) else value
            for key, value in current.items()
        }

    def activity(self, seconds: float) -> Activity:
        checked = self._current.get(('placement_mirror_checked_timestamp_seconds', ()))
        searches = sum(self._values('placement_candidates_count').values())
        return Activity(
            seconds,
            sorted(self._routes(), key=lambda one: (-one.requests, one.route, one.method)),
            int(sum(self._values('placement_claims_accepted_total').values())),
            self._by('placement_claims_refused_total', 'reason'),
            self._by('placement_transaction_retries_total', 'reason'),
            int(searches),
            int(
                sum(
                    value
                    for labels, value in self._values('placement_candidates_bucket').items()
                    if ('le', '0.0') in labels
                )
            ),
            checked,
        )

    def _values(self, name: str) -> dict[tuple[tuple[str, str], ...], float]:
        return {labels: value for (own, labels), value in self._grown.items() if own == name}

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
                seconds = self._grown.get(('placement_request_seconds_sum', labels), 0.0)
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
        """The bound of the bucket within which nine of ten requests were answered."""
        buckets = {
            float(dict(labels)['le']): value
            for labels, value in self._values('placement_request_seconds_bucket').items()
            if dict(labels)['route'] == route and dict(labels)['method'] == method
        }
        most = max(buckets.values(), default=0.0)
        return next((bound for bound, value in sorted(buckets.items()) if value >= 0.9 * most), 0.0)
