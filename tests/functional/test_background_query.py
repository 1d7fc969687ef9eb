"""What is read for a scrape: at most once per interval, without making the scrape wait."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from placement import exception
from placement.ops import metrics
from placement.ops.metrics import BackgroundQuery, refresh


def _counter() -> Callable[[], int]:
    calls = iter(range(1, 100))
    return lambda: next(calls)


@pytest.mark.parametrize(('interval', 'values'), [(0, [1, 2, 3]), (1000, [1, 1, 1]), (-1, [None, None, None])])
def test_values_are_read_again_after_the_interval(interval: float, values: list[int | None]) -> None:
    query = BackgroundQuery('numbers', _counter(), interval)
    seen = []
    for _ in range(3):
        refresh([query])
        seen.append(query.result)
    assert seen == values
    assert (query.succeeded_at > 0) == (interval >= 0)


def test_a_scrape_does_not_wait_for_a_slow_read_and_has_the_last_value(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metrics, 'MAX_WAIT_SECONDS', 0.2)
    may_end, values = threading.Event(), _counter()

    def slow() -> int:
        value = values()
        if value > 1:
            may_end.wait(60)
        return value

    query, other = BackgroundQuery('slow', slow, 0), BackgroundQuery('fast', _counter(), 0)
    refresh([query, other])
    succeeded_at = query.succeeded_at
    started = time.monotonic()
    for _ in range(2):
        refresh([query, other])
        assert (query.result, query.succeeded_at) == (1, succeeded_at)
    assert time.monotonic() - started < 30
    assert other.result == 3
    may_end.set()
    query.wait(60)
    assert query.result == 2
    assert query.succeeded_at > succeeded_at
    assert query.seconds > 0.2


@pytest.mark.parametrize('error', [exception.DatabaseUnavailable, ZeroDivisionError])
def test_a_failed_read_keeps_the_value_and_is_repeated_before_the_interval_is_over(
    error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    outcomes: Iterator[Any] = iter([error, error, 1])

    def read() -> int:
        outcome = next(outcomes)
        if not isinstance(outcome, int):
            raise outcome
        return outcome

    query = BackgroundQuery('numbers', read, 1000)
    for _ in range(5):
        refresh([query])
    assert (query.result, query.succeeded_at > 0) == (1, True)
    assert [record.levelname for record in caplog.records] == ['WARNING', 'INFO']
    assert caplog.messages[0].startswith('Collector numbers failed; its last values stay: ')
