"""Measures the phases of a request. Each thread adds up the times of the request that it processes."""

from __future__ import annotations

import threading
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: The phases: waiting for a connection to the database, waiting for the database, having a token validated.
CONNECTION, DATABASE, KEYSTONE = PHASES = ('connection', 'database', 'keystone')


class PhaseTimes(threading.local):
    """The seconds that the request of this thread has spent so far, by phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        #: When the current statement was sent, by ``time.perf_counter``; 0 between statements.
        self.sent_at = 0.0

    def clear(self) -> None:
        """Set all times to 0."""
        for phase in PHASES:
            self.seconds[phase] = 0.0

    def add(self, phase: str, started: float) -> None:
        """Add the time since ``started``, a value of ``time.perf_counter``."""
        self.seconds[phase] += time.perf_counter() - started


class ThreadCount:
    """A number of threads, which any thread may change."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Add a number, which may be negative."""
        with self._lock:
            self.count += number


class Span:
    """A context manager that adds the time of its block to ``phase``. Meanwhile ``threads`` counts the thread."""

    def __init__(self, times: PhaseTimes, phase: str, threads: ThreadCount | None = None) -> None:
        self._times = times
        self._phase = phase
        self._threads = threads
        self._started = 0.0

    def __enter__(self) -> None:
        if self._threads is not None:
            self._threads.add(1)
        self._started = time.perf_counter()

    def __exit__(self, *_error: object) -> None:
        self._times.add(self._phase, self._started)
        if self._threads is not None:
            self._threads.add(-1)


def time_statements(engine: sa.Engine, times: PhaseTimes) -> None:
    """Add the time of each statement on ``engine``, also of one that fails, to the phase ``DATABASE``."""
    # SQLAlchemy is slower with the first listener to cursor events, so an engine that has none yet is given none.
    if engine.dispatch.after_cursor_execute:
        _time_by_events(engine, times)
    else:
        _time_by_executing(engine, times)


def _time_by_events(engine: sa.Engine, times: PhaseTimes) -> None:
    def start(*_arguments: Any) -> None:
        times.sent_at = time.perf_counter()

    def end(*_arguments: Any) -> None:
        if times.sent_at:
            times.add(DATABASE, times.sent_at)
            times.sent_at = 0.0

    event.listen(engine, 'before_cursor_execute', start)
    event.listen(engine, 'after_cursor_execute', end)
    # A statement that failed is followed by a rollback and not by after_cursor_execute.
    event.listen(engine, 'rollback', end)


def _time_by_executing(engine: sa.Engine, times: PhaseTimes) -> None:
    def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        started = time.perf_counter()
        try:
            context.dialect.do_execute(cursor, statement, parameters, context)
        finally:
            times.add(DATABASE, started)
        # Tells SQLAlchemy that the statement has been executed.
        return True

    event.listen(engine, 'do_execute', execute)
