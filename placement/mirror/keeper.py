"""Keeps the mirror of one process in step with the database."""

from __future__ import annotations

import dataclasses
import datetime as dt
import gc
import threading
import time
from collections.abc import Collection, Mapping

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_log import log

from placement import exception
from placement.db import changes, migration, retention, tables, types
from placement.db.api import Database
from placement.db.changes import What
from placement.mirror import reading
from placement.mirror.state import Changes, Names, State, Successor

LOG = log.getLogger(__name__)

#: Seconds for which a database may show an older state than the mirror's, as a node that lags does, before the mirror
#: takes it for a database that was restored and starts anew.
PATIENCE = 10.0
#: Half of the silence, in seconds, after which writers are removed from the log. Half, because an entry is older than
#: its COMMIT, a look is older than the clock that was read after it, and clocks differ.
_SILENCE = retention.SILENCE.total_seconds() / 2
#: Seconds after which the mirror looks at the clock of the database again. Far less than that.
_CLOCK_PERIOD = 3600.0
#: Seconds after which building the mirror is worth lines in the log.
LONG = 2.0


@dataclasses.dataclass(frozen=True)
class _Held:
    """A state with the newest sequence of each writer that is in it. ``next`` makes the states that follow.

    ``moved`` says for each writer when its sequence last changed (``time.monotonic``). At ``clock``, by the clock of
    the database, which was at ``asked_clock`` by ours, no writer was further than the mirror has known since.
    """

    state: State
    vector: Mapping[int, int]
    next: Successor
    moved: Mapping[int, float]
    clock: dt.datetime
    asked_clock: float

    def covers(self, vector: Mapping[int, int]) -> bool:
        """Whether every change up to ``vector`` is in the state."""
        own = self.vector
        return own == vector or all(own.get(writer, 0) >= sequence for writer, sequence in vector.items())

    def is_covered_by(self, vector: Mapping[int, int]) -> bool:
        """Whether a database at ``vector`` has every change that is in the state."""
        return all(vector.get(writer, -1) >= sequence for writer, sequence in self.vector.items())

    def removed(self, vector: Mapping[int, int], now: float) -> set[int]:
        """The writers that are not in ``vector`` and were silent for so long that they must have been removed.

        Others that are not in it are missing because the database lags or was restored.
        """
        if len(vector) >= len(self.vector) and vector.keys() >= self.vector.keys():
            return set()
        missing = self.vector.keys() - vector.keys()
        return {writer for writer in missing if now - self.moved[writer] > _SILENCE}

    def without(self, writers: Collection[int]) -> _Held:
        """The same without some writers, all of whose changes are in the state."""
        vector = {writer: sequence for writer, sequence in self.vector.items() if writer not in writers}
        return dataclasses.replace(self, vector=vector)


