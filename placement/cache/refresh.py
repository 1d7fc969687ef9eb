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
from placement.db import change_log, change_log_reader, errors, migration, sql
from placement.db.api import Database
from placement.db.change_log import ChangeKind
from placement.db.change_log_reader import LogPosition, RecentChanges, Relation

LOG = log.getLogger(__name__)

_Rows = list[Integers]

#: How long the database may show an older state than the snapshot: a node of a cluster may not have applied all changes
#: yet. After this time the service assumes that the database was restored from a backup, and reloads the cache.
STALE_READ_GRACE_SECONDS = 10.0
#: If loading the cache takes longer, this is logged at INFO.
SLOW_LOAD_SECONDS = 2.0


@dataclasses.dataclass(frozen=True)
class CacheState:
    """A snapshot, and its position in the change log."""

    snapshot: Snapshot
    log_position: LogPosition
    #: The number of the refresh that read the snapshot.
    refresh: int = 0
    #: The number of providers that this refresh found changed; 0 if it read all.
    changed: int = 0


class _ReloadNeeded(Exception):
    """Anything may have changed; the message says why."""


class ProviderCache:
    """All resource providers in the memory of one process.

    :param db: the database. Nothing is read before the first call of a method.
    :param clock: a monotonic clock, in seconds.
    :param state: the state of the cache in the process from which this one was forked. It may be old, because it is
        refreshed before its first use. If the database is older, a backup was restored: this process has not seen
        anything newer.
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
        #: Since when the database has been older than the cache; None if it is not.
        self._older_since: float | None = None if state is None else -math.inf
        #: The reason of a reload that was logged, until a load succeeds.
        self._reload_reason: str | None = None
        self._checked_at = -math.inf

    def up_to_date(self) -> Snapshot:
        """Return a committed snapshot of the database that is not older than this call.

        If nothing changed, this takes one round trip to the database. Threads may call it at the same time.

        :raises DatabaseUnavailable: the database cannot be reached.
        """
        state, refreshes = self._state, self._refreshes
        # This comes before the lock, even if nothing is loaded: without a database, all callers fail immediately.
        try:
            sums = self._db.read(change_log_reader.read_sums)
        except (errors.SchemaMissing, errors.IncompleteDatabase):
            # A backup is being restored, so an older state of the database is final.
            self._older_since = -math.inf
            raise
        self._db.metrics.cache_checked.set_to_current_time()
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

    def _refreshed(self, refreshes: int, sums: change_log_reader.Sums) -> Snapshot:
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

    @loader.collector_paused()
    def _read(self, state: CacheState | None) -> Snapshot:
        """Refresh the cache from ``state``, or load it."""
        started, reloads = time.monotonic(), False
        newest, recent = self._read_claims(state, self._db.read) if state else (None, None)
        if newest is not None:
            self._state = dataclasses.replace(newest, refresh=self._refreshes)
        else:
            with self._db.reader() as tx:
                if state is not None:
                    newest = self._refresh(tx, state, recent)
                    reloads = newest is None
                newest = newest or self._load(tx)
                # Set this before the transaction ends. Even if the end fails, the data are valid, and the next snapshot
                # has to follow from them.
                self._state = dataclasses.replace(newest, refresh=self._refreshes)
        self._db.metrics.cache_checked.set_to_current_time()
        if newest is not state:
            seconds = time.monotonic() - started
            self._db.metrics.cache_refreshed(newest.snapshot.provider_count, newest.changed, seconds, reloads)
        return newest.snapshot

    def _load(self, tx: sa.Connection) -> CacheState:
        """Read all tables.

        :raises IncompleteDatabase: a backup is being restored, or the tables contradict each other.
        """
        started = time.monotonic()

        def report(table: str) -> None:
            seconds = time.monotonic() - started
            if seconds > SLOW_LOAD_SECONDS:
                LOG.info('Loading the cache: read the %s in %.1f s', table, seconds)

        # This comes first, so that the transaction sees all rows of tables that are complete here.
        loader.raise_unless_restored(tx)
        log_position = change_log_reader.read_log_position(tx)
        snapshot = loader.load_snapshot(tx, report)
        seconds = time.monotonic() - started
        # Later collections do not traverse the snapshot.
        gc.collect()
        gc.freeze()
        level = log.INFO if seconds > SLOW_LOAD_SECONDS else log.DEBUG
        LOG.log(level, 'Cache loaded: %d resource providers in %.1f s', snapshot.provider_count, seconds)
        self._older_since = self._reload_reason = None
        return CacheState(snapshot, log_position)

    def _read_claims(
        self, state: CacheState, read: Callable[[Callable[[sa.Connection], _Rows]], _Rows]
    ) -> tuple[CacheState | None, RecentChanges | None]:
        """Read what claims changed since ``state``, in one statement, which needs no transaction to see one state.

        :param read: ``Database.read``.
        :returns: the new state, None if a transaction has to read the changes; and what changed, None if it is unknown.
        """
        position, recent = state.log_position, None
        if position.total.slots > change_log_reader.MAX_SLOTS_PER_STATEMENT:
            return None, None

        def execute(tx: sa.Connection) -> _Rows:
            common, *log_queries = change_log_reader.recent_log(tx.dialect, position)
            usage_queries = loader.usage_queries(tx, change_log_reader.IN_RECENT_CLAIMS)
            return sql.fetch_integers(tx, *log_queries, *usage_queries, common=common)

        try:
            slots, entries, providers, used = read(execute)
            recent = change_log_reader.recent_changes(position, slots, entries)
            if recent is None or set(recent.changed.values()) != {ChangeKind.USAGE}:
                return None, recent
            usages = loader.usages_of(list(recent.changed), providers, used, state.snapshot.names.classes)
            snapshot = state.snapshot.next(Changes({}, usages))
        except (KeyError, sql.TruncatedResult):
            # The transaction finds the same, and reports it.
            return None, recent
        self._older_since = None
        return CacheState(snapshot, recent.position, changed=len(recent.changed)), recent

    def _refresh(self, tx: sa.Connection, state: CacheState, recent: RecentChanges | None) -> CacheState | None:
        """Read what changed between ``state`` and the state that ``tx`` sees.

        :param recent: what changed up to a position, perhaps up to the position of ``tx``.
        :returns: the state of ``tx``; ``state`` itself if that is the same, or an older one for now; None if everything
            has to be reloaded.
        """
        log_position = change_log_reader.read_log_position(tx)
        relation = state.log_position.relation(log_position)
        if relation is Relation.OLDER:
            if self._may_lag(tx):
                return state
            self._log_reload(f'the database has been older than the cache for {STALE_READ_GRACE_SECONDS} seconds')
            return None
        self._older_since = None
        if relation is Relation.SAME:
            return state
        if relation in _RELOADS:
            self._log_reload(_RELOADS[relation])
            return None
        try:
            changed = (
                recent.changed
                if recent is not None and recent.position == log_position
                else change_log_reader.read_since(tx, state.log_position, log_position)
            )
            snapshot = state.snapshot.next(_read_changes(tx, state.snapshot, changed))
        except (change_log_reader.LogTruncated, _ReloadNeeded) as error:
            self._log_reload(str(error))
            return None
        except errors.DATABASE_ERRORS:
            raise
        except Exception:
            # This is a bug, or a write to the tables that is not in the log. Without a reload, searches would fail
            # until a restart.
            self._log_reload('the refresh failed', is_bug=True)
            return None
        return CacheState(snapshot, log_position, changed=len(changed))

    def _log_reload(self, reason: str, *, is_bug: bool = False) -> None:
        """Log why everything has to be reloaded, once until that has succeeded.

        :param is_bug: whether to log the exception that is being handled.
        """
        if reason != self._reload_reason:
            self._reload_reason = reason
            if is_bug:
                LOG.exception('The cache could not be refreshed')
            LOG.info('Reloading the cache: %s', reason)

    def _may_lag(self, tx: sa.Connection) -> bool:
        """Return whether a database that is older than the cache may be a node of a cluster that will soon catch up.

        A new process, which has the cache of its parent, does not wait for it. A primary of PostgreSQL never lags.
        """
        if tx.dialect.name == 'postgresql' and not tx.scalar(sa.select(sa.func.pg_is_in_recovery())):
            return False
        now = self._clock()
        if self._older_since is None:
            self._older_since = now
        return now - self._older_since < STALE_READ_GRACE_SECONDS


#: Why the cache is reloaded if the database is neither newer nor older.
_RELOADS = {
    Relation.DIVERGED: 'the change log is partly older and partly newer than the cache',
    Relation.REPLACED: 'the tables were created again, as when a backup is restored',
}


def _read_changes(tx: sa.Connection, snapshot: Snapshot, changed: Mapping[int, int]) -> Changes:
    """Read what changed.

    :raises _ReloadNeeded: anything may have changed.
    """
    if ChangeKind.RELOAD in changed.values():
        raise _ReloadNeeded('a command requested it')
    by_kind: dict[int, list[int]] = {kind: [] for kind in ChangeKind}
    for id_, kind in changed.items():
        by_kind[kind].append(id_)
    names: KnownNames | None = None
    if entries := by_kind[ChangeKind.NAMES]:
        # Read only the new names, unless names were renamed or deleted.
        new = change_log.new_names(entries) if len(entries) <= sql.MAX_VALUES_PER_STATEMENT else None
        names = loader.load_names(tx) if new is None else snapshot.names.with_names(loader.load_names(tx, *new))
        if snapshot.names.renames_class(names):
            raise _ReloadNeeded('a resource class was renamed')
    classes = (names or snapshot.names).classes
    return Changes(
        loader.load_providers(tx, by_kind[ChangeKind.PROVIDER], classes),
        loader.load_usages(tx, by_kind[ChangeKind.USAGE], classes),
        names,
    )
