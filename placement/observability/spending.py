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

    def clear(self) -> None:
        """Begin anew."""
        self.seconds = dict.fromkeys(PARTS, 0.0)

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
    """Let the time of each statement on ``engine`` be spent on the database."""

    def timed(name: str) -> None:
        def execute(*arguments: Any) -> bool:
            context = arguments[-1]
            started = time.perf_counter()
            try:
                getattr(context.dialect, name)(*arguments)
            finally:
                spent.add(DATABASE, started)
            # SQLAlchemy need not do it any more.
            return True

        event.listen(engine, name, execute)

    for name in ('do_execute', 'do_executemany', 'do_execute_no_params'):
        timed(name)
