"""Statements of one transaction, of which none needs the result of an earlier one.

On MySQL and MariaDB they are sent as one text, in one round trip, so that other transactions wait less long for the
rows that they lock. On the other databases they are sent one by one. Order, locks and row counts are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event

from placement.db import change_log, connections, errors, sql

#: Execution option of a text with several statements: the list to which the row count of each is appended.
_COUNTS = 'placement_counts'
#: CLIENT_MULTI_STATEMENTS of MySQL's protocol: the flag of a connection that may send several statements in one text.
MULTI_STATEMENTS = 1 << 16


class _Statement(NamedTuple):
    text: str
    values: tuple[Any, ...]
    check: Callable[[int], None]


def _accept_any(_count: int) -> None:
    """The ``check`` of a statement whose row count says nothing."""


class StatementBatch:
    """A list of statements that are run in their order.

    :param tx: what ``Database.write`` gave to its ``work``.
    """

    def __init__(self, tx: sa.Connection) -> None:
        self.tx = tx
        self._statements: list[_Statement] = []

    def add(self, text: str, *values: Any, check: Callable[[int], None] = _accept_any) -> None:
        """Append a statement.

        :param text: as for ``statements.run``, as are ``values``.
        :param check: called with the row count when the statement has run; raises if it is not the right one. On MySQL
            the statements after it may have run by then.
        """
        self._statements.append(_Statement(text, values, check))

    def execute(self) -> None:
        """Run the statements, and empty the list.

        :raises DBError: a statement failed, after ``check`` accepted the row counts of those before.
        """
        added, self._statements = self._statements, []
        if not sql.is_mysql(self.tx.dialect):
            for one in added:
                one.check(sql.run(self.tx, one.text, *one.values).rowcount)
        else:
            self._send(added)

    def execute_final(self) -> None:
        """As ``run``, for the last statements of a transaction that has recorded all its changes. Once.

        The very last ones append the entries of the change log. ``Database.write`` calls this unless ``work`` did.

        :raises DBError: as ``run``.
        :raises SlotTaken: another process wrote under the slot of the change log.
        """
        pending = change_log.pending_changes(self.tx)
        pending.closed = True
        if pending.changes and not pending.appended:
            increment, *entries = pending.slot.statements(self.tx.dialect.name, pending.changes)
            self.add(increment, check=pending.slot.check)
            for text in entries:
                self.add(text)
            pending.appended = True
        self.execute()

    def _send(self, sent: list[_Statement]) -> None:
        if not sent:
            return
        counts: list[int] = []
        text = '; '.join(one.text for one in sent)
        values = [value for one in sent for value in one.values]
        try:
            sql.run(self.tx, text, *values, options={_COUNTS: counts})
        except Exception as error:
            # A wrong count before the failed statement says more than its error, which may follow from it.
            if not errors.is_disconnect(error):
                _check(sent, counts)
            raise
        _check(sent, counts)


def _check(sent: list[_Statement], counts: list[int]) -> None:
    for one, count in zip(sent, counts, strict=False):
        one.check(count)


def prepare(engine: sa.Engine) -> None:
    """Make ``engine`` collect the row count of each statement of a text that has several."""

    is_mysql = sql.is_mysql(engine.dialect)

    @event.listens_for(engine, 'do_execute')
    def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        counts = context.execution_options.get(_COUNTS)
        if is_mysql:
            connections.execute(cursor, statement, parameters, context)
        if counts is not None:
            counts.append(cursor.rowcount)
            while cursor.nextset():
                counts.append(cursor.rowcount)
        return is_mysql
