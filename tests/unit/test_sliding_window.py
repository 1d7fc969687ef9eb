"""The counts of a service over the last minutes."""

from __future__ import annotations

from placement.observability.metrics import ACCEPTED
from placement.observability.prometheus import PrometheusMetrics
from placement.observability.sliding_window import SAMPLE_INTERVAL_SECONDS, WINDOW_SECONDS, SlidingWindow


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_only_the_last_minutes_count() -> None:
    metrics, clock = PrometheusMetrics(), Clock()
    recent = SlidingWindow(metrics.registry, clock)
    metrics.request_finished('/old', 'GET', '1.29', 200, 9.0)
    metrics.claim_finished('capacity')
    recent.sample()
    clock.now += WINDOW_SECONDS + SAMPLE_INTERVAL_SECONDS
    metrics.request_finished('/', 'GET', '1.29', 200, 0.002)
    recent.sample()
    clock.now += 60
    for status in (200, 404, 503):
        metrics.request_finished('/traits', 'GET', '1.29', status, 0.004)
    metrics.claim_finished(ACCEPTED)
    metrics.claim_finished('capacity')
    metrics.transaction_retried('deadlock')
    metrics.search_finished(0, 0.1)
    metrics.search_finished(7, 0.1)
    activity = recent.activity()
    # The first sample is too old, and was removed when the second was taken.
    assert activity.seconds == 60
    (route,) = activity.routes
    assert (route.route, route.method, route.requests, route.client_errors, route.server_errors) == (
        '/traits',
        'GET',
        3,
        1,
        1,
    )
    assert abs(route.mean - 0.004) < 1e-9
    assert route.slowest_tenth == 0.005
    assert (activity.claims_accepted, activity.claims_rejected, activity.transactions_retried) == (
        1,
        {'capacity': 1},
        {'deadlock': 1},
    )
    assert (activity.searches, activity.empty_searches) == (2, 1)


def test_samples_are_taken_once_per_period() -> None:
    metrics, clock = PrometheusMetrics(), Clock()
    recent = SlidingWindow(metrics.registry, clock)
    recent.sample()
    metrics.claim_finished(ACCEPTED)
    clock.now += SAMPLE_INTERVAL_SECONDS / 2
    recent.sample()
    assert recent.activity().claims_accepted == 1


def test_counts_of_a_restarted_service_start_from_zero() -> None:
    before, after, clock = PrometheusMetrics(), PrometheusMetrics(), Clock()
    recent = SlidingWindow(before.registry, clock)
    for _ in range(5):
        before.claim_finished(ACCEPTED)
    recent.sample()
    recent._registry = after.registry
    after.claim_finished(ACCEPTED)
    assert recent.activity().claims_accepted == 1


def test_without_a_sample_all_counts_are_included() -> None:
    metrics = PrometheusMetrics()
    metrics.cache_checked()
    metrics.claim_finished(ACCEPTED)
    activity = SlidingWindow(metrics.registry, Clock()).activity()
    assert (activity.seconds, activity.claims_accepted) == (0, 1)
    assert activity.cache_checked is not None
