"""Keeps the cache of one process up to date with the database (doc/cache.md#how-it-detects-changes).

Before each search ``ProviderCache.up_to_date`` reads the sums of the slots of the change log, in one statement without
a transaction. If they equal the sums of the snapshot, it is up to date. Otherwise one thread at a time, under a lock of
the process, reads the changes: in one statement if there are few slots and changes, all by claims, else in one
transaction. If log entries are missing, it reads everything. It takes no locks in the database. Only single statements
are retried. After an error, which goes to the caller, the snapshot stays the same. ``background_refresh`` does the same
between searches.
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
from placement.cache.inventory_columns import Integers
from placement.cache.snapshot import Changes, KnownNames, Snapshot
from placement.db import change_log, errors, migration, sql
from placement.db.api import Database
from placement.db.change_log import ChangeKind, LogPosition, RecentChanges, Relation

LOG = log.getLogger(__name__)

_Rows = list[Integers]

#: How long the database may show an older state than the snapshot: a node of a cluster may not have applied all changes
#: yet. After this time the service assumes that the database was restored from a backup, and reloads the cache.
STALE_READ_GRACE_SECONDS = 10.0
#: If loading the cache takes longer, this is logged at INFO.
SLOW_LOAD_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class CacheState:
    """A snapshot, and its position in the change log.

    ``refresh`` is the number of the refresh that read the snapshot.
    """

    snapshot: Snapshot
    log_position: LogPosition
    refresh: int = 0


class ProviderCache:
    """All resource providers in the memory of one process.

    :param db: the database. Nothing is read before the first call of a method.
    :param clock: a monotonic clock, in seconds.
    :param state: the state of the cache in the process from which this one was forked. It may be old, because it is
        refreshed before its first use.
    """

    def __init__(
        self, db: Database, clock: Callable[[], float] = time.monotonic, state: CacheState | None = None
    ) -> None:
        self._db = db
        self._clock = clock
        self._lock = threading.Lock()
        self._state = dataclasses.replace(state, refresh=0) if state else None
        #: The number of refreshes that began.
        self._refreshes = 0
        #: The error of the last refresh if it failed, as long as threads wait for it.
        self._failure: Exception | None = None
        #: The threads that refresh the cache or wait for it.
        self._waiting: set[int] = set()
        self._older_since: float | None = None
        self._checked_at = -math.inf

    def up_to_date(self) -> Snapshot:
        """Return a committed snapshot of the database that is not older than this call.

        If nothing changed, this takes one round trip to the database. Threads may call it at the same time.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        state, refreshes = self._state, self._refreshes
        # Read this before taking the lock, even if nothing is loaded: without a database, all callers fail immediately.
        sums = self._db.read(change_log.read_sums)
        self._db.metrics.cache_checked()
        self._checked_at = self._clock()
        if state is not None and sums == state.log_position.total:
            self._older_since = None
            return state.snapshot
        return self._refreshed(refreshes, sums)

    def load(self) -> None:
        """Load or refresh the cache when a process starts. Log a failure; then the first search will do it."""
        try:
            self.up_to_date()
            return
        except errors.DATABASE_ERRORS as error:
            reason = self._schema_problem() or str(error).partition('\n')[0]
        verb = 'refreshed' if self.is_loaded else 'loaded'
        # This is not in the except clause, because there oslo.log adds the exception to the line.
        LOG.warning('The cache was not %s at startup; the first search will do it: %s', verb, reason)

    def _schema_problem(self) -> str | None:
        """Return the problem of the schema; None if there is no problem or the schema cannot be read."""
        try:
            migration.check_revision(self._db.engine)
        except migration.WrongSchema as error:
            return str(error)
        except errors.DATABASE_ERRORS:
            pass
        return None

    @property
    def is_loaded(self) -> bool:
        """Whether the cache is loaded. If not, the first search has to load it."""
        return self._state is not None

    @property
    def seconds_since_check(self) -> float:
        """The time since the cache was last compared with the database."""
        return self._clock() - self._checked_at

    @property
    def state(self) -> CacheState | None:
        """The newest snapshot, for the caches of forked processes; None if the cache is not loaded."""
        return self._state

    def _refreshed(self, refreshes: int, sums: change_log.Sums) -> Snapshot:
        """Return a snapshot that another thread has read since the call began, or read one.

        If a refresh that began after the call fails, the call fails with the same error. So while the database does not
        respond, waiting threads do not try one after the other.

        :param refreshes: the number of refreshes that had begun when the call began.
        :param sums: the sums that the check read.
        """
        thread = threading.get_ident()
        self._waiting.add(thread)
        try:
            with self._lock:
                state = self._state
                if state is not None and (state.refresh > refreshes or state.log_position.total == sums):
                    return state.snapshot
                if self._failure is not None and self._refreshes > refreshes:
                    raise self._failure
                self._refreshes += 1
                self._failure = None
                try:
                    return self._read(state)
                except Exception as error:
                    self._failure = error
                    raise
        finally:
            self._waiting.discard(thread)
            # The traceback of the error has frames, which have all that the failed refresh has read.
            if not self._waiting:
                self._failure = None

    def _read(self, state: CacheState | None) -> Snapshot:
        """Refresh the cache from ``state``, or load it."""
        started = time.monotonic()
        newest, recent = self._read_claims(state, self._db.read) if state else (None, None)
        count, reloaded = len(recent.changed) if recent else 0, False
        if newest is not None:
            self._state = dataclasses.replace(newest, refresh=self._refreshes)
        else:
            with self._db.reader() as tx:
                newest, count = self._refresh(tx, state, recent) if state else (None, 0)
                reloaded = newest is None and state is not None
                if newest is None:
                    newest = self._load(tx)
                # Set this before the transaction ends. Even if the end fails, the data are valid, and the next snapshot
                # has to follow from them.
                self._state = dataclasses.replace(newest, refresh=self._refreshes)
        self._db.metrics.cache_checked()
        if newest is not state:
            seconds = time.monotonic() - started
            self._db.metrics.cache_refreshed(newest.snapshot.provider_count, count, seconds, reloaded)
        return newest.snapshot

    def _load(self, tx: sa.Connection) -> CacheState:
        started = time.monotonic()

        def report(table: str) -> None:
            seconds = time.monotonic() - started
            if seconds > SLOW_LOAD_SECONDS:
                LOG.info('Loading the cache: read the %s in %.1f s', table, seconds)

        # Prevent the garbage collector from traversing the snapshot repeatedly. This would take a fifth of the time of
        # a load, and more time later. A snapshot has no reference cycles.
        collects = gc.isenabled()
        gc.disable()
        try:
            log_position = change_log.read_log_position(tx)
            names = loader.load_names(tx)
            snapshot = Snapshot.build(names, loader.read_providers(tx, names.classes, report=report))
        finally:
            if collects:
                gc.enable()
        seconds = time.monotonic() - started
        gc.collect()
        gc.freeze()
        level = log.INFO if seconds > SLOW_LOAD_SECONDS else log.DEBUG
        LOG.log(level, 'Cache loaded: %d resource providers in %.1f s', snapshot.provider_count, seconds)
        self._older_since = None
        return CacheState(snapshot, log_position)

    def _read_claims(
        self, state: CacheState, read: Callable[[Callable[[sa.Connection], _Rows]], _Rows]
    ) -> tuple[CacheState | None, RecentChanges | None]:
        """Read what claims changed since ``state``, in one statement, which needs no transaction to see one state.

        :param read: ``Database.read``.
        :returns: the new state, None if a transaction has to read the changes; and what changed, None if it is unknown.
        """
        position = state.log_position
        if position.total.slots > change_log.MAX_SLOTS_PER_STATEMENT:
            return None, None
        common, *log_queries = change_log.recent_log(position)

        def execute(tx: sa.Connection) -> _Rows:
            usage_queries = loader.usage_queries(tx, change_log.IN_RECENT_CLAIMS)
            return sql.fetch_integers(tx, *log_queries, *usage_queries, common=common)

        slots, entries, providers, used = read(execute)
        recent = change_log.recent_changes(position, slots, entries)
        if recent is None or set(recent.changed.values()) != {ChangeKind.USAGE}:
            return None, recent
        try:
            usages = loader.usages_of(list(recent.changed), providers, used, state.snapshot.names.classes)
            snapshot = state.snapshot.next(Changes({}, usages))
        except KeyError:
            # The transaction finds the same, and reports it.
            return None, recent
        self._older_since = None
        return dataclasses.replace(state, snapshot=snapshot, log_position=recent.position), recent

    def _refresh(
        self, tx: sa.Connection, state: CacheState, recent: RecentChanges | None
    ) -> tuple[CacheState | None, int]:
        """Read what changed between ``state`` and the state that ``tx`` sees.

        :param recent: what changed up to a position, perhaps up to the position of ``tx``.
        :returns: the state of ``tx``, or None if everything has to be reloaded; and the number of changed providers.
        """
        log_position = change_log.read_log_position(tx)
        relation = state.log_position.relation(log_position)
        if relation is Relation.OLDER:
            now = self._clock()
            if self._older_since is None:
                self._older_since = now
            if now - self._older_since < STALE_READ_GRACE_SECONDS:
                return state, 0
            return _reload(f'the database has been older than the cache for {STALE_READ_GRACE_SECONDS} seconds')
        self._older_since = None
        if relation is Relation.SAME:
            return state, 0
        if relation is Relation.DIVERGED:
            return _reload('the change log is partly older and partly newer than the cache')
        try:
            changed = (
                recent.changed
                if recent is not None and recent.position == log_position
                else change_log.read_since(tx, state.log_position, log_position)
            )
        except change_log.LogTruncated:
            return _reload('the change log does not have all entries since the cache was last refreshed')
        if ChangeKind.RELOAD in changed.values():
            return _reload('a command requested it')
        changes = _read_changes(tx, state.snapshot, changed)
        if changes is None:
            return _reload('a resource class was renamed')
        try:
            snapshot = state.snapshot.next(changes)
        except Exception:
            # This is a bug, or a write to the tables that is not in the log. Without a reload, searches would fail
            # until a restart.
            LOG.exception('The cache could not be refreshed')
            return _reload('the refresh failed')
        return dataclasses.replace(state, snapshot=snapshot, log_position=log_position), len(changed)


def _reload(reason: str) -> tuple[None, int]:
    """Log why everything has to be reloaded. Return the result for ``_refresh``."""
    LOG.info('Reloading the cache: %s', reason)
    return None, 0


def _read_changes(tx: sa.Connection, snapshot: Snapshot, changed: Mapping[int, int]) -> Changes | None:
    """Read what changed; None if a resource class was renamed, because this may affect every provider."""
    by_kind: dict[int, list[int]] = {kind: [] for kind in ChangeKind}
    for id_, kind in changed.items():
        by_kind[kind].append(id_)
    names: KnownNames | None = None
    if entries := by_kind[ChangeKind.NAMES]:
        # Read only the new names, unless names were renamed or deleted.
        new = change_log.new_names(entries) if len(entries) <= sql.MAX_VALUES_PER_STATEMENT else None
        names = loader.load_names(tx) if new is None else snapshot.names.with_names(loader.load_names(tx, *new))
        if snapshot.names.renames_class(names):
            return None
    classes = (names or snapshot.names).classes
    return Changes(
        loader.load_providers(tx, by_kind[ChangeKind.PROVIDER], classes),
        loader.load_usages(tx, by_kind[ChangeKind.USAGE], classes),
        names,
    )
