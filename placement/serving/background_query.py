"""Runs the queries behind a scrape: in threads, at most once in an interval, and with a limited wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from oslo_log import log

from placement.reports import database_health

LOG = log.getLogger(__name__)

T = TypeVar('T')

#: How long a scrape waits for the queries. By default Prometheus cancels a scrape after ten seconds.
MAX_WAIT_SECONDS = 2.0


class BackgroundQuery(Generic[T]):
    """Keeps the result of a query, and runs it again in a thread when the result is older than an interval.

    :param name: of the collector, for the log and the metrics.
    :param query: returns the result. If it raises an exception there is no result until it is called again; those of
        ``database_health.TROUBLES`` are expected and not logged.
    :param interval: seconds from one call of ``query`` to the next; below zero for no call at all.
    """

    def __init__(self, name: str, query: Callable[[], T], interval: float) -> None:
        self.name = name
        self.result: T | None = None
        #: When the query last succeeded, in seconds since 1970, and how many seconds it took; 0 before the first time.
        self.succeeded_at = self.seconds = 0.0
        self._query = query
        self._interval = interval
        self._lock = threading.Lock()
        self._started = -float('inf')
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Run the query in a thread if the interval is over and the query is not running."""
        with self._lock:
            if self._interval < 0 or self._thread is not None:
                return
            if time.monotonic() - self._started >= self._interval:
                self._started = time.monotonic()
                self._thread = threading.Thread(target=self._run, name=f'query {self.name}', daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended, but at most so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(max(seconds, 0))

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self.result = self._query()
            self.succeeded_at, self.seconds = time.time(), time.monotonic() - started
        except database_health.TROUBLES:
            self.result = None
        except Exception:
            self.result = None
            LOG.exception('Collector %s failed', self.name)
        finally:
            self._thread = None


def refresh(queries: Collection[BackgroundQuery[Any]]) -> None:
    """Run those queries at the same time whose interval is over, and wait ``MAX_WAIT_SECONDS`` at most."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    for query in queries:
        query.start()
    for query in queries:
        query.wait(deadline - time.monotonic())
