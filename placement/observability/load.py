"""How busy a process is at the moment: its threads, and its connections to the database.

Looked at once a second by a thread, so that it costs a request next to nothing.
"""

from __future__ import annotations

import threading
import time
import weakref
from typing import cast

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Gauge

from placement.observability.spending import Tally

#: Seconds between two looks.
PERIOD = 1.0


class Load:
    """Gauges in ``registry``. Those of the processes that live add up."""

    def __init__(self, registry: CollectorRegistry) -> None:
        #: By pool, how many threads wait for a connection.
        self.waiting: dict[str, Tally] = {}
        self._busy = Tally()
        self._engines: dict[str, tuple[sa.Engine, int]] = {}
        self._lock = threading.Lock()
        self._looks = False

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
        """This process has so many threads for requests."""
        self._threads.set(count)

    def requests_waiting(self, count: int) -> None:
        """So many requests wait for a thread."""
        self._requests_waiting.set(count)

    def watch(self, pool: str, engine: sa.Engine, limit: int) -> None:
        """Look at the connections of ``engine``, which may be ``limit``, from now on."""
        self.waiting[pool] = Tally()
        # The pool of another kind keeps no connections, as for transactions on SQLite.
        if isinstance(engine.pool, sa.QueuePool):
            self._engines[pool] = (engine, limit)

    def begin(self) -> None:
        """A thread has a request."""
        self._busy.add(1)
        if not self._looks:
            self._start()

    def end(self) -> None:
        """It is answered."""
        self._busy.add(-1)

    def look(self) -> None:
        """Set the gauges to what is at the moment."""
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
        # With the first request, as threads that were there before a process forked are not in the new one.
        with self._lock:
            if not self._looks:
                self._looks = True
                threading.Thread(target=_run, args=(weakref.ref(self),), name='load', daemon=True).start()


def _run(reference: weakref.ref[Load]) -> None:
    """Look again and again, for as long as anybody uses the application."""
    while (load := reference()) is not None:
        load.look()
        del load
        time.sleep(PERIOD)
