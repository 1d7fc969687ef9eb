"""What the time of a request is spent on. Each thread adds up the time of the request that it processes."""

from __future__ import annotations

import threading
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: What time is spent on: waiting for a connection to the database, waiting for the database, having a token validated.
CONNECTION, DATABASE, KEYSTONE = PARTS = ('connection', 'database', 'keystone')


class PhaseTimes(threading.local):
    """The seconds that the request of this thread has spent so far, by part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        #: When the present statement was sent, by ``time.perf_counter``; 0 between statements.
        self.sent_at = 0.0

    def clear(self) -> None:
        """Set all times to 0."""
        for part in PARTS:
            self.seconds[part] = 0.0

    def add(self, part: str, started: float) -> None:
        """Add the time since ``started``, a value of ``time.perf_counter``."""
        self.seconds[part] += time.perf_counter() - started


class Tally:
    """A number of threads, which any thread may change."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Add a number, which may be negative."""
        with self._lock:
            self.count += number


class Span:
    """A context manager that adds the time of its block to ``part``. Meanwhile ``tally`` counts the thread."""

    def __init__(self, spent: PhaseTimes, part: str, tally: Tally | None = None) -> None:
        self._spent = spent
        self._part = part
        self._tally = tally
        self._started = 0.0

    def __enter__(self) -> None:
        if self._tally is not None:
            self._tally.add(1)
        self._started = time.perf_counter()

    def __exit__(self, *_error: object) -> None:
        self._spent.add(self._part, self._started)
        if self._tally is not None:
            self._tally.add(-1)


def watch_statements(engine: sa.Engine, spent: PhaseTimes) -> None:
    """Add the time of each statement on ``engine``, also of one that fails, to the part ``DATABASE`` of ``spent``."""
    # SQLAlchemy is slower with the first listener to cursor events, so an engine that has none yet is given none.
    if engine.dispatch.after_cursor_execute:
        _watch_by_events(engine, spent)
    else:
        _watch_by_executing(engine, spent)


def _watch_by_events(engine: sa.Engine, spent: PhaseTimes) -> None:
    def begin(*_arguments: Any) -> None:
        spent.sent_at = time.perf_counter()

    def end(*_arguments: Any) -> None:
        if spent.sent_at:
            spent.add(DATABASE, spent.sent_at)
            spent.sent_at = 0.0

    event.listen(engine, 'before_cursor_execute', begin)
    event.listen(engine, 'after_cursor_execute', end)
    # A statement that failed is followed by a rollback and not by after_cursor_execute.
    event.listen(engine, 'rollback', end)


def _watch_by_executing(engine: sa.Engine, spent: PhaseTimes) -> None:
    def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        started = time.perf_counter()
        try:
            context.dialect.do_execute(cursor, statement, parameters, context)
        finally:
            spent.add(DATABASE, started)
        # Tells SQLAlchemy that the statement has been executed.
        return True

    event.listen(engine, 'do_execute', execute)
