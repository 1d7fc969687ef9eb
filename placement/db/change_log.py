"""The change log: which resource providers each transaction changed, so that every snapshot can be refreshed.

Each transaction of ``Database.write`` records here what it changes. Its last statements increment the sequence number
of a *slot* (``db.change_log_slots``) and insert the entries of the transaction under that number. Only one transaction
at a time uses a slot, so the numbers of a slot become visible in order and without gaps. The slot and the entries also
have a random token for each number, because after a restore of the database another transaction may get this number.

``db.change_log_reader`` reads it. doc/database.md#the-change-log has the protocol.
"""

from __future__ import annotations

import dataclasses
import enum
import secrets
from collections.abc import Iterable, Iterator, Mapping

import sqlalchemy as sa

from placement.db import sql, tables
from placement.db.errors import IncompleteDatabase, RetryTransaction


class ChangeKind(enum.IntEnum):
    """The kind of change in an entry. If one ``provider_id`` has two kinds, the larger includes the smaller."""

    #: Only ``inventories.used`` and the generation of the provider changed.
    USAGE = 1
    #: Something else of the provider changed, or it was created, deleted or moved.
    PROVIDER = 2
    #: Names of resource classes or traits changed. ``provider_id`` is ``NO_PROVIDER``, or encodes the id of a new name.
    NAMES = 3
    #: Anything may have changed. ``provider_id`` is ``NO_PROVIDER``.
    RELOAD = 4


#: The ``provider_id`` of entries that are not about a provider. The ids of providers begin at 1.
NO_PROVIDER = 0

#: Execution option of a connection of ``Database.write``: what its transaction has recorded.
_CHANGES = 'placement_changes'

_INTO = sql.statement('INSERT INTO {log} (slot_id, sequence, token, provider_id, kind)', log=tables.change_log)
#: The largest number of entries that one statement inserts. SQLite rejects a text of more than a megabyte.
_MAX_ENTRIES_PER_STATEMENT = 10000


class SlotTaken(RetryTransaction):
    """Another process has written under the slot of this transaction."""


class SlotState(enum.Enum):
    """What the database may have of the transaction to which a slot was given."""

    #: Nothing: it has sent no statement for the slot, or was certainly rolled back.
    UNCHANGED = enum.auto()
    #: The next number. The transaction may be committed, or still lock the slot.
    SENT = enum.auto()


@dataclasses.dataclass
class Slot:
    """A row of ``placement_writer_slots``."""

    slot_id: int
    #: The number and the token of the newest committed transaction.
    sequence: int = 0
    token: int = 0
    #: The token that a transaction writes together with the next number.
    next_token: int = dataclasses.field(default_factory=lambda: secrets.randbelow(2**48 - 1) + 1)
    state: SlotState = SlotState.UNCHANGED

    def statements(self, dialect: str, changes: Mapping[int, ChangeKind]) -> Iterator[tuple[str, int]]:
        """Yield the last statements of a transaction, which increment the slot and insert its entries.

        Each comes with the number of rows that it has to change. If the slot has another sequence number or token, the
        first one changes none, and the caller has to raise ``SlotTaken``. On PostgreSQL one statement both increments
        and inserts up to 10,000 entries. These are texts, because every claim executes them, and SQLAlchemy's INSERT
        would take twice the time.

        :param changes: the kinds of change by provider id, at least one.
        """
        self.state = SlotState.SENT
        increment = sql.statement(
            'UPDATE {slots} SET sequence = {slot.sequence} + 1, token = {slot.next_token}, updated_at = {now}'
            ' WHERE id = {slot.slot_id} AND sequence = {slot.sequence} AND token = {slot.token}',
            slots=tables.change_log_slots,
            slot=self,
            now=sql.UTC_NOW[dialect],
        )
        key = f'{self.slot_id}, {self.sequence + 1}, {self.next_token}'
        rows = [f'({key}, {int(id_)}, {int(kind)})' for id_, kind in sorted(changes.items())]
        chunks = [*sql.chunks(rows, _MAX_ENTRIES_PER_STATEMENT)]
        if dialect == 'postgresql':
            first = chunks.pop(0)
            template = (
                'WITH slot AS ({increment} RETURNING id)'
                ' {into} SELECT entries.* FROM slot, (VALUES {entries}) AS entries'
            )
            yield sql.statement(template, increment=increment, into=_INTO, entries=', '.join(first)), len(first)
        else:
            yield increment, 1
        for chunk in chunks:
            yield f'{_INTO} VALUES {", ".join(chunk)}', len(chunk)


def append_entries(tx: sa.Connection, slot: Slot, changes: Mapping[int, ChangeKind]) -> None:
    """Increment the slot, and insert its entries.

    :raises SlotTaken: the slot has another sequence number or token.
    """
    for text, rows in slot.statements(tx.dialect.name, changes):
        if sql.execute_text(tx, text).rowcount != rows:
            raise SlotTaken


def record_usage(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Record that only ``inventories.used`` and the generation of these providers changed.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, provider_ids, ChangeKind.USAGE)


def record_providers(tx: sa.Connection, provider_ids: Iterable[int]) -> None:
    """Record that these providers changed in any way, or were created, deleted or moved.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, provider_ids, ChangeKind.PROVIDER)


def record_names(tx: sa.Connection) -> None:
    """Record that resource classes or traits were created, renamed or deleted.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, [NO_PROVIDER], ChangeKind.NAMES)


def record_new_class(tx: sa.Connection, class_id: int) -> None:
    """Record that a resource class was created.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    # Negative numbers are not ids of providers. Odd ones are for classes, even ones for traits.
    _record(tx, [-2 * class_id - 1], ChangeKind.NAMES)


def record_new_trait(tx: sa.Connection, trait_id: int) -> None:
    """Record that a trait was created.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, [-2 * trait_id], ChangeKind.NAMES)


def new_names(provider_ids: Iterable[int]) -> tuple[list[int], list[int]] | None:
    """Return the ids of the new classes and of the new traits; None if other names also changed.

    :param provider_ids: the ``provider_id`` of each entry of the kind ``NAMES``.
    """
    class_ids: list[int] = []
    trait_ids: list[int] = []
    for id_ in provider_ids:
        if id_ == NO_PROVIDER:
            return None
        (class_ids if id_ % 2 else trait_ids).append(-id_ // 2)
    return class_ids, trait_ids


def record_reload(tx: sa.Connection) -> None:
    """Record that anything may have changed, so that every process reads all tables again.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """
    _record(tx, [NO_PROVIDER], ChangeKind.RELOAD)


def _record(tx: sa.Connection, provider_ids: Iterable[int], kind: ChangeKind) -> None:
    changes: dict[int, ChangeKind] = tx.get_execution_options()[_CHANGES]
    for id_ in provider_ids:
        changes[id_] = max(kind, changes.get(id_, kind))


def attach(tx: sa.Connection) -> dict[int, ChangeKind]:
    """Let the transaction that begins on ``tx`` record its changes: the kinds of change by provider id."""
    changes: dict[int, ChangeKind] = {}
    tx.execution_options(**{_CHANGES: changes})
    return changes


def no_slots() -> IncompleteDatabase:
    """Return the exception to raise if the database has no slots, so that only a part of a backup may be restored."""
    advice = 'If no backup is being restored, run: placement-manage db invalidate-caches'
    return IncompleteDatabase(reason=f'the table {tables.change_log_slots} has no rows. {advice}')
