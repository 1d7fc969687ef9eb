"""Queries that take long: they run in threads, at most once per interval, for the metrics and for the page."""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from oslo_log import log

from placement.db import errors
from placement.db.api import Database
from placement.ops.planning import failures, plan_sentences
from placement.ops.planning.loads import PlanOptions

LOG = log.getLogger(__name__)

T = TypeVar('T')

#: How long a scrape waits for the queries. By default Prometheus cancels a scrape after ten seconds.
MAX_WAIT_SECONDS = 2.0

#: Maximum number of hosts to keep whose load does not fit on the others.
_LISTED_HOSTS = 200


class BackgroundQuery(Generic[T]):
    """Keeps the result of a query, and runs the query again in a thread when the result is older than an interval.

    :param name: the name of the collector, for the log and the metrics.
    :param query: returns the result. If it raises an exception, the last result stays, and the next start runs the
        query again. The first of consecutive failures is logged.
    :param interval: seconds from one successful call of ``query`` to the next; a negative number prevents all calls.
    """

    def __init__(self, name: str, query: Callable[[], T], interval: float) -> None:
        self.name = name
        self.result: T | None = None
        #: The time of the last success, in seconds since 1970; 0 before.
        self.succeeded_at = 0.0
        self._query = query
        self._interval = interval
        self._lock = threading.Lock()
        self._started = -math.inf
        self._is_failing = False
        self._thread: threading.Thread | None = None

    @property
    def is_enabled(self) -> bool:
        """Whether the query is run at all."""
        return self._interval >= 0

    def start(self) -> None:
        """Run the query in a thread if the interval is over and the query is not running.

        That no thread can be started is a failure of the query.
        """
        with self._lock:
            is_running = self._thread is not None and self._thread.is_alive()
            if not self.is_enabled or is_running or time.monotonic() - self._started < self._interval:
                return
            thread = threading.Thread(target=self._run, name=f'query {self.name}', daemon=True)
            failure: Exception | None = None
            try:
                thread.start()
                self._thread = thread
            except RuntimeError as error:
                failure = error
            if failure is not None:
                self._log_change(failure)

    def latest(self) -> T | None:
        """Start the query if the interval is over, and return the last result, if any, without waiting."""
        self.start()
        return self.result

    def wait(self, seconds: float) -> None:
        """Wait until the query has ended, at most ``seconds`` seconds."""
        if self._thread is not None:
            self._thread.join(max(seconds, 0))

    def _run(self) -> None:
        self._started = time.monotonic()
        failure: Exception | None = None
        try:
            self.result = self._query()
            self.succeeded_at = time.time()
        except Exception as error:
            failure, self._started = error, -math.inf
        self._log_change(failure)

    def _log_change(self, failure: Exception | None) -> None:
        """Log the first of consecutive failures, and the first success after them.

        Do not call this in an except clause, because there oslo.log adds the exception to the line.
        """
        was_failing, self._is_failing = self._is_failing, failure is not None
        if failure is not None and not was_failing:
            expected = isinstance(failure, errors.DATABASE_ERRORS)
            reason = getattr(failure, 'for_operators', '') or str(failure).partition('\n')[0] or type(failure).__name__
            exc_info = None if expected else failure
            LOG.warning('Collector %s failed; its last values stay: %s', self.name, reason, exc_info=exc_info)
        elif failure is None and was_failing:
            LOG.info('Collector %s has succeeded again', self.name)


def refresh(queries: Collection[BackgroundQuery[Any]]) -> None:
    """Run the queries whose interval is over, all at the same time, and wait at most ``MAX_WAIT_SECONDS``."""
    deadline = time.monotonic() + MAX_WAIT_SECONDS
    for query in queries:
        query.start()
    for query in queries:
        query.wait(deadline - time.monotonic())


def plan_query(db: Database, options: Any) -> BackgroundQuery[dict[str, Any]]:
    """Return the query that checks whether the load of each host fits on the others.

    :param options: the configuration group ``metrics``.
    """

    def check() -> dict[str, Any]:
        report = failures.check_failures(db, PlanOptions())
        listed = dataclasses.replace(report, not_evacuable_hosts=report.not_evacuable_hosts[:_LISTED_HOSTS])
        return plan_sentences.document(plan_sentences.failure_sentences(report), listed)

    return BackgroundQuery('plan', check, options.plan_interval or -1)
