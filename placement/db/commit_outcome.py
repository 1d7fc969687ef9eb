"""Finds out, after a COMMIT that failed, whether the transaction was committed: the change log shows it.

doc/database.md#a-commit-that-fails has the cases, what the client gets, and why that is right.
"""

from __future__ import annotations

import contextlib
import enum
import math
import time
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from oslo_log import log

from placement import exception
from placement.db import change_log, errors, retries, tables
from placement.db.change_log import NO_PROVIDER, ChangeKind, Slot
from placement.db.errors import RetryTransaction

LOG = log.getLogger(__name__)

#: How long ``find_outcome`` waits for a transaction that still locks its slot, and the interval of its attempts.
_SETTLE_SECONDS = 5.0
_SETTLE_INTERVAL_SECONDS = 0.1

_slots = tables.change_log_slots


class CommitOutcome(enum.Enum):
    """What became of a transaction."""

    COMMITTED = 'committed'
    NOT_COMMITTED = 'not committed'
    UNKNOWN = 'unknown'


def find_outcome(
    transaction: Callable[[], contextlib.AbstractContextManager[sa.Connection]],
    slot: Slot,
    owner: int,
    failure: exception.CommitInDoubt,
) -> CommitOutcome:
    """Find out, on another connection, whether the transaction of a failed COMMIT was committed. Free its slot.

    ``NOT_COMMITTED`` guarantees that the transaction cannot be committed later, and ``COMMITTED`` that it is not lost
    if a synchronous standby replaces the server. For these two guarantees the look-up also writes to the slot.

    :param transaction: ``Database.slot_transaction``.
    :param slot: the slot under which the transaction appended its entries. This process must not use it again.
    :param owner: identifies this process in the table. Another process that has taken the slot since keeps it.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS

    def decide() -> CommitOutcome:
        with transaction() as tx:
            row = _lock_row(tx, slot)
            decided = _outcome(tx, slot, row)
            if decided is CommitOutcome.NOT_COMMITTED and row.sequence == slot.sequence:
                # The session may still be open on another node of a cluster. Its guard must match nothing, so the slot
                # gets a later number, as if another process had used it. Without an entry, readers would reload; of the
                # kinds of change without a provider, ``NAMES`` costs them less.
                newest = Slot(slot.slot_id, row.sequence, row.token)
                change_log.append_entries(tx, newest, {NO_PROVIDER: ChangeKind.NAMES})
            # What was read is lost with the server if its standbys lack it. COMMIT waits for them only after a write,
            # and MySQL and MariaDB do not write a row that stays the same. So it first gets 0, which is no owner.
            for new_owner in (0, None if row.owner == owner else row.owner):
                tx.execute(_slots.update().where(_slots.c.id == slot.slot_id).values(owner=new_owner))
        return decided

    def is_temporary(error: Exception) -> bool:
        is_conflict = isinstance(error, RetryTransaction) or errors.is_conflict(error)
        return is_conflict and time.monotonic() < deadline

    try:
        outcome = retries.retry(decide, is_temporary, retries=math.inf, interval=_SETTLE_INTERVAL_SECONDS)
    except (RetryTransaction, *errors.DATABASE_ERRORS):
        outcome = CommitOutcome.UNKNOWN
    except Exception:
        # Also after a bug the client must hear that the change may have been made.
        LOG.exception('Looking up the outcome of a COMMIT failed.')
        outcome = CommitOutcome.UNKNOWN
    reason = str(failure.__cause__).partition('\n')[0]
    LOG.warning('A COMMIT failed. According to the change log, its outcome is: %s. %s', outcome.value, reason)
    return outcome


def _lock_row(tx: sa.Connection, slot: Slot) -> Any:
    """Lock a slot until the end of the transaction. This fails while the transaction of the slot is still open.

    :returns: its ``sequence``, ``token`` and ``owner``.
    :raises RetryTransaction: this node of a cluster has not applied the earlier transactions of the slot.
    """
    query = sa.select(_slots.c.sequence, _slots.c.token, _slots.c.owner).where(_slots.c.id == slot.slot_id)
    row = tx.execute(query.with_for_update(nowait=True)).first()
    if row is None or row.sequence < slot.sequence:
        raise RetryTransaction
    return row


def _outcome(tx: sa.Connection, slot: Slot, row: Any) -> CommitOutcome:
    """Return what the log says of the transaction of a slot whose row is ``row``."""
    newest = (row.sequence, row.token)
    if newest == (slot.sequence + 1, slot.next_token):
        return CommitOutcome.COMMITTED
    if newest == (slot.sequence, slot.token):
        return CommitOutcome.NOT_COMMITTED
    # Another process has used the slot since. It may also have written the entry with the number of the transaction.
    entries = tables.change_log.c
    entry = (entries.slot_id == slot.slot_id) & (entries.sequence == slot.sequence + 1)
    token = tx.scalar(sa.select(entries.token).where(entry).limit(1))
    if token is None:
        return CommitOutcome.UNKNOWN
    return CommitOutcome.COMMITTED if token == slot.next_token else CommitOutcome.NOT_COMMITTED