class Mirror:
    """The mirror of one process.

    :param db: the database that it is of. Nothing is read before somebody asks.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._behind_since: float | None = None

    def current(self) -> State:
        """Return a committed state of the database that is no older than this call.

        One round trip to the database if nothing changed.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        held = self._held
        asked = time.monotonic()
        # Also when there is nothing to compare it with: without a database nobody shall wait for the lock.
        newest = changes.vector(self._db.ask(changes.NEWEST))
        self._db.metrics.mirror_checked()
        if held is not None and self._is_enough(held, newest, asked):
            return held.state
        return self._brought_forward(held, newest)

    def load(self) -> None:
        """Get ready for the first search. Without a database to read, that will be the one to wait."""
        try:
            self.current()
        except (exception.DatabaseUnavailable, db_exc.DBError, sa.exc.SQLAlchemyError) as error:
            reason = self._why_not() or str(error).splitlines()[0]
            LOG.warning('The mirror is built by the first search, for now: %s', reason)

    def _why_not(self) -> str | None:
        """What an operator has to do about the schema; None when it is right, or nobody can tell."""
        try:
            self._db.check_schema()
        except migration.WrongSchema as error:
            return str(error)
        except (exception.DatabaseUnavailable, db_exc.DBError, sa.exc.SQLAlchemyError):
            pass
        return None

    @property
    def is_built(self) -> bool:
        """Whether a search need not build the mirror first."""
        return self._held is not None

    def _is_enough(self, held: _Held, newest: Mapping[int, int], asked: float) -> bool:
        """Whether ``held``, which was there before the database was asked, has all that the database shows."""
        if newest == held.vector:
            self._behind_since = None
            return asked - held.asked_clock < _CLOCK_PERIOD
        if not held.covers(newest):
            self._behind_since = None
            return False
        if held.removed(newest, asked):
            return False
        if self._behind_since is None:
            self._behind_since = asked
        return not self._is_out_of_patience(asked)

    def _is_out_of_patience(self, now: float) -> bool:
        """Whether the database has shown an older state than the mirror's for too long to be a node that lags."""
        since = self._behind_since
        return since is not None and now - since >= PATIENCE

    def _brought_forward(self, looked_at: _Held | None, newest: Mapping[int, int]) -> State:
        """Wait for whoever is at it, and take the state that leaves if it is new enough; otherwise make one.

        :param looked_at: what will not do.
        """
        with self._lock:
            held = self._held
            if held is not None and held is not looked_at and held.covers(newest):
                return held.state
            started = time.monotonic()
            with self._db.reader() as tx:
                made, count = self._follow(tx, held) if held else (None, 0)
                rebuilt = made is None
                if made is None:
                    made = self._load(tx)
                # Before the transaction ends: whatever comes of its end, what was read is true, and ``next`` is there.
                self._held = made
            self._behind_since = None
            self._db.metrics.mirror_checked()
            self._db.metrics.mirrored(made.state.providers, count, time.monotonic() - started, rebuilt)
            return made.state

    def _load(self, tx: sa.Connection) -> _Held:
        started = time.monotonic()

        def told(what: str) -> None:
            seconds = time.monotonic() - started
            if seconds > LONG:
                LOG.info('Building the mirror: read the %s in %.1f s', what, seconds)

        vector = changes.newest(tx)
        clock, silent = changes.clock(tx), silent_seconds(tx)
        state = State.of(reading.names(tx), reading.everything(tx, told))
        seconds = time.monotonic() - started
        _leave_alone()
        LOG.log(
            log.INFO if seconds > LONG else log.DEBUG,
            'Mirror built: %d resource providers in %.1f s',
            state.providers,
            seconds,
        )
        moved = {writer: started - silent[writer] for writer in vector}
        return _Held(state, vector, Successor(state), moved, clock, started)

    def _follow(self, tx: sa.Connection, held: _Held) -> tuple[_Held | None, int]:
        """Bring ``held`` to the state that ``tx`` sees.

        :returns: that and the number of providers that changed; None instead when only building anew will do.
        """
        now = time.monotonic()
        vector = changes.newest(tx)
        removed = held.removed(vector, now)
        if removed:
            if (changes.clock(tx) - held.clock).total_seconds() > _SILENCE:
                # They may have written after the last look and been removed since.
                return None, 0
            held = held.without(removed)
        if vector != held.vector and held.covers(vector):
            # A node that lags: the mirror is ahead, unless that has lasted too long.
            return (None if self._is_out_of_patience(now) else held), 0
        if not held.is_covered_by(vector):
            return None, 0
        return self._advanced(tx, held, vector, now)

    def _advanced(
        self, tx: sa.Connection, held: _Held, vector: Mapping[int, int], now: float
    ) -> tuple[_Held | None, int]:
        """Bring ``held`` to ``vector``, which is newer; as ``_follow``."""
        try:
            logged = changes.since(tx, held.vector, vector)
        except changes.Gap:
            return None, 0
        if What.REBUILD in logged.values():
            return None, 0
        found = self._read(tx, logged)
        try:
            state = held.next(found)
        except Exception:
            # A fault of ours, or of somebody who wrote past the log. It must not last until the next start.
            LOG.exception('The mirror could not be brought forward, and is built anew.')
            return None, 0
        moved = {
            writer: held.moved[writer] if held.vector.get(writer) == sequence else now
            for writer, sequence in vector.items()
        }
        made = dataclasses.replace(held, state=state, vector=vector, moved=moved)
        if now - held.asked_clock >= _CLOCK_PERIOD:
            made = dataclasses.replace(made, clock=changes.clock(tx), asked_clock=now)
        return made, len(logged)

    def _read(self, tx: sa.Connection, logged: Mapping[int, What]) -> Changes:
        by_kind = {kind: [id_ for id_, what in logged.items() if what is kind] for kind in What}
        names: Names | None = reading.names(tx) if by_kind[What.NAMES] else None
        return Changes(reading.some(tx, by_kind[What.PROVIDER]), reading.usages(tx, by_kind[What.USAGE]), names)


def _leave_alone() -> None:
    """Keep the garbage collector from going through the mirror again and again: nothing in it is in a cycle."""
    gc.collect()
    gc.freeze()


def silent_seconds(tx: sa.Connection) -> dict[int, float]:
    """How long ago each writer wrote its newest entry, as far as the clock of the database knows."""
    return {
        row.id: (row.now - row.newest_at).total_seconds() for row in tx.execute(_SILENT) if row.newest_at is not None
    }


_SILENT = sa.select(
    tables.writers.c.id,
    sa.select(tables.changes.c.created_at)
    .where(tables.changes.c.writer_id == tables.writers.c.id)
    .order_by(tables.changes.c.sequence.desc())
    .limit(1)
    .scalar_subquery()
    .label('newest_at'),
    types.UtcNow().label('now'),
)
