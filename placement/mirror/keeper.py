"""Keeps the mirror of one process up to date with the database (doc/mirror.md#how-it-knows-what-changed).

Before each search ``Mirror.current`` reads the newest numbers of the log of changes, in one statement without a
transaction. If they are those of the mirror, it is up to date. Otherwise one thread at a time, under a lock of the
process, reads in one snapshot either what changed since then or, if the log cannot tell, everything. It takes no locks
in the database. Nothing is tried again but single statements (``db.asking``); an error goes to the caller, and the
mirror stays as it was.
"""

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

#: For so many seconds the database may show an older state than that of the mirror, as a node of a cluster does that
#: lags behind. After that the mirror assumes that the database was restored from a backup, and is built anew.
PATIENCE = 10.0
#: Half the time, in seconds, after which silent writers are deleted from the log. Only half, to be on the safe side: an
#: entry has the time of its INSERT, not of the COMMIT; the clock is read a little later than the vector; clocks differ.
_SILENCE = retention.SILENCE.total_seconds() / 2
#: Seconds after which the clock of the database is read again. Much less than ``_SILENCE``.
_CLOCK_PERIOD = 3600.0
#: If building the mirror takes more than so many seconds, it is logged at INFO.
LONG = 2.0


@dataclasses.dataclass(frozen=True)
class _Version:
    """A state of the mirror, with its vector: the newest entry of each writer that is in it.

    ``next`` makes the states that follow. ``moved`` has the time (``time.monotonic``) of the last change of each
    writer's number. ``clock`` is a time by the clock of the database: all that was committed before it is in the state,
    but for the inaccuracies that ``_SILENCE`` allows for. ``asked_clock`` is the same time by ``time.monotonic``.
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
        """The writers that are missing in ``vector`` because they were silent for long and were deleted.

        Other writers are missing because the database lags or was restored.

        :param now: ``time.monotonic``.
        """
        if len(vector) >= len(self.vector) and vector.keys() >= self.vector.keys():
            return set()
        missing = self.vector.keys() - vector.keys()
        return {writer for writer in missing if now - self.moved[writer] > _SILENCE}

    def without(self, writers: Collection[int]) -> _Version:
        """The same without ``writers``, which were deleted and all of whose changes are in the state."""
        vector = {writer: sequence for writer, sequence in self.vector.items() if writer not in writers}
        return dataclasses.replace(self, vector=vector)


class Mirror:
    """The mirror of one process.

    :param db: its database. Nothing is read before the first call of a method.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._lock = threading.Lock()
        self._version: _Version | None = None
        self._behind_since: float | None = None

    def current(self) -> State:
        """Return a committed state of the database that is no older than this call.

        One round trip to the database if nothing changed. Threads may call it at the same time.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        version = self._version
        asked = time.monotonic()
        # Before the lock, also if there is no mirror yet: while the database is away every caller fails at once.
        newest = changes.vector(self._db.ask(changes.NEWEST))
        self._db.metrics.mirror_checked()
        if version is not None and self._is_enough(version, newest, asked):
            return version.state
        return self._updated(version, newest)

    def load(self) -> None:
        """Build the mirror when the service starts. If that fails it is logged, and the first search builds it."""
        try:
            self.current()
        except (exception.DatabaseUnavailable, db_exc.DBError, sa.exc.SQLAlchemyError) as error:
            reason = self._schema_problem() or str(error).partition('\n')[0]
            LOG.warning('The mirror is built by the first search, for now: %s', reason)

    def _schema_problem(self) -> str | None:
        """What an operator has to do about the schema; None if it is right or cannot be read."""
        try:
            self._db.check_schema()
        except migration.WrongSchema as error:
            return str(error)
        except (exception.DatabaseUnavailable, db_exc.DBError, sa.exc.SQLAlchemyError):
            pass
        return None

    @property
    def is_built(self) -> bool:
        """Whether there is a mirror, so that a search does not have to build it first."""
        return self._version is not None

    def _is_enough(self, version: _Version, newest: Mapping[int, int], asked: float) -> bool:
        """Whether ``version`` has all changes up to ``newest``, and neither its clock nor its writers need a refresh.

        :param asked: when the database was asked for ``newest`` (``time.monotonic``).
        """
        if newest == version.vector:
            self._behind_since = None
            return asked - version.asked_clock < _CLOCK_PERIOD
        if not version.covers(newest):
            self._behind_since = None
            return False
        if version.removed(newest, asked):
            return False
        if self._behind_since is None:
            self._behind_since = asked
        return not self._lags_too_long(asked)

    def _lags_too_long(self, now: float) -> bool:
        """Whether the database has shown an older state than that of the mirror for more than ``PATIENCE``."""
        since = self._behind_since
        return since is not None and now - since >= PATIENCE

    def _updated(self, outdated: _Version | None, newest: Mapping[int, int]) -> State:
        """Return a state with all changes up to ``newest``: one that another thread made meanwhile, or a new one.

        :param outdated: the version that was not enough, None if there is none.
        """
        with self._lock:
            version = self._version
            if version is not None and version is not outdated and version.covers(newest):
                return version.state
            started = time.monotonic()
            with self._db.reader() as tx:
                made, count = self._follow(tx, version) if version else (None, 0)
                rebuilt = made is None
                if made is None:
                    made = self._load(tx)
                # Before the transaction ends, which may fail: what was read is right, and ``next`` has moved on
                # already.
                self._version = made
            self._behind_since = None
            self._db.metrics.mirror_checked()
            self._db.metrics.mirrored(made.state.providers, count, time.monotonic() - started, rebuilt)
            return made.state

    def _load(self, tx: sa.Connection) -> _Version:
        started = time.monotonic()

        def report(what: str) -> None:
            seconds = time.monotonic() - started
            if seconds > LONG:
                LOG.info('Building the mirror: read the %s in %.1f s', what, seconds)

        vector = changes.newest(tx)
        clock, silent = changes.clock(tx), silent_seconds(tx)
        state = State.of(reading.names(tx), reading.everything(tx, report))
        seconds = time.monotonic() - started
        _freeze()
        LOG.log(
            log.INFO if seconds > LONG else log.DEBUG,
            'Mirror built: %d resource providers in %.1f s',
            state.providers,
            seconds,
        )
        moved = {writer: started - silent[writer] for writer in vector}
        return _Version(state, vector, Successor(state), moved, clock, started)

    def _follow(self, tx: sa.Connection, version: _Version) -> tuple[_Version | None, int]:
        """Bring ``version`` up to the state that ``tx`` sees.

        :returns: that, or None if everything has to be read anew; and the number of providers that changed.
        """
        now = time.monotonic()
        vector = changes.newest(tx)
        removed = version.removed(vector, now)
        if removed:
            if (changes.clock(tx) - version.clock).total_seconds() > _SILENCE:
                # They may have written after ``version`` was read, and then have been silent until they were deleted.
                return None, 0
            version = version.without(removed)
        if vector != version.vector and version.covers(vector):
            # The mirror is ahead of the database, which is a node that lags, unless that lasts too long.
            return (None if self._lags_too_long(now) else version), 0
        if not version.is_covered_by(vector):
            return None, 0
        return self._advanced(tx, version, vector, now)

    def _advanced(
        self, tx: sa.Connection, version: _Version, vector: Mapping[int, int], now: float
    ) -> tuple[_Version | None, int]:
        """Bring ``version`` up to ``vector``, which is newer, by reading what changed; as ``_follow``."""
        try:
            logged = changes.since(tx, version.vector, vector)
        except changes.Gap:
            return None, 0
        if What.REBUILD in logged.values():
            return None, 0
        found = self._read(tx, logged)
        try:
            state = version.next(found)
        except Exception:
            # A bug, or somebody wrote to the tables without the log. Without this searches would fail until a restart.
            LOG.exception('The mirror could not be brought forward, and is built anew.')
            return None, 0
        moved = {
            writer: version.moved[writer] if version.vector.get(writer) == sequence else now
            for writer, sequence in vector.items()
        }
        made = dataclasses.replace(version, state=state, vector=vector, moved=moved)
        if now - version.asked_clock >= _CLOCK_PERIOD:
            made = dataclasses.replace(made, clock=changes.clock(tx), asked_clock=now)
        return made, len(logged)

    def _read(self, tx: sa.Connection, logged: Mapping[int, What]) -> Changes:
        by_kind = {kind: [id_ for id_, what in logged.items() if what is kind] for kind in What}
        names: Names | None = reading.names(tx) if by_kind[What.NAMES] else None
        return Changes(reading.some(tx, by_kind[What.PROVIDER]), reading.usages(tx, by_kind[What.USAGE]), names)


def _freeze() -> None:
    """Keep the garbage collector from traversing the mirror again and again. It has no reference cycles."""
    gc.collect()
    gc.freeze()


def silent_seconds(tx: sa.Connection) -> dict[int, float]:
    """Read how many seconds ago, by the clock of the database, each writer inserted its newest entry; by writer id."""
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
