"""The slots of the change log. Each write transaction appends its entries under a slot of its own.

If a process needs one more slot, it takes a free one or inserts one. It keeps its slots until it stops, and then frees
them. So it has at most as many slots as it ever had write transactions at the same time. No slot is ever deleted.

A slot is also free if its owner has been silent for an hour by the clock of the database. Even if two processes use one
slot, nothing goes wrong: the UPDATE of each transaction matches only the sequence number and token that its process
knows, so the transaction of one process is retried with another slot.

Concurrent transactions use different slots. So none waits for another because of the log, and two nodes of a cluster
never write the same row of it.
"""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable

import sqlalchemy as sa
from oslo_log import log

from placement import exception
from placement.db import errors, sql, tables
from placement.db.change_log import NO_PROVIDER, ChangeKind, Slot, SlotState, SlotTaken, append_entries, no_slots
from placement.db.errors import RetryTransaction

LOG = log.getLogger(__name__)

#: After this number of transactions under a slot, its old entries are due for deletion. The entries of the last
#: ``KEPT_TRANSACTIONS`` stay, so that a snapshot can be refreshed even if it was not used during many writes.
TRIM_INTERVAL_TRANSACTIONS = 100
KEPT_TRANSACTIONS = 5000

#: A slot is free if its owner has been silent for longer than this.
_MAX_SILENCE_MICROSECONDS = 3600 * 10**6

_slots = tables.change_log_slots


