"""The slots of the change log: each write transaction appends its entries under a slot that only it uses meanwhile.

There are as many slots as transactions ever wrote at the same time, in all processes together. Rows are never deleted.
A process takes a free slot when it needs one more, keeps it, and frees its slots when it stops; a slot whose owner has
been silent for an hour is free, too. The clock of the database only keeps the number of slots small. Correctness
depends only on the UPDATE of each transaction, which matches only the sequence number and token that this process
knows: if two processes use one slot, the transaction of one of them is retried with another slot.

As no two transactions use one slot, none waits for another because of the log, and on a cluster no two nodes write the
same row of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping

import sqlalchemy as sa
from oslo_db import api as oslo_db_api
from oslo_db import exception as db_exc
from oslo_log import log

from placement import exception
from placement.db import errors, sql, tables
from placement.db.change_log import NO_PROVIDER, ChangeKind, Position

LOG = log.getLogger(__name__)

#: A process deletes old entries of a slot after each so many transactions, and keeps at least those of so many
#: transactions, so that a snapshot can be refreshed that was not used during many writes.
TRIM_INTERVAL_TRANSACTIONS = 100
KEPT_TRANSACTIONS = 5000

#: Maximum number of retries of taking a slot when another node of a cluster took the same one.
_MAX_TAKE_RETRIES = 10
#: Seconds for which ``settle`` waits for a transaction that still locks its slot, and between two attempts.
_SETTLE_SECONDS = 5.0
_SETTLE_INTERVAL_SECONDS = 0.1

#: SQLite rejects a text of more than a megabyte.
_MAX_ENTRIES_PER_STATEMENT = 10000
_slots = tables.change_log_slots

Begin = Callable[[], contextlib.AbstractContextManager[sa.Connection]]


class SlotTaken(db_exc.RetryRequest):
    """Another process wrote under the slot: the transaction is retried with another one."""

    def __init__(self) -> None:
        super().__init__(exception.ConcurrentProviderUpdate())


class CommitFailed(Exception):
    """COMMIT failed with ``__cause__``, but the transaction may be committed: ``ChangeLogSlots.settle`` decides."""

    def __init__(self, slot: Slot) -> None:
        super().__init__()
        self.slot = slot


class Outcome(enum.Enum):
    """The outcome of a transaction whose COMMIT failed."""

    COMMITTED = 'committed'
    NOT_COMMITTED = 'not committed'
    UNKNOWN = 'unknown'


class Slot:
    """A row of ``placement_change_log_slots``.

    ``sequence`` and ``token`` are those of the newest transaction that was committed. ``next_token`` is that of the
    running transaction, None before its last statements. ``committing``: its COMMIT may have been sent.
    """

    def __init__(self, slot_id: int, sequence: int, token: int) -> None:
        self.slot_id = slot_id
        self.sequence = sequence
        self.token = token
        self.next_token: int | None = None
        self.committing = False

    def statements(self, dialect: str, changes: Mapping[int, ChangeKind]) -> Iterator[str]:
        """Yield the last statements of a transaction: they increment the slot and insert its entries.

        Pass the row count of the first one to ``check``. On PostgreSQL one statement does both, unless there are more
        than 10,000 providers. Text takes half the time of an INSERT of SQLAlchemy, and every claim executes it.

        :param changes: kinds of change by provider id, at least one.
        """
        self.next_token = secrets.randbelow(2**48 - 1) + 1
        key = f'{self.slot_id}, {self.sequence + 1}, {self.next_token}'
        increment = (
            f'UPDATE placement_change_log_slots SET sequence = {self.sequence + 1}, token = {self.next_token},'  # noqa: S608
            f' updated_at = {sql.UTC_NOW[dialect]}'
            f' WHERE id = {self.slot_id} AND sequence = {self.sequence} AND token = {self.token}'
        )
        into = 'INSERT INTO placement_change_log (slot_id, sequence, token, provider_id, kind)'
        rows = [f'({key}, {int(id_)}, {int(kind)})' for id_, kind in sorted(changes.items())]
        chunks = [', '.join(chunk) for chunk in sql.chunks(rows, _MAX_ENTRIES_PER_STATEMENT)]
        if dialect == 'postgresql':
            first = f'(VALUES {chunks.pop(0)}) AS entries'
            yield f'WITH slot AS ({increment} RETURNING id) {into} SELECT entries.* FROM slot, {first}'  # noqa: S608
        else:
            yield increment
        for chunk in chunks:
            yield f'{into} VALUES {chunk}'

    def check(self, rows: int) -> None:
        """Verify that the first of ``statements`` changed any rows.

        :raises SlotTaken: none, as the slot has another sequence number or token.
        """
        if not rows:
            raise SlotTaken

    def commit(self) -> None:
        """Remember that the transaction was committed."""
        if self.next_token is not None:
            self.sequence, self.token = self.sequence + 1, self.next_token
        self.rollback()

    def rollback(self) -> None:
        """Discard the transaction."""
        self.next_token = None
        self.committing = False


@dataclasses.dataclass(frozen=True)
class _Owner:
    """A process, identified in the table by a random number, and its slots that no transaction uses."""

    number: int = dataclasses.field(default_factory=lambda: secrets.randbits(62) + 1)
    # ``pop`` and ``append`` of a list need no lock.
    free: list[Slot] = dataclasses.field(default_factory=list)


class ChangeLogSlots:
    """The slots of this process.

    :param begin: begins a transaction that may write, on a connection that was tested.
    """

    def __init__(self, begin: Begin) -> None:
        self._begin = begin
        # By process, so that a forked one does not use its parent's.
        self._owners: dict[tuple[int, int], _Owner] = {}

    @contextlib.contextmanager
    def lease(self) -> Iterator[Slot]:
        """Lease a slot to one transaction, which has to be committed, or rolled back on an exception, in the block.

        The next number counts as used when the COMMIT succeeded, and is used again after a rollback. A slot whose
        transaction may still be open in the server is left to the next owner.

        :raises CommitFailed: instead of an exception of the block that leaves open whether the COMMIT happened.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        owner = self._owner()
        try:
            slot = owner.free.pop()
        except IndexError:
            slot = self._take(owner)
        try:
            yield slot
        except SlotTaken:
            # The slots in the list have been unused for longer than this one, so they were probably taken, too.
            owner.free.clear()
            raise
        except BaseException as error:
            in_doubt = slot.committing and not errors.is_definitely_rolled_back(error)
            if slot.next_token is None or not (in_doubt or isinstance(error, exception.DatabaseUnavailable)):
                slot.rollback()
                owner.free.append(slot)
            if in_doubt and isinstance(error, Exception):
                raise CommitFailed(slot) from error
            raise
        slot.commit()
        owner.free.append(slot)
        if slot.sequence % TRIM_INTERVAL_TRANSACTIONS == 0:
            self._trim(slot)

    def settle(self, slot: Slot) -> Outcome:
        """Find out, on another connection, whether the transaction of a failed COMMIT was committed; free its slot.

        ``NOT_COMMITTED`` guarantees that it cannot be committed later, even if its session is still open in the server.
        So this waits for the row lock, and writes to the slot itself: that makes a late COMMIT fail on every node of a
        cluster.

        :param slot: from ``CommitFailed``.
        """
        if slot.next_token is None:
            return Outcome.UNKNOWN
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            try:
                with self._begin() as tx:
                    outcome = _decide(tx, slot)
                break
            except exception.DatabaseUnavailable:
                outcome = Outcome.UNKNOWN
                break
            except (db_exc.DBError, db_exc.RetryRequest, sa.exc.SQLAlchemyError):
                if time.monotonic() > deadline:
                    outcome = Outcome.UNKNOWN
                    break
            time.sleep(_SETTLE_INTERVAL_SECONDS)
        LOG.warning('A COMMIT failed; according to the change log the transaction is %s.', outcome.value)
        return outcome

    def release(self) -> None:
        """Free the slots of this process that no transaction uses. A failure is not raised: they expire anyway."""
        owner = self._owners.pop(_process(), None)
        if owner is None or not owner.free:
            return
        with _ignoring_failures(), self._begin() as tx:
            which = _slots.c.id.in_([slot.slot_id for slot in owner.free]) & (_slots.c.owner == owner.number)
            tx.execute(_slots.update().where(which).values(owner=None))

    def _owner(self) -> _Owner:
        return self._owners.setdefault(_process(), _Owner())

    def _take(self, owner: _Owner) -> Slot:
        """Take a free slot, or insert one, in a transaction of its own: SQLite has one write transaction at a time."""

        def attempt() -> Slot:
            with self._begin() as tx:
                return _take_free(tx, owner.number) or _insert(tx, owner.number)

        retrying = oslo_db_api.wrap_db_retry(
            retry_interval=0.01,
            max_retry_interval=0.25,
            max_retries=_MAX_TAKE_RETRIES,
            jitter=True,
            exception_checker=errors.is_conflict,
        )
        slot: Slot = retrying(attempt)()
        return slot

    def _trim(self, slot: Slot) -> None:
        upto = slot.sequence - KEPT_TRANSACTIONS
        if upto > 0:
            with _ignoring_failures(), self._begin() as tx:
                entries = tables.change_log.c
                which = (entries.slot_id == slot.slot_id) & (entries.sequence <= upto)
                tx.execute(tables.change_log.delete().where(which))


