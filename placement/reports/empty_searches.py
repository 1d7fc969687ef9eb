"""Limits how often the log reports that the same search found nothing."""

from __future__ import annotations

import threading
import time

#: Seconds between two lines about the same query.
PERIOD = 60.0
#: Most queries that are remembered. When there are more, the query that was logged longest ago is forgotten.
_MAX_QUERIES = 1000


class EmptySearches:
    """Remembers which empty searches of one process were logged, and counts those that were not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: By query, oldest line first: when it was last logged, and how many searches were not logged since.
        self._logged: dict[str, tuple[float, int]] = {}

    def count(self, query: str) -> int | None:
        """Count a search that found nothing.

        :returns: None when the query was logged less than ``PERIOD`` seconds ago, so that this search shall not be
            logged; else how many searches with this query were not logged since the last line.
        """
        now = time.monotonic()
        with self._lock:
            logged_at, suppressed = self._logged.get(query, (-PERIOD, 0))
            if now - logged_at < PERIOD:
                self._logged[query] = logged_at, suppressed + 1
                return None
            # Removed first, so that it becomes the last entry.
            self._logged.pop(query, None)
            self._logged[query] = now, 0
            if len(self._logged) > _MAX_QUERIES:
                del self._logged[next(iter(self._logged))]
            return suppressed
