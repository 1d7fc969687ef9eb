"""What the time of a request is spent on, added up by each thread."""

from __future__ import annotations

import threading
import time
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event

#: What time is spent on: waiting for a connection to the database, waiting for the database, having a token validated.
CONNECTION, DATABASE, KEYSTONE = PARTS = ('connection', 'database', 'keystone')


class Spent(threading.local):
    """The seconds that the request of this thread has spent so far, by part."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PARTS, 0.0)
        #: When the statement was sent that is being waited for.
        self.asked = 0.0

    def clear(self) -> None:
        """Begin anew."""
        for part in PARTS:
            self.seconds[part] = 0.0

    def add(self, part: str, started: float) -> None:
        """Add the time since ``started``, which ``time.perf_counter`` gave."""
        self.seconds[part] += time.perf_counter() - started


class Tally:
    """How many threads are at something."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Some more, or fewer."""
        with self._lock:
            self.count += number


class Span:
    """A context manager: the time of the block is spent on ``part``. ``tally`` has the thread while it is inside."""

    def __init__(self, spent: Spent, part: str, tally: Tally | None = None) -> None:
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


def watch_statements(engine: sa.Engine, spent: Spent) -> None:
    """Let the time of each statement on ``engine``, also of one that fails, be spent on the database."""
    # The first event of its kind makes SQLAlchemy take a longer way, which single statements shall be spared.
    if engine.dispatch.after_cursor_execute:
        _watch_by_events(engine, spent)
    else:
        _watch_by_doing(engine, spent)


def _watch_by_events(engine: sa.Engine, spent: Spent) -> None:
    def begin(*_arguments: Any) -> None:
        spent.asked = time.perf_counter()

    def end(*_arguments: Any) -> None:
        if spent.asked:
            spent.add(DATABASE, spent.asked)
            spent.asked = 0.0

    event.listen(engine, 'before_cursor_execute', begin)
    event.listen(engine, 'after_cursor_execute', end)
    # What follows a statement that failed.
    event.listen(engine, 'rollback', end)


def _watch_by_doing(engine: sa.Engine, spent: Spent) -> None:
    def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        started = time.perf_counter()
        try:
            context.dialect.do_execute(cursor, statement, parameters, context)
        finally:
            spent.add(DATABASE, started)
        # SQLAlchemy need not do it any more.
        return True

    event.listen(engine, 'do_execute', execute)
