"""How long the log of changes keeps what.

A process deletes the old entries of its own writers in passing, and nobody else's: on a cluster no two nodes touch the
same rows. Writers that are silent for long, because their process ended, are removed by any process, with all entries.
"""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_log import log

from placement import exception
from placement.db import error_kinds, tables, types

LOG = log.getLogger(__name__)

#: The newest entries of each writer that stay in any case: what a reader may fall behind in a rush of writes.
KEPT_NUMBERS = 5000
#: Seconds for which entries stay in any case: what a reader may fall behind while nobody asks it anything.
KEPT_SECONDS = 600
#: After how many transactions a writer deletes old entries, of twice as many transactions at most.
STRIDE = 100

#: How long a writer has been silent when it is removed, by the clock of the database. A reader that asked for the
#: newest entries in that time has seen its last one. A process that writes again later takes another writer.
SILENCE = dt.timedelta(days=1)
#: Seconds between two looks for silent writers, from the least to the most. The first look is that far from the start.
_PAUSE = (600, 3600)
#: How many transactions of a silent writer are deleted at once.
_CHUNK = 1000

Begin = Callable[[], contextlib.AbstractContextManager[sa.Connection]]

_changes, _writers = tables.changes, tables.writers


class Trail:
    """When one writer came by which number, noted now and then."""

    def __init__(self) -> None:
        self._marks: collections.deque[tuple[int, float]] = collections.deque()

    def passes(self, number: int) -> int | None:
        """Take note of the newest number.

        :returns: the number up to which entries are to be deleted now; mostly None.
        """
        if number % STRIDE:
            return None
        now = time.monotonic()
        self._marks.append((number, now))
        found = None
        # Two for each one that was added, so that it catches up after it was held back by the time.
        for _ in range(2):
            if self._marks[0][0] <= number - KEPT_NUMBERS and self._marks[0][1] <= now - KEPT_SECONDS:
                found = self._marks.popleft()[0]
        return found


def trim(tx: sa.Connection, writer_id: int, number: int) -> None:
    """Delete the entries of one writer up to ``number``."""
    tx.execute(_changes.delete().where(_changes.c.writer_id == writer_id, _changes.c.sequence <= number))


class Housekeeper:
    """Removes writers that are silent: looks for them now and then, in small steps as long as there are any.

    :param begin: begins a transaction that may write.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._due = time.monotonic() + _pause()

    def pass_by(self) -> None:
        """Take a step if it is time for one. Never fails: whoever calls this has done what it was asked for."""
        now = time.monotonic()
        if now < self._due:
            return
        self._due = now + _pause()
        removed = False
        with without_failing(), self._begin() as tx:
            removed = remove_silent(tx)
        if removed:
            self._due = now


def _pause() -> float:
    least, most = _PAUSE
    return least + secrets.randbelow(most - least)


@contextlib.contextmanager
def without_failing() -> Iterator[None]:
    """Whatever goes wrong inside can be done another time."""
    try:
        yield
    except (db_exc.DBReferenceError, exception.DatabaseUnavailable):
        # A writer that seemed silent has just written.
        pass
    except Exception as error:
        if not error_kinds.is_conflict(error):
            LOG.warning('Old entries of the log of changes could not be deleted.', exc_info=True)


def remove_silent(tx: sa.Connection) -> bool:
    """Delete the oldest entries of one of the writers that are silent, or the writer itself with its last ones.

    :returns: whether there was one.
    :raises DBReferenceError: the writer has just written.
    """
    silent = [row for row in tx.execute(_LAST_SEEN) if row.now - (row.newest_at or row.created_at) > SILENCE]
    if not silent:
        return False
    # Any of them, so that processes that do this at once seldom meet.
    writer = secrets.choice(silent)
    of_writer = _changes.c.writer_id == writer.id
    oldest = tx.scalar(sa.select(sa.func.min(_changes.c.sequence)).where(of_writer))
    if oldest is not None and oldest + _CHUNK < writer.newest:
        tx.execute(_changes.delete().where(of_writer, _changes.c.sequence < oldest + _CHUNK))
        return True
    # The newest entry goes in one transaction with the writer, which cannot go while there is a newer one.
    if oldest is not None:
        tx.execute(_changes.delete().where(of_writer, _changes.c.sequence <= writer.newest))
    tx.execute(_writers.delete().where(_writers.c.id == writer.id))
    return True


def _newest(column: sa.Column[Any]) -> sa.ScalarSelect[Any]:
    entries = sa.select(column).where(_changes.c.writer_id == _writers.c.id)
    return entries.order_by(_changes.c.sequence.desc()).limit(1).scalar_subquery()


_LAST_SEEN = sa.select(
    _writers.c.id,
    _writers.c.created_at,
    _newest(_changes.c.sequence).label('newest'),
    _newest(_changes.c.created_at).label('newest_at'),
    types.UtcNow().label('now'),
)
