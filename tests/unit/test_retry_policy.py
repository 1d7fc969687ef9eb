"""Which attempt follows a failed one, and which error is final."""

from __future__ import annotations

import pytest
from oslo_db import exception as db_exc

from placement import exception
from placement.db.errors import ConnectionLost, RetryTransaction
from placement.db.retries import Attempt, RetryPolicy

POLICY = RetryPolicy(max_retries=3)


def test_conflicts_are_retried_up_to_the_limit_with_growing_delays() -> None:
    attempt, delays = Attempt(), []
    for _ in range(3):
        attempt = POLICY.next_attempt(attempt, db_exc.DBDeadlock())
        delays.append(attempt.delay_seconds)
    assert attempt.conflicts == 3
    assert all(0 <= delay <= 0.002 * 2**number for number, delay in enumerate(delays, start=1))
    with pytest.raises(exception.ConcurrentProviderUpdate):
        POLICY.next_attempt(attempt, db_exc.DBDeadlock())
    with pytest.raises(exception.ConcurrentUpdate) as raised:
        POLICY.next_attempt(attempt, RetryTransaction(exception.ConcurrentUpdate()))
    assert type(raised.value) is exception.ConcurrentUpdate


@pytest.mark.parametrize('error', [ConnectionLost(), exception.DatabaseReadOnly()])
def test_another_connection_is_tried_once_after_each_conflict(error: Exception) -> None:
    """It is no conflict, so it is not counted, and nothing is waited for."""
    conflict = POLICY.next_attempt(Attempt(), RetryTransaction())
    reconnected = POLICY.next_attempt(conflict, error)
    assert reconnected == Attempt(conflicts=1, is_reconnected=True)
    with pytest.raises(type(error)):
        POLICY.next_attempt(reconnected, error)
    assert not POLICY.next_attempt(reconnected, RetryTransaction()).is_reconnected


@pytest.mark.parametrize(
    'error', [exception.DatabaseUnavailable(), exception.TransactionInterrupted(), ZeroDivisionError()]
)
def test_other_errors_are_final(error: Exception) -> None:
    with pytest.raises(type(error)):
        POLICY.next_attempt(Attempt(), error)
