"""Keeps the cache of one process up to date with the database (doc/cache.md#how-it-detects-changes).

Before each search ``ProviderCache.current`` reads the sums of the slots of the change log, in one statement without a
transaction. If they are those of the snapshot, it is up to date. Otherwise one thread at a time, under a lock of the
process, reads in one transaction either what changed since then or, without the log entries, everything. It takes no
locks in the database. Only single statements are retried; an error goes to the caller, and the snapshot stays.
``background_refresh`` does the same while nobody searches.
"""

from __future__ import annotations

import dataclasses
import gc
import math
import threading
import time
from collections.abc import Callable, Mapping

import sqlalchemy as sa
from oslo_log import log

from placement.cache import loader
from placement.cache.snapshot import Changes, Snapshot, SnapshotBuilder
from placement.db import change_log, errors, migration
from placement.db.api import Database
from placement.db.change_log import ChangeKind, Relation, VersionVector

LOG = log.getLogger(__name__)

#: How long the database may show an older state than that of the snapshot, as a node of a cluster does that has not
#: applied everything yet. After that the database is taken to be restored from a backup, and the cache is reloaded.
STALE_READ_GRACE_SECONDS = 10.0
#: A load of the cache that takes longer is logged at INFO.
SLOW_LOAD_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class CacheVersion:
    """A snapshot, and the version of the database that it is at.

    ``builder`` makes the next snapshots, for one cache in each process. ``refresh`` is the number of the refresh that
    read it.
    """

    snapshot: Snapshot
    vector: VersionVector
    builder: SnapshotBuilder
    refresh: int = 0


