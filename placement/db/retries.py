"""Decides after a failed transaction whether it is run again, when, and what is raised instead."""

from __future__ import annotations

import dataclasses
import random
from typing import NamedTuple

from placement import exception
from placement.db import errors
from placement.db.errors import RetryTransaction, StaleConnection


class Attempt(NamedTuple):
    """One attempt to run a transaction."""

    #: The number of attempts before it that ended with a conflict.
    conflicts: int = 0
    #: Whether the attempt before it found that its connection was stale or the database read-only.
    is_reconnected: bool = False
    #: The time to wait before it.
    delay_seconds: float = 0


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    """The limits of the retries of one transaction."""

    #: The maximum number of retries after conflicts.
    max_retries: int
    #: The mean delay before the first retry. Delays are random; their mean doubles with each retry.
    min_delay_seconds: float = 0.002
    #: The maximum delay.
    max_delay_seconds: float = 0.25

    def next_attempt(self, attempt: Attempt, error: Exception) -> Attempt:
        """Return the attempt to make after ``attempt`` failed with ``error``.

        :raises ConcurrentProviderUpdate: no retry is left after a conflict, or SQLite's lock was not released in time.
            After a ``RetryTransaction``, its ``error`` is raised instead.
        :raises SingleFailure: no retry is left, and the last conflict may mean that somebody canceled a statement.
        :raises Exception: ``error``, if a retry cannot help.
        """
        if isinstance(error, (StaleConnection, exception.DatabaseReadOnly)):
            # Nothing was written. SQLAlchemy has dropped all connections of the pool, so the next attempt uses a new
            # one, perhaps to another server.
            if attempt.is_reconnected:
                raise error
            return Attempt(attempt.conflicts, is_reconnected=True)
        if not (isinstance(error, RetryTransaction) or errors.is_conflict(error)):
            raise error
        if attempt.conflicts == self.max_retries or errors.is_sqlite_busy(error):
            if isinstance(error, RetryTransaction):
                raise error.error from error.__cause__ or error
            raise (
                exception.SingleFailure if errors.is_canceled(error) else exception.ConcurrentProviderUpdate
            ) from error
        conflicts = attempt.conflicts + 1
        longest = min(self.min_delay_seconds * 2**conflicts, self.max_delay_seconds)
        return Attempt(conflicts, delay_seconds=random.uniform(0, longest))  # noqa: S311