def _process() -> tuple[int, int]:
    """Return what distinguishes this process from its ancestors, even if the operating system uses a number again."""
    return os.getpid(), os.getppid()


def _take_free(tx: sa.Connection, owner: int) -> Slot | None:
    """Make ``owner`` the owner of a free slot; None if there is none.

    :raises SlotTaken: another process took it first, on a database without SKIP LOCKED.
    """
    hour_ago, in_an_hour = sql.utc_hours_from_now(tx.dialect, -1), sql.utc_hours_from_now(tx.dialect, 1)
    # Times beyond the next hour mean that the clock was wrong.
    is_free = _slots.c.owner.is_(None) | ~_slots.c.updated_at.between(hour_ago, in_an_hour)
    query = sa.select(_slots.c.id, _slots.c.sequence, _slots.c.token).where(is_free).order_by(_slots.c.id).limit(1)
    if sql.has_skip_locked(tx.dialect):
        query = query.with_for_update(skip_locked=True)
    row = tx.execute(query).first()
    if row is None:
        return None
    take = _slots.update().where(_slots.c.id == row.id, is_free)
    taken = tx.execute(take.values(owner=owner, updated_at=sql.utc_now(tx.dialect)))
    if not taken.rowcount:
        raise SlotTaken
    return Slot(*row)


