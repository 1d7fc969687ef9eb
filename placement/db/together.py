"""Changes of one transaction that need not wait for one another's outcome: sent together where the driver can do that.

So rows that other transactions wait for are locked for one round trip, and not for one of each statement.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc
from sqlalchemy import event

from placement.db import changes, error_kinds, statements

#: Execution option of a statement that is several: the list that takes the row count of each.
_COUNTS = 'placement_counts'
#: What MySQL's protocol calls the permission to send several statements at once, an option of a connection.
MULTI_STATEMENTS = 1 << 16


class _Statement(NamedTuple):
    text: str
    values: tuple[Any, ...]
    judge: Callable[[int], None]


def _accept(_count: int) -> None:
    """Take any row count for right."""


class Together:
    """Statements to be run in their order.

    :param tx: the transaction.
    """

    def __init__(self, tx: sa.Connection) -> None:
        self.tx = tx
        self._statements: list[_Statement] = []

    def add(self, text: str, *values: Any, judge: Callable[[int], None] = _accept) -> None:
        """Have a statement run after those before.

        :param text: as ``statements.run`` takes it, and ``values``.
        :param judge: called with the row count; raises what it means if it is not the right one. Those behind may have
            run then.
        """
        self._statements.append(_Statement(text, values, judge))

    def run(self) -> None:
        """Run all of them.

        :raises DBError: one failed, and the row counts of those before were right.
        """
        pending, self._statements = self._statements, []
        if not statements.is_mysql(self.tx.dialect):
            for one in pending:
                one.judge(statements.run(self.tx, one.text, *one.values).rowcount)
        else:
            self._send(pending, [])

    def run_last(self) -> None:
        """Run all of them as the end of the transaction, which has noted all that it changes: once in a transaction.

        :raises DBError: as ``run``.
        :raises Forgotten: of the writer of the log.
        """
        notes = changes.notes_of(self.tx)
        notes.ended = True
        if not statements.is_mysql(self.tx.dialect):
            self.run()
            return
        pending, self._statements = self._statements, []
        counts: list[int] = []
        entry = [_Statement(text, (), _accept) for text in notes.writer.entry(notes.noted)]
        try:
            self._send(pending + entry, counts)
        except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry):
            if len(counts) < len(pending):
                raise
            with notes.writer.entering():
                raise
        notes.writer.entered = notes.entered = bool(entry)

    def _send(self, pending: list[_Statement], counts: list[int]) -> None:
        if not pending:
            return
        text = '; '.join(one.text for one in pending)
        values = [value for one in pending for value in one.values]
        try:
            statements.run(self.tx, text, *values, options={_COUNTS: counts})
        except Exception as error:
            if not error_kinds.is_lost(error):
                _judge(pending, counts)
            raise
        _judge(pending, counts)


def _judge(pending: list[_Statement], counts: list[int]) -> None:
    for one, count in zip(pending, counts, strict=False):
        one.judge(count)


def prepare(engine: sa.Engine) -> None:
    """Let ``engine`` know what to do with several statements at once."""

    @event.listens_for(engine, 'do_execute')
    def execute(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
        counts = context.execution_options.get(_COUNTS)
        if counts is None:
            return False
        cursor.execute(statement, parameters)
        counts.append(cursor.rowcount)
        while cursor.nextset():
            counts.append(cursor.rowcount)
        return True
