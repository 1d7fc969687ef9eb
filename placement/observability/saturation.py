"""Gauges for the saturation of a process: its threads, and its connections to the database.

A thread sets them once a second, so that requests do not spend time on them.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import cast

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Gauge

from placement.observability.timing import ThreadCount

UPDATE_INTERVAL_SECONDS = 1.0


class Saturation:
    """The gauges, in ``registry``. A scrape shows the sum of those of all living processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        #: The number of threads that wait for a connection, by pool.
        self.waiting_threads: dict[str, ThreadCount] = {}
        self._busy_threads = ThreadCount()
        self._engines: dict[str, tuple[sa.Engine, int]] = {}
        self._lock = threading.Lock()
        self._started = False

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode='livesum')

        self._threads = gauge('placement_threads', 'Threads that process requests.')
        self._threads_busy = gauge('placement_threads_busy', 'Threads that are processing a request.')
        self._requests_waiting = gauge('placement_requests_waiting', 'Requests that wait for a thread.')
        self._connections = gauge('placement_database_connections', 'Connections to the database.', 'pool', 'field')
        self._connections_waiting = gauge(
            'placement_database_connections_waiting', 'Threads that wait for a connection to the database.', 'pool'
        )

    def set_threads(self, count: int) -> None:
        """Set the number of threads that process requests."""
        self._threads.set(count)

    def set_requests_waiting(self, count: int) -> None:
        """Set the number of requests that wait for a thread."""
        self._requests_waiting.set(count)

    def instrument(self, pool: str, engine: sa.Engine, limit: int) -> None:
        """Include the connections of ``engine`` from the next update on.

        :param pool: the label of its connection pool.
        :param limit: the maximum number of connections that it opens.
        """
        self.waiting_threads[pool] = ThreadCount()
        # Other kinds of pools keep no connections, such as the NullPool for transactions on SQLite.
        if isinstance(engine.pool, sa.QueuePool):
            self._engines[pool] = (engine, limit)

    def request_started(self) -> None:
        """Count one more busy thread, and start to update the gauges unless this process does so already."""
        self._busy_threads.add(1)
        if self._started:
            return
        # Started by the first request, because a forked process does not have the threads started before the fork.
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=_run, args=(weakref.ref(self),), name='saturation', daemon=True).start()

    def request_finished(self) -> None:
        """Count one busy thread less."""
        self._busy_threads.add(-1)

    def update(self) -> None:
        """Set the gauges to the current values."""
        self._threads_busy.set(self._busy_threads.count)
        for pool, threads in tuple(self.waiting_threads.items()):
            self._connections_waiting.labels(pool).set(threads.count)
        for pool, (engine, limit) in tuple(self._engines.items()):
            connections = cast('sa.QueuePool', engine.pool)
            in_use = connections.checkedout()
            self._connections.labels(pool, 'in_use').set(in_use)
            self._connections.labels(pool, 'open').set(in_use + connections.checkedin())
            self._connections.labels(pool, 'limit').set(limit)


def _run(reference: weakref.ref[Saturation]) -> None:
    """Update the gauges periodically until nothing but this thread refers to them."""
    while (saturation := reference()) is not None:
        saturation.update()
        del saturation
        time.sleep(UPDATE_INTERVAL_SECONDS)
