"""Which searches found nothing lately, so that the log tells of each query once in a while and not each time."""

from __future__ import annotations

import threading
import time

#: Seconds between two lines about the same query.
PERIOD = 60.0
#: Queries to remember. Beyond it, those that were told of longest ago are forgotten.
_MOST = 1000


class EmptySearches:
    """Counts the empty searches of one process that the log does not tell of."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: When each query was last told of, and how often it was not told of since.
        self._told: dict[str, tuple[float, int]] = {}

    def unsaid(self, query: str) -> int | None:
        """Count a search that found nothing.

        :returns: None when it is too early to tell of it again, else how many were not told of since the last line.
        """
        now = time.monotonic()
        with self._lock:
            told, count = self._told.get(query, (-PERIOD, 0))
            if now - told < PERIOD:
                self._told[query] = told, count + 1
                return None
            # At the end again, as the latest.
            self._told.pop(query, None)
            self._told[query] = now, 0
            if len(self._told) > _MOST:
                del self._told[next(iter(self._told))]
            return count
