"""How long the entries and writers of the log of changes are kept.

A process deletes old entries of its own writers after some of its write transactions, so that on a cluster no two nodes
delete the same rows. A writer that has been silent for a day, because its process ended, is deleted with all its
entries by any process that writes.
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

#: The number of newest entries of each writer that are kept, so that a mirror can follow during many writes.
KEPT_NUMBERS = 5000
#: Seconds for which entries are kept, so that a mirror can follow that was not used for a while.
KEPT_SECONDS = 600
#: A writer deletes old entries after each so many transactions, and those of at most twice as many transactions.
STRIDE = 100

#: A writer whose newest entry is older than this, by the clock of the database, is deleted. A reader that read the
#: newest numbers within that time knows its last entry. If its process writes again, it takes another writer.
SILENCE = dt.timedelta(days=1)
#: Seconds between two searches for silent writers, and from the start to the first: a random time between these.
_PAUSE = (600, 3600)
#: How many entries (each of one transaction) of a silent writer are deleted in one transaction.
_CHUNK = 1000

Begin = Callable[[], contextlib.AbstractContextManager[sa.Connection]]

_changes, _writers = tables.changes, tables.writers


class Trail:
    """Remembers, for every hundredth number of one writer, when it was reached."""

    def __init__(self) -> None:
        self._marks: collections.deque[tuple[int, float]] = collections.deque()

    def passes(self, number: int) -> int | None:
        """Tell it that the writer has reached ``number``.

        :returns: the number up to which entries are to be deleted now; None, in most cases, if there are none.
        """
        if number % STRIDE:
            return None
        now = time.monotonic()
        self._marks.append((number, now))
        found = None
        # Up to two for each one that is added. So the number of entries goes down again after a rush of writes, in
        # which ``KEPT_SECONDS`` did not let any be deleted.
        for _ in range(2):
            if self._marks[0][0] <= number - KEPT_NUMBERS and self._marks[0][1] <= now - KEPT_SECONDS:
                found = self._marks.popleft()[0]
        return found


def trim(tx: sa.Connection, writer_id: int, number: int) -> None:
    """Delete the entries of one writer up to and including ``number``."""
    tx.execute(_changes.delete().where(_changes.c.writer_id == writer_id, _changes.c.sequence <= number))


class Housekeeper:
    """Deletes silent writers: searches for them now and then, and deletes them in small transactions.

    :param begin: begins a transaction that may write.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        self._due = time.monotonic() + _pause()

    def pass_by(self) -> None:
        """Do one of those transactions if it is due. Called after each write, whose success it must not change.

        So a failure is logged, and not raised.
        """
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
    """Suppress every exception: what is done inside can be done another time. Unexpected ones are logged."""
    try:
        yield
    except (db_exc.DBReferenceError, exception.DatabaseUnavailable):
        # The writer that was to be deleted has just inserted an entry, or the database is away.
        pass
    except Exception as error:
        if not error_kinds.is_conflict(error):
            LOG.warning('Old entries of the log of changes could not be deleted.', exc_info=True)


def remove_silent(tx: sa.Connection) -> bool:
    """Delete the oldest entries of one silent writer or, if few are left, these and the writer itself.

    :returns: whether there was a silent writer.
    :raises DBReferenceError: the writer has just inserted an entry.
    """
    silent = [row for row in tx.execute(_LAST_SEEN) if row.now - (row.newest_at or row.created_at) > SILENCE]
    if not silent:
        return False
    # A random one, so that processes that do this at the same time seldom choose the same.
    writer = secrets.choice(silent)
    of_writer = _changes.c.writer_id == writer.id
    oldest = tx.scalar(sa.select(sa.func.min(_changes.c.sequence)).where(of_writer))
    if oldest is not None and oldest + _CHUNK < writer.newest:
        tx.execute(_changes.delete().where(of_writer, _changes.c.sequence < oldest + _CHUNK))
        return True
    # The last entries and the writer in one transaction: if the writer has inserted another entry, the foreign key
    # refuses the deletion of the writer, and the entries stay.
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