class ChangeLogSlots:
    """The slots of this process.

    :param transaction: ``Database.slot_transaction``.
    """

    def __init__(self, transaction: Callable[[], contextlib.AbstractContextManager[sa.Connection]]) -> None:
        self._transaction = transaction
        self.forget()
        #: The ids of slots with old entries.
        self._untrimmed: set[int] = set()
        #: Whether a thread calls ``trim``. Otherwise ``committed`` does, and the caller of that write waits for it.
        self.is_trimmed_in_background = False

    def forget(self) -> None:
        """Begin without slots, as another process."""
        #: A random number that identifies the process in the table.
        self.owner = secrets.randbits(62) + 1
        #: The slots that no transaction uses. Threads share the list without a lock: ``pop`` and ``append`` are atomic.
        self._idle: list[Slot] = []

    def lease(self) -> Slot:
        """Give a slot to one transaction. When this has ended, call ``committed`` or ``failed``.

        :raises RetryTransaction: another process took the slot first, on a database without SKIP LOCKED.
        :raises DatabaseUnavailable: the database cannot be reached.
        """
        try:
            return self._idle.pop()
        except IndexError:
            return self._take()

    def committed(self, slot: Slot) -> None:
        """Take back the slot of a transaction that was committed."""
        if slot.state is SlotState.SENT:
            slot = Slot(slot.slot_id, slot.sequence + 1, slot.next_token)
        if slot.sequence % TRIM_INTERVAL_TRANSACTIONS == 0 and slot.sequence > KEPT_TRANSACTIONS:
            self._untrimmed.add(slot.slot_id)
            if not self.is_trimmed_in_background:
                self.trim()
        self._idle.append(slot)

    def failed(self, slot: Slot, error: BaseException) -> None:
        """Take back the slot of a transaction that failed with ``error``, if it is ``UNCHANGED``.

        Otherwise the server may keep the slot locked until it notices that the connection has ended, so this process
        does not use it again. After ``SlotTaken`` the slot is another process's, like all idle ones, which were not
        used for even longer.
        """
        if isinstance(error, SlotTaken):
            self._idle.clear()
        elif slot.state is SlotState.UNCHANGED:
            self._idle.append(slot)

    def release(self) -> None:
        """Free the slots of this process that no transaction uses. Ignore failures, because the slots expire anyway."""
        if self._idle:
            condition = _slots.c.id.in_([slot.slot_id for slot in self._idle]) & (_slots.c.owner == self.owner)
            self._maintain(lambda tx: tx.execute(_slots.update().where(condition).values(owner=None)))
        self.forget()

    def trim(self) -> None:
        """Delete old entries: of each slot that has some all before the last ``KEPT_TRANSACTIONS``.

        Ignore failures, because the next deletion of the slot includes these entries.
        """
        for slot_id in list(self._untrimmed):
            self._untrimmed.discard(slot_id)

            def delete(tx: sa.Connection, slot_id: int = slot_id) -> None:
                # The database may have been restored since the slot was used. MariaDB and MySQL would lock the row
                # until the end of the transaction if a subquery of the DELETE read it.
                sequence = tx.scalar(sa.select(_slots.c.sequence).where(_slots.c.id == slot_id)) or 0
                entries = tables.change_log.c
                condition = (entries.slot_id == slot_id) & (entries.sequence <= sequence - KEPT_TRANSACTIONS)
                tx.execute(tables.change_log.delete().where(condition))

            self._maintain(delete)

    def _take(self) -> Slot:
        """Take a free slot, or insert one. This is a separate transaction, before the one that needs the slot.

        ``Database.write`` counts a conflict here as a conflict of the transaction that needs the slot. So the limit of
        retries also limits how often a request waits for a lock here.

        :raises RetryTransaction: another process took the slot first, on a database without SKIP LOCKED.
        :raises IncompleteDatabase: there are no slots. A new one would be in the way of the restored ones.
        """
        with self._transaction() as tx:
            updated_at, now = (
                sql.microseconds(tx.dialect, moment) for moment in ('updated_at', sql.UTC_NOW[tx.dialect.name])
            )
            # ABS: a time more than an hour in the future means that the clock was wrong.
            silence = sa.literal_column(f'ABS({updated_at} - {now})', sa.BigInteger)
            is_free = _slots.c.owner.is_(None) | (silence > _MAX_SILENCE_MICROSECONDS)
            query = sa.select(_slots.c.id, _slots.c.sequence, _slots.c.token).where(is_free).order_by(_slots.c.id)
            server = tx.dialect
            is_old_mariadb = getattr(server, 'is_mariadb', False) and (server.server_version_info or ()) < (10, 6)
            if server.name != 'sqlite' and not is_old_mariadb:
                query = query.with_for_update(skip_locked=True)
            row = tx.execute(query.limit(1)).first()
            if row is None:
                if tx.scalar(sa.select(_slots.c.id).limit(1)) is None:
                    raise no_slots()
                slot = Slot(sql.new_id(tx.execute(_slots.insert().values(sequence=0, token=0, owner=self.owner))))
            else:
                slot = Slot(*row)
                take = (
                    _slots.update()
                    .where(_slots.c.id == row.id, is_free)
                    .values(owner=self.owner, updated_at=sql.UtcNow())
                )
                if not tx.execute(take).rowcount:
                    raise RetryTransaction
        return slot

    def _maintain(self, work: Callable[[sa.Connection], object]) -> None:
        """Run a transaction that is not urgent. Log unexpected failures, and raise none."""
        try:
            with self._transaction() as tx:
                work(tx)
        except exception.DatabaseUnavailable:
            pass
        except Exception as error:
            if not errors.is_conflict(error):
                LOG.warning('Trimming the change log or freeing its slots failed.', exc_info=True)


def append_reload(connection: sa.Connection) -> None:
    """Append an entry of the kind ``RELOAD`` under a new slot. Adoption uses this, because it has no slots yet.

    The number is the time, which is larger than any number in a log that the database had before, so no reader takes
    this log for an older state of that one.
    """
    inserted = connection.execute(_slots.insert().values(sequence=0, token=0))
    number = time.time_ns() // 1000
    connection.execute(_slots.update().values(sequence=number).where(_slots.c.id == sql.new_id(inserted)))
    append_entries(connection, Slot(sql.new_id(inserted), number), {NO_PROVIDER: ChangeKind.RELOAD})
