"""Explains in the log why searches found nothing, once per interval for each query, in a background thread."""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any

from oslo_config import cfg
from oslo_context import context
from oslo_log import log

from placement.ops.display_names import DisplayNames
from placement.ops.explain.explanation import explain
from placement.ops.explain.sentences import Writer
from placement.search.budget import SearchBudget
from placement.search.selection import AllocationCandidates

if TYPE_CHECKING:
    from placement.observability.metrics import Metrics

LOG = log.getLogger(__name__)

#: Seconds between two lines of the log about the same empty search.
LOG_INTERVAL_SECONDS = 60.0
#: Maximum number of queries to remember. If there are more, the query with the oldest log line is forgotten.
_MAX_QUERIES = 1000
#: Seconds until a search is explained. The server may still have to send the response, and only one thread can run.
_DELAY_SECONDS = 0.1
#: Maximum number of searches that wait for their explanation. Each keeps a snapshot in memory.
_MAX_WAITING = 20


class EmptySearches:
    """The empty searches of one process: which of them were logged, how many were not, and those to explain.

    The first search starts the thread, because a forked process does not have threads from before the fork.

    :param metrics: counts the searches that find the queue full, or for which no thread can start.
    """

    def __init__(self, conf: cfg.ConfigOpts, metrics: Metrics) -> None:
        self._options = conf.placement
        self._metrics = metrics
        self._writer = Writer(DisplayNames(conf.placement.names_file))
        self._reset()
        reset = weakref.WeakMethod(self._reset)
        os.register_at_fork(after_in_child=lambda: (method := reset()) and method())

    def _reset(self) -> None:
        self._lock = threading.Lock()
        #: By hash of the query, oldest line first: when it was last logged, and the searches not logged since then.
        self._logged: dict[int, tuple[float, int]] = {}
        self._waiting: queue.Queue[tuple[Any, str, AllocationCandidates, int]] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None

    def add(self, query: str, candidates: AllocationCandidates) -> None:
        """Let the thread explain a search that found nothing, unless the query was logged recently.

        :param query: the query string, quoted for the log.
        """
        if not LOG.isEnabledFor(log.INFO):
            return
        suppressed = self.count_search(query)
        if suppressed is None:
            return
        try:
            with self._lock:
                if self._thread is None or not self._thread.is_alive():
                    self._thread = threading.Thread(target=self._run, name='empty searches', daemon=True)
                    self._thread.start()
            self._waiting.put_nowait((context.get_current(), query, candidates, suppressed))
        except (queue.Full, RuntimeError):
            # The system may allow no further thread. The response does not depend on it.
            self._metrics.explanations_dropped.inc()
            with self._lock:
                # The next search with this query is logged.
                self._logged[hash(query)] = -LOG_INTERVAL_SECONDS, suppressed + 1

    def count_search(self, query: str) -> int | None:
        """Count a search that found nothing.

        :returns: None if the query was logged less than ``LOG_INTERVAL_SECONDS`` ago, so that this search must not be
            logged. Otherwise the number of searches with this query that were not logged since then.
        """
        now = time.monotonic()
        key = hash(query)
        with self._lock:
            logged_at, suppressed = self._logged.get(key, (-LOG_INTERVAL_SECONDS, 0))
            if now - logged_at < LOG_INTERVAL_SECONDS:
                self._logged[key] = logged_at, suppressed + 1
                return None
            # Removing the entry first makes the new one the last.
            self._logged.pop(key, None)
            self._logged[key] = now, 0
            if len(self._logged) > _MAX_QUERIES:
                del self._logged[next(iter(self._logged))]
            return suppressed

    def _run(self) -> None:
        while True:
            request_context, query, candidates, suppressed = self._waiting.get()
            time.sleep(_DELAY_SECONDS)
            if request_context is not None:
                # The line has the id of the request.
                request_context.update_store()
            try:
                budget = SearchBudget.for_explanation(self._options)
                texts = self._writer.sentences(
                    explain(candidates.snapshot, candidates.request, budget, candidates.limits_reached)
                )
                texts += [f'({suppressed} more since the last such line)'] if suppressed else []
                LOG.info('No allocation candidates for %s: %s', query, ' '.join(texts))
            except Exception:
                LOG.exception('The search %s cannot be explained.', query)
            # The next search may come much later, and this one keeps a snapshot.
            del request_context, candidates
