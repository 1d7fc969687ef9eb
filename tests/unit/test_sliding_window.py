"""The counts of a service over the last minutes."""

from __future__ import annotations

from placement.observability.prometheus import PrometheusMetrics
from placement.observability.sliding_window import PERIOD, SPAN, SlidingWindow


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_only_the_last_minutes_count() -> None:
    metrics, clock = PrometheusMetrics(), Clock()
    recent = SlidingWindow(metrics.registry, clock)
    metrics.request_answered('/old', 'GET', '1.29', 200, 9.0)
    metrics.claim_refused('capacity')
    recent.sample()
    clock.now += SPAN + PERIOD
    metrics.request_answered('/', 'GET', '1.29', 200, 0.002)
    recent.sample()
    clock.now += 60
    for status in (200, 404, 503):
        metrics.request_answered('/traits', 'GET', '1.29', status, 0.004)
    metrics.claim_accepted()
    metrics.claim_refused('capacity')
    metrics.retried('deadlock')
    metrics.candidates(0, 0.1)
    metrics.candidates(7, 0.1)
    told = recent.activity()
    # The first sample is too old, and was removed when the second was taken.
    assert told.seconds == 60
    (route,) = told.routes
    assert (route.route, route.method, route.requests, route.client_errors, route.server_errors) == (
        '/traits',
        'GET',
        3,
        1,
        1,
    )
    assert abs(route.mean - 0.004) < 1e-9
    assert route.slowest_tenth == 0.005
    assert (told.granted, told.refused, told.retried) == (1, {'capacity': 1}, {'deadlock': 1})
    assert (told.searches, told.empty_searches) == (2, 1)


def test_samples_are_taken_once_per_period() -> None:
    metrics, clock = PrometheusMetrics(), Clock()
    recent = SlidingWindow(metrics.registry, clock)
    recent.sample()
    metrics.claim_accepted()
    clock.now += PERIOD / 2
    recent.sample()
    assert recent.activity().granted == 1


def test_counts_of_a_restarted_service_start_from_zero() -> None:
    before, after, clock = PrometheusMetrics(), PrometheusMetrics(), Clock()
    recent = SlidingWindow(before.registry, clock)
    for _ in range(5):
        before.claim_accepted()
    recent.sample()
    recent._registry = after.registry
    after.claim_accepted()
    assert recent.activity().granted == 1


def test_without_a_sample_all_counts_are_included() -> None:
    metrics = PrometheusMetrics()
    metrics.mirror_checked()
    metrics.claim_accepted()
    told = SlidingWindow(metrics.registry, Clock()).activity()
    assert (told.seconds, told.granted) == (0, 1)
    assert told.mirror_checked is not None
