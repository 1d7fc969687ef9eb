"""A batch of statements of one transaction, of which none needs the result of an earlier one.

Statements, row locks and checks have the same order on all databases: the statements are executed in the order in which
they were added, their row counts are checked in that order, and the first wrong count raises an exception, also if a
later statement failed. A check sees nothing but its count, and the exception rolls the transaction back. So it makes no
difference that MySQL and MariaDB are sent all statements as one text, to lock rows for fewer round trips, and execute
the statements after a wrong count, while the other databases are sent one statement at a time.

So are the nodes of a Galera cluster. When another node's transaction makes one of them roll back a transaction between
two statements of one text, MariaDB 10.11 reports nothing, and executes and commits the rest of the text by itself: a
part of a claim. Between two texts it reports a conflict (test_galera.py, ``test_no_claim_is_written_by_halves``).
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
    """Accept every row count."""


def expect_rows(expected: int, error: Callable[[], Exception]) -> Callable[[int], None]:
    """Return a ``check`` that raises what ``error`` makes unless a statement changed ``expected`` rows."""

    def check(count: int) -> None:
        if count != expected:
            raise error()

    return check


class StatementBatch:
    """A list of statements that are executed in the order in which they were added.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    """

    def __init__(self, tx: sa.Connection) -> None:
        self.tx = tx
        self._statements: list[_Statement] = []

    def add(self, text: str, *values: Any, check: Callable[[int], None] = _accept_any) -> None:
        """Append a statement.

        :param text: as for ``sql.run``, as are ``values``.
        :param check: called with the row count; raises if it is not as expected. It must not use the database.
        """
        self._statements.append(_Statement(text, values, check))

    def execute(self) -> None:
        """Execute the statements, check their row counts, and empty the list.

        :raises DBError: a statement failed, and the row counts of those before it are as expected.
        """
        added, self._statements = self._statements, []
        if not sql.is_mysql(self.tx.dialect) or self.tx.info[connections.GALERA]:
            for one in added:
                one.check(sql.run(self.tx, one.text, *one.values).rowcount)
        else:
            self._send(added)

    def execute_final(self) -> None:
        """Append the entries of the change log to the batch, and execute it. Nothing can be recorded after that.

        ``Database.write`` calls this if ``work`` did not.

        :raises DBError: as ``execute``.
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
