"""Measures the phases of a request. Each thread adds up the times of the request that it processes."""

from __future__ import annotations

import threading
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: The phases: waiting for a connection to the database, for the database, and for the validation of a token.
CONNECTION, DATABASE, KEYSTONE = PHASES = ('connection', 'database', 'keystone')


class PhaseTimes(threading.local):
    """The seconds that the request of this thread has spent so far, by phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        #: The ``time.perf_counter`` at which the current statement was sent; 0 between statements.
        self.sent_at = 0.0

    def clear(self) -> None:
        for phase in PHASES:
            self.seconds[phase] = 0.0

    def add_time_since(self, phase: str, started: float) -> None:
        """Add the time since ``started``, a value of ``time.perf_counter``."""
        self.seconds[phase] += time.perf_counter() - started


class ThreadCount:
    """A number of threads. Any thread may change it."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def change_by(self, number: int) -> None:
        """Add ``number``, which may be negative."""
        with self._lock:
            self.count += number


class Span:
    """A context manager that adds the time of its block to ``phase``. In the block, ``threads`` counts the thread."""

    def __init__(self, times: PhaseTimes, phase: str, threads: ThreadCount | None = None) -> None:
        self._times = times
        self._phase = phase
        self._threads = threads
        self._started = 0.0

    def __enter__(self) -> None:
        if self._threads is not None:
            self._threads.change_by(1)
        self._started = time.perf_counter()

    def __exit__(self, *_error: object) -> None:
        self._times.add_time_since(self._phase, self._started)
        if self._threads is not None:
            self._threads.change_by(-1)


def time_statements(engine: sa.Engine, times: PhaseTimes) -> None:
    """Add the time of each statement on ``engine``, even if it fails, to the phase ``DATABASE``."""

    def start(*_arguments: Any) -> None:
        times.sent_at = time.perf_counter()

    def end(*_arguments: Any) -> None:
        if times.sent_at:
            times.add_time_since(DATABASE, times.sent_at)
            times.sent_at = 0.0

    event.listen(engine, 'before_cursor_execute', start)
    event.listen(engine, 'after_cursor_execute', end)
    # After a failed statement there is a rollback, but no after_cursor_execute.
    event.listen(engine, 'rollback', end)