class ProviderCache:
    """All resource providers in the memory of one process.

    :param db: its database. Nothing is read before the first call of a method.
    :param clock: a monotonic clock, in seconds.
    :param version: of the cache of the process from which this one was forked. However old it is, it is refreshed
        before it is used, as after a long time without requests.
    """

    def __init__(
        self, db: Database, clock: Callable[[], float] = time.monotonic, version: CacheVersion | None = None
    ) -> None:
        self._db = db
        self._clock = clock
        self._lock = threading.Lock()
        self._version = dataclasses.replace(version, refresh=0) if version else None
        #: The number of refreshes that began.
        self._refreshes = 0
        self._older_since: float | None = None
        self._checked_at = -math.inf

    def current(self) -> Snapshot:
        """Return a committed snapshot of the database that is no older than this call.

        One round trip to the database if nothing changed. Threads may call it at the same time.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        version, refreshes = self._version, self._refreshes
        # Before the lock, also if nothing is loaded: while the database is unavailable every caller fails immediately.
        sums = change_log.Sums.of(self._db.fetch_all(change_log.CHECK)[0])
        self._db.metrics.cache_checked()
        self._checked_at = self._clock()
        if version is not None and sums == version.vector.total:
            self._older_since = None
            return version.snapshot
        return self._refreshed(refreshes, sums)

    def load(self) -> None:
        """Load or refresh the cache when a process starts. If that fails it is logged, and the first search does it."""
        try:
            self.current()
        except errors.DATABASE_ERRORS as error:
            reason = self._schema_problem() or str(error).partition('\n')[0]
            verb = 'refresh' if self.is_loaded else 'load'
            LOG.warning('Cache not %sed at startup; the first search will %s it: %s', verb, verb, reason)

    def _schema_problem(self) -> str | None:
        """Return the problem of the schema; None if there is none or it cannot be read."""
        try:
            self._db.check_schema()
        except migration.WrongSchema as error:
            return str(error)
        except errors.DATABASE_ERRORS:
            pass
        return None

    @property
    def is_loaded(self) -> bool:
        """Whether the cache is loaded, so that a search does not have to do it first."""
        return self._version is not None

    @property
    def seconds_since_check(self) -> float:
        """The time since the cache was last compared with the database."""
        return self._clock() - self._checked_at

    @property
    def version(self) -> CacheVersion | None:
        """The newest snapshot, for the caches of forked processes; None if the cache is not loaded."""
        return self._version

    def _refreshed(self, refreshes: int, sums: change_log.Sums) -> Snapshot:
        """Return a snapshot that another thread has read since the call began, or read one.

        :param refreshes: the number of refreshes that had begun when the call began.
        :param sums: those of the version of the database that the check read.
        """
        with self._lock:
            version = self._version
            if version is not None and (version.refresh > refreshes or version.vector.total == sums):
                return version.snapshot
            self._refreshes += 1
            started = time.monotonic()
            with self._db.reader() as tx:
                made, count = self._refresh(tx, version) if version else (None, 0)
                reloaded = made is None
                if made is None:
                    made = self._load(tx)
                # Set before the transaction ends: even if that fails, the data are valid, and ``builder`` has this
                # version.
                self._version = dataclasses.replace(made, refresh=self._refreshes)
            self._db.metrics.cache_checked()
            if made is not version:
                self._db.metrics.cache_refreshed(
                    made.snapshot.provider_count, count, time.monotonic() - started, reloaded
                )
            return made.snapshot

    def _load(self, tx: sa.Connection) -> CacheVersion:
        started = time.monotonic()

        def report(table: str) -> None:
            seconds = time.monotonic() - started
            if seconds > SLOW_LOAD_SECONDS:
                LOG.info('Loading the cache: read the %s in %.1f s', table, seconds)

        # Keep the garbage collector from traversing the snapshot repeatedly, which takes a fifth of the time of a
        # load, and some later. It has no reference cycles.
        collects = gc.isenabled()
        gc.disable()
        try:
            vector = change_log.read_vector(tx)
            names = loader.load_names(tx)
            snapshot = Snapshot.of(names, loader.load_all(tx, names.classes, report))
        finally:
            if collects:
                gc.enable()
        seconds = time.monotonic() - started
        gc.collect()
        gc.freeze()
        level = log.INFO if seconds > SLOW_LOAD_SECONDS else log.DEBUG
        LOG.log(level, 'Cache loaded: %d resource providers in %.1f s', snapshot.provider_count, seconds)
        self._older_since = None
        return CacheVersion(snapshot, vector, SnapshotBuilder(snapshot))

    def _refresh(self, tx: sa.Connection, version: CacheVersion) -> tuple[CacheVersion | None, int]:
        """Read what changed between ``version`` and the state that ``tx`` sees.

        :returns: the version of ``tx``, or None if everything has to be reloaded; and the number of providers that
            changed.
        """
        vector = change_log.read_vector(tx, version.vector)
        relation = version.vector.relation(vector)
        if relation is Relation.OLDER:
            now = self._clock()
            if self._older_since is None:
                self._older_since = now
            if now - self._older_since < STALE_READ_GRACE_SECONDS:
                return version, 0
            return _reload(f'the database has been older than the cache for {STALE_READ_GRACE_SECONDS} seconds')
        self._older_since = None
        if relation is Relation.SAME:
            return version, 0
        if relation is Relation.DIVERGED:
            return _reload('the change log is partly older and partly newer than the cache')
        try:
            changed = change_log.read_since(tx, version.vector, vector)
        except change_log.LogTruncated:
            return _reload('the change log does not have all entries since the version of the cache')
        if ChangeKind.RELOAD in changed.values():
            return _reload('a command requested it')
        changes = _read_changes(tx, version.snapshot, changed)
        if changes is None:
            return _reload('a resource class was renamed')
        try:
            snapshot = version.builder.next(changes)
        except Exception:
            # A bug, or a write to the tables without the log. Without this, searches would fail until a restart.
            LOG.exception('The cache could not be refreshed')
            return _reload('the refresh failed')
        return dataclasses.replace(version, snapshot=snapshot, vector=vector), len(changed)


def _reload(reason: str) -> tuple[None, int]:
    """Log why everything has to be reloaded, and return what ``_refresh`` returns then."""
    LOG.info('Reloading the cache: %s', reason)
    return None, 0


def _read_changes(tx: sa.Connection, snapshot: Snapshot, changed: Mapping[int, ChangeKind]) -> Changes | None:
    """Read what changed; None if a resource class was renamed, which may concern every provider."""
    by_kind = {kind: [id_ for id_, found in changed.items() if found is kind] for kind in ChangeKind}
    names = loader.load_names(tx) if by_kind[ChangeKind.NAMES] else None
    if names is not None and snapshot.names.renames_class(names):
        return None
    classes = (names or snapshot.names).classes
    return Changes(
        loader.load_providers(tx, by_kind[ChangeKind.PROVIDER], classes),
        loader.load_usages(tx, by_kind[ChangeKind.USAGE], classes),
        names,
    )
