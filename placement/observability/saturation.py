"""Gauges for how busy a process is at the moment: its threads, and its connections to the database.

A thread sets them once a second, so that requests do not spend time on them.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import cast

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Gauge

from placement.observability.timing import Tally

#: Seconds between two updates of the gauges.
PERIOD = 1.0


class Saturation:
    """The gauges, in ``registry``. A scrape shows the sum of those of all living processes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        #: The number of threads that wait for a connection, by pool.
        self.waiting: dict[str, Tally] = {}
        self._busy = Tally()
        self._engines: dict[str, tuple[sa.Engine, int]] = {}
        self._lock = threading.Lock()
        self._started = False

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(name, text, labels, registry=registry, multiprocess_mode='livesum')

        self._threads = gauge('placement_threads', 'Threads that answer requests.')
        self._threads_busy = gauge('placement_threads_busy', 'Threads that have a request.')
        self._requests_waiting = gauge('placement_requests_waiting', 'Requests that wait for a thread.')
        self._connections = gauge('placement_database_connections', 'Connections to the database.', 'pool', 'field')
        self._connections_waiting = gauge(
            'placement_database_connections_waiting', 'Threads that wait for a connection to the database.', 'pool'
        )

    def threads(self, count: int) -> None:
        """Set the number of threads that process requests."""
        self._threads.set(count)

    def requests_waiting(self, count: int) -> None:
        """Set the number of requests that wait for a thread."""
        self._requests_waiting.set(count)

    def watch(self, pool: str, engine: sa.Engine, limit: int) -> None:
        """Include the connections of ``engine`` from the next update on.

        :param pool: the label of its connection pool.
        :param limit: most connections that it opens.
        """
        self.waiting[pool] = Tally()
        # Other kinds of pools keep no connections, such as the NullPool for transactions on SQLite.
        if isinstance(engine.pool, sa.QueuePool):
            self._engines[pool] = (engine, limit)

    def begin(self) -> None:
        """Note that a thread has begun to process a request."""
        self._busy.add(1)
        if not self._started:
            self._start()

    def end(self) -> None:
        """Note that a thread has finished a request."""
        self._busy.add(-1)

    def update(self) -> None:
        """Set the gauges to the present values."""
        self._threads_busy.set(self._busy.count)
        for pool, tally in tuple(self.waiting.items()):
            self._connections_waiting.labels(pool).set(tally.count)
        for pool, (engine, limit) in tuple(self._engines.items()):
            connections = cast('sa.QueuePool', engine.pool)
            in_use = connections.checkedout()
            self._connections.labels(pool, 'in_use').set(in_use)
            self._connections.labels(pool, 'open').set(in_use + connections.checkedin())
            self._connections.labels(pool, 'limit').set(limit)

    def _start(self) -> None:
        # Called by the first request, because a forked process does not have the threads started before the fork.
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=_run, args=(weakref.ref(self),), name='load', daemon=True).start()


def _run(reference: weakref.ref[Saturation]) -> None:
    """Update the gauges periodically until nothing but this thread refers to them."""
    while (load := reference()) is not None:
        load.update()
        del load
        time.sleep(PERIOD)
