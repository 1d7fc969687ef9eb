"""Keeps the provider cache of a process up to date between searches, so that a search has little to read.

The same thread deletes old entries of the change log, so that no write waits for it.
"""

from __future__ import annotations

import random
import threading

from oslo_log import log

from placement.cache.refresh import ProviderCache
from placement.db import errors
from placement.db.change_log_slots import ChangeLogSlots

LOG = log.getLogger(__name__)

#: How long ``stop`` waits for a refresh that is running.
_STOP_WAIT_SECONDS = 0.5


class BackgroundRefresh:
    """A thread that refreshes a provider cache whenever no search has done so during an interval.

    It calls ``ProviderCache.up_to_date``, as a search does. This takes the lock of the cache only if something changed.
    A search that needs the same changes waits for them instead of reading them. Other searches do not wait.

    :param slots: the slots of the change log that the process uses.
    :param interval: seconds; 0 to have no thread.
    """

    def __init__(self, provider_cache: ProviderCache, slots: ChangeLogSlots, interval: float) -> None:
        self._provider_cache = provider_cache
        self._slots = slots
        self._interval = interval
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name='cache refresh', daemon=True)
        self._failing = False

    def start(self) -> None:
        """Start the thread. It does not survive a fork, so start it in the process that serves."""
        if self._interval > 0:
            self._slots.is_trimmed_in_background = True
            self._thread.start()

    def stop(self) -> None:
        """End the thread. Wait at most ``_STOP_WAIT_SECONDS``, because the database may be unavailable."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_WAIT_SECONDS)

    def _run(self) -> None:
        # The first delay is random, because the processes of a host start at the same time.
        delay = random.uniform(0, self._interval)  # noqa: S311
        while not self._stopping.wait(delay):
            idle = self._provider_cache.seconds_since_check
            if idle >= self._interval:
                self._refresh()
                idle = 0
            self._slots.trim()
            delay = self._interval - idle

    def _refresh(self) -> None:
        """Refresh the cache. Log only the first of consecutive failures."""
        failure: Exception | None = None
        try:
            self._provider_cache.up_to_date()
        except Exception as error:
            failure = error
        # In the except clause, oslo.log would append the exception to the line, which has the reason.
        if failure is not None and not self._failing:
            expected = isinstance(failure, errors.DATABASE_ERRORS)
            reason = str(failure).partition('\n')[0] or type(failure).__name__
            LOG.warning(
                'The cache cannot be refreshed in the background: %s', reason, exc_info=None if expected else failure
            )
        self._failing = failure is not None
        # Its traceback refers to this frame, which would keep all that the failed refresh has read.
        del failure
