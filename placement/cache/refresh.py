"""Keeps the mirror of one process up to date with the database (doc/cache.md#how-it-knows-what-changed).

Before each search ``ProviderCache.current`` reads the sums of the slots of the change log, in one statement without a
transaction. If they are those of the mirror, it is up to date. Otherwise one thread at a time, under a lock of the
process, reads in one snapshot either what changed since then or, if the log cannot tell, everything. It takes no locks
in the database. Nothing is retried but single statements (``db.asking``); an error goes to the caller, and the mirror
stays as it was.
"""

from __future__ import annotations

import dataclasses
import gc
import threading
import time
from collections.abc import Callable, Mapping

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_log import log

from placement import exception
from placement.cache import loader
from placement.cache.snapshot import Changes, KnownNames, Snapshot, SnapshotBuilder
from placement.db import change_log, migration
from placement.db.api import Database
from placement.db.change_log import ChangeKind, Relation, VersionVector

LOG = log.getLogger(__name__)

#: For so many seconds the database may show an older snapshot than that of the mirror, as a node of a cluster does that
#: has not applied everything yet. After that the mirror assumes that the database was restored from a backup, and is
#: reloaded.
STALE_READ_GRACE_SECONDS = 10.0
#: If loading the mirror takes more than so many seconds, it is logged at INFO.
LONG = 2.0


@dataclasses.dataclass(frozen=True)
class _Version:
    """A snapshot of the mirror, and the version of the database that it is.

    ``next`` makes the states that follow. ``refresh`` is the number of the refresh that read it.
    """

    snapshot: Snapshot
    vector: VersionVector
    next: SnapshotBuilder
    refresh: int = 0


class ProviderCache:
    """The mirror of one process.

    :param db: its database. Nothing is read before the first call of a method.
    :param clock: returns seconds that only grow.
    """

    def __init__(self, db: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock = clock
        self._lock = threading.Lock()
        self._version: _Version | None = None
        #: The number of refreshes that began.
        self._refreshes = 0
        self._older_since: float | None = None

    def current(self) -> Snapshot:
        """Return a committed snapshot of the database that is no older than this call.

        One round trip to the database if nothing changed. Threads may call it at the same time.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        version, refreshes = self._version, self._refreshes
        # Before the lock, also if there is no mirror yet: while the database is away every caller fails at once.
        sums = change_log.Sums.of(self._db.fetch_all(change_log.CHECK)[0])
        self._db.metrics.cache_checked()
        if version is not None and sums == version.vector.total:
            self._older_since = None
            return version.snapshot
        return self._refreshed(refreshes, sums)

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
    def is_loaded(self) -> bool:
        """Whether there is a mirror, so that a search does not have to build it first."""
        return self._version is not None

    def _refreshed(self, refreshes: int, sums: change_log.Sums) -> Snapshot:
        """Return a snapshot that another thread has read since the call began, or read one.

        :param refreshes: the number of refreshes that had begun when the call began.
        :param sums: what the database was found to be at.
        """
        with self._lock:
            version = self._version
            if version is not None and (version.refresh > refreshes or version.vector.total == sums):
                return version.snapshot
            self._refreshes += 1
            started = time.monotonic()
            with self._db.reader() as tx:
                made, count = self._follow(tx, version) if version else (None, 0)
                reloaded = made is None
                if made is None:
                    made = self._load(tx)
                # Before the transaction ends, which may fail: what was read is right, and ``next`` has moved on
                # already.
                self._version = dataclasses.replace(made, refresh=self._refreshes)
            self._db.metrics.cache_checked()
            if made is not version:
                self._db.metrics.cache_refreshed(made.snapshot.providers, count, time.monotonic() - started, reloaded)
            return made.snapshot

    def _load(self, tx: sa.Connection) -> _Version:
        started = time.monotonic()

        def report(what: str) -> None:
            seconds = time.monotonic() - started
            if seconds > LONG:
                LOG.info('Building the mirror: read the %s in %.1f s', what, seconds)

        vector = change_log.read_vector(tx)
        snapshot = Snapshot.of(loader.load_names(tx), loader.load_all(tx, report))
        seconds = time.monotonic() - started
        _freeze()
        LOG.log(
            log.INFO if seconds > LONG else log.DEBUG,
            'ProviderCache built: %d resource providers in %.1f s',
            snapshot.providers,
            seconds,
        )
        self._older_since = None
        return _Version(snapshot, vector, SnapshotBuilder(snapshot))

    def _follow(self, tx: sa.Connection, version: _Version) -> tuple[_Version | None, int]:
        """Bring ``version`` up to the snapshot that ``tx`` sees.

        :returns: that, or None if everything has to be read again; and the number of providers that changed.
        """
        vector = change_log.read_vector(tx, version.vector)
        relation = version.vector.relation(vector)
        if relation is Relation.OLDER:
            now = self._clock()
            if self._older_since is None:
                self._older_since = now
            return (version if now - self._older_since < STALE_READ_GRACE_SECONDS else None), 0
        self._older_since = None
        if relation is Relation.SAME:
            return version, 0
        if relation is Relation.DIVERGED:
            return None, 0
        return self._advanced(tx, version, vector)

    def _advanced(self, tx: sa.Connection, version: _Version, vector: VersionVector) -> tuple[_Version | None, int]:
        """Bring ``version`` up to ``vector``, which is newer, by reading what changed; as ``_follow``."""
        try:
            changed = change_log.read_since(tx, version.vector, vector)
        except change_log.LogTruncated:
            return None, 0
        if ChangeKind.RELOAD in changed.values():
            return None, 0
        found = self._read(tx, changed)
        try:
            snapshot = version.next(found)
        except Exception:
            # A bug, or somebody wrote to the tables without the log. Without this searches would fail until a restart.
            LOG.exception('The mirror could not be brought forward, and is built anew.')
            return None, 0
        return dataclasses.replace(version, snapshot=snapshot, vector=vector), len(changed)

    def _read(self, tx: sa.Connection, changed: Mapping[int, ChangeKind]) -> Changes:
        by_kind = {kind: [id_ for id_, found in changed.items() if found is kind] for kind in ChangeKind}
        names: KnownNames | None = loader.load_names(tx) if by_kind[ChangeKind.NAMES] else None
        return Changes(
            loader.load_providers(tx, by_kind[ChangeKind.PROVIDER]),
            loader.load_usages(tx, by_kind[ChangeKind.USAGE]),
            names,
        )


def _freeze() -> None:
    """Keep the garbage collector from traversing the mirror again and again. It has no reference cycles."""
    gc.collect()
    gc.freeze()