def _insert(tx: sa.Connection, owner: int) -> Slot:
    inserted = tx.execute(_slots.insert().values(sequence=0, token=0, owner=owner))
    return Slot(sql.new_id(inserted), 0, 0)


def append_reload(connection: sa.Connection) -> None:
    """Append, under a new slot, that anything may have changed; for the adoption, which has no slots yet."""
    inserted = connection.execute(_slots.insert().values(sequence=0, token=0))
    slot = Slot(sql.new_id(inserted), 0, 0)
    for text in slot.statements(connection.dialect.name, {NO_PROVIDER: ChangeKind.RELOAD}):
        connection.exec_driver_sql(text)


def _decide(tx: sa.Connection, slot: Slot) -> Outcome:
    """Decide whether the transaction of a slot was committed; prevent it from being committed later; free the slot.

    :raises RetryRequest: this is a node of a cluster that has not applied the earlier transactions of the slot.
    :raises DBError: the slot is locked, so the transaction is still open in the server.
    """
    position = sa.select(_slots.c.sequence, _slots.c.token).where(_slots.c.id == slot.slot_id)
    row = tx.execute(position.with_for_update(nowait=True)).first()
    found = Position(*row) if row is not None else Position(0, 0)
    if found.sequence < slot.sequence:
        raise db_exc.RetryRequest(exception.ConcurrentProviderUpdate())
    if found == (slot.sequence, slot.token):
        outcome = Outcome.NOT_COMMITTED
        fence = Slot(slot.slot_id, *found)
        # The smallest change that readers can refresh with.
        for text in fence.statements(tx.dialect.name, {NO_PROVIDER: ChangeKind.NAMES}):
            tx.exec_driver_sql(text)
    elif found == (slot.sequence + 1, slot.next_token):
        outcome = Outcome.COMMITTED
    else:
        outcome = _outcome_of_entry(tx, slot)
    tx.execute(_slots.update().where(_slots.c.id == slot.slot_id).values(owner=None))
    return outcome


def _outcome_of_entry(tx: sa.Connection, slot: Slot) -> Outcome:
    """Decide by the entry that has the number of the transaction, after another process continued with the slot."""
    entry = sa.select(tables.change_log.c.token).where(
        tables.change_log.c.slot_id == slot.slot_id, tables.change_log.c.sequence == slot.sequence + 1
    )
    token = tx.scalar(entry.limit(1))
    if token is None:
        return Outcome.UNKNOWN
    return Outcome.COMMITTED if token == slot.next_token else Outcome.NOT_COMMITTED


@contextlib.contextmanager
def _ignoring_failures() -> Iterator[None]:
    """Suppress every exception, as the work in the block can be done later. Unexpected ones are logged."""
    try:
        yield
    except exception.DatabaseUnavailable:
        pass
    except Exception as error:
        if not errors.is_conflict(error):
            LOG.warning('Trimming the change log or freeing its slots failed.', exc_info=True)
