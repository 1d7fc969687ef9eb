"""Repeats calls, and decides which transaction is run again after an error, and what is raised instead.

doc/architecture.md#the-end-of-a-transaction-and-all-retries lists all retries of the service.
"""

from __future__ import annotations

import dataclasses
import random
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from placement import exception
from placement.db import errors
from placement.db.errors import ConnectionLost, ErrorKind, RetryTransaction

T = TypeVar('T')


def retry(
    call: Callable[[], T], is_temporary: Callable[[Exception], bool], *, retries: float, interval: float = 0
) -> T:
    """Call ``call`` until it succeeds, and return its result. For transactions, use ``Database.write``.

    :param is_temporary: returns whether another call may succeed after this error. Any other error is raised.
    :param retries: maximum number of calls after the first. The error of the last call is raised.
    :param interval: mean time between two calls, in seconds. It varies, so that processes do not collide again.
    """
    while True:
        try:
            return call()
        except Exception as error:
            if retries <= 0 or not is_temporary(error):
                raise
        retries -= 1
        time.sleep(random.uniform(0.5, 1.5) * interval)  # noqa: S311


class Attempt(NamedTuple):
    """One attempt to run a transaction."""

    #: The number of attempts before it that ended with a conflict.
    conflicts: int = 0
    #: Whether the attempt before it lost its connection or found the database read-only.
    is_reconnected: bool = False
    #: The time to wait before it.
    delay_seconds: float = 0


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """The limits of the retries of one transaction."""

    #: The maximum number of retries after conflicts.
    max_retries: int
    #: The mean delay before the first retry. Delays are random; their mean doubles with each retry.
    first_delay_seconds: float = 0.002
    #: The maximum delay.
    max_delay_seconds: float = 0.25

    def next_attempt(self, attempt: Attempt, error: Exception) -> Attempt:
        """Return the attempt to make after ``attempt`` failed with ``error``.

        :raises ConcurrentProviderUpdate: no retry is left after a conflict, or SQLite's lock was not released in time.
            After a ``RetryTransaction``, its ``error`` is raised instead.
        :raises TransactionInterrupted: no retry is left, and the last conflict may mean that somebody canceled a
            statement.
        :raises Exception: ``error``, if a retry cannot help.
        """
        if isinstance(error, (ConnectionLost, exception.DatabaseReadOnly)):
            # Nothing was written. SQLAlchemy has dropped all connections of the pool, so the next attempt uses a new
            # one, perhaps to another server.
            if attempt.is_reconnected:
                raise error
            return Attempt(attempt.conflicts, is_reconnected=True)
        kind = ErrorKind.CONFLICT if isinstance(error, RetryTransaction) else errors.classify(error)
        if kind not in errors.CONFLICTS:
            raise error
        if attempt.conflicts == self.max_retries or kind is ErrorKind.SQLITE_BUSY:
            if isinstance(error, RetryTransaction):
                raise error.error from error.__cause__ or error
            if kind is ErrorKind.INTERRUPTED:
                raise exception.TransactionInterrupted from error
            raise exception.ConcurrentProviderUpdate from error
        conflicts = attempt.conflicts + 1
        longest = min(self.first_delay_seconds * 2**conflicts, self.max_delay_seconds)
        return Attempt(conflicts, delay_seconds=random.uniform(0, longest))  # noqa: S311
