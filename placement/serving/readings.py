"""What is read of the database for those who watch, not more often than need be, and without letting them wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Generic, TypeVar

from oslo_log import log

from placement.reports import vital_signs

LOG = log.getLogger(__name__)

T = TypeVar('T')

#: Seconds for which a scrape waits for what is being read. Prometheus gives up after ten, unless told otherwise.
PATIENCE = 2.0


class Reading(Generic[T]):
    """What ``read`` returned last. It is called again, in a thread, when somebody looks after ``interval`` seconds.

    An interval below zero means never.

    :param read: may raise ``vital_signs.TROUBLES``; then there is no value until it is called again.
    """

    def __init__(self, name: str, read: Callable[[], T], interval: float) -> None:
        self.name = name
        self.value: T | None = None
        #: When the value was read, in seconds since 1970, and how many seconds that took. 0 while there was none.
        self.read_at = self.seconds = 0.0
        self._read = read
        self._interval = interval
        self._lock = threading.Lock()
        self._begun = -float('inf')
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start to read if it is time, and nobody does."""
        with self._lock:
            if self._interval < 0 or self._thread is not None:
                return
            if time.monotonic() - self._begun >= self._interval:
                self._begun = time.monotonic()
                self._thread = threading.Thread(target=self._run, name=f'reads {self.name}', daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> None:
        """Return when nothing is being read, but after so many seconds at the latest."""
        thread = self._thread
        if thread is not None:
            thread.join(max(seconds, 0))

    def _run(self) -> None:
        started = time.monotonic()
        try:
            self.value = self._read()
            self.read_at, self.seconds = time.time(), time.monotonic() - started
        except vital_signs.TROUBLES:
            self.value = None
        except Exception:
            self.value = None
            LOG.exception('The %s could not be read', self.name)
        finally:
            self._thread = None


def refresh(readings: Collection[Reading[Any]]) -> None:
    """Read those whose time it is, side by side. Returns when that is done or ``PATIENCE`` is over."""
    deadline = time.monotonic() + PATIENCE
    for reading in readings:
        reading.begin()
    for reading in readings:
        reading.wait(deadline - time.monotonic())
