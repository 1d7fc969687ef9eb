"""Values that a scrape reads from the database: in threads, at most once in an interval, and with a limited wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from oslo_log import log

from placement.reports import database_health

LOG = log.getLogger(__name__)

T = TypeVar('T')

#: Most seconds that a scrape waits for values being read. By default Prometheus gives a scrape up after ten.
PATIENCE = 2.0


class BackgroundQuery(Generic[T]):
    """A value that is read again on demand, in a thread, when it is older than an interval.

    :param name: of the reading, for the log and the thread.
    :param read: returns the value. If it raises an exception there is no value until it is called again; those of
        ``database_health.TROUBLES`` are expected and not logged.
    :param interval: seconds from one call of ``read`` to the next; below zero for no call at all.
    """

    def __init__(self, name: str, read: Callable[[], T], interval: float) -> None:
        self.name = name
        self.value: T | None = None
        #: When a value was last read, in seconds since 1970, and how many seconds that took; 0 before the first.
        self.read_at = self.seconds = 0.0
        self._read = read
        self._interval = interval
        self._lock = threading.Lock()
        self._begun = -float('inf')
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start to read if the interval is over and no thread is reading already."""
        with self._lock:
            if self._interval < 0 or self._thread is not None:
                return
            if time.monotonic() - self._begun >= self._interval:
                self._begun = time.monotonic()
                self._thread = threading.Thread(target=self._run, name=f'reads {self.name}', daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait until the value being read is there, but at most so many seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(max(seconds, 0))

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self.value = self._read()
            self.read_at, self.seconds = time.time(), time.monotonic() - started
        except database_health.TROUBLES:
            self.value = None
        except Exception:
            self.value = None
            LOG.exception('The %s could not be read', self.name)
        finally:
            self._thread = None


def refresh(readings: Collection[BackgroundQuery[Any]]) -> None:
    """Read, at the same time, those values whose interval is over. Returns when all are read, or after ``PATIENCE``."""
    deadline = time.monotonic() + PATIENCE
    for reading in readings:
        reading.begin()
    for reading in readings:
        reading.wait(deadline - time.monotonic())
