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


class _Step(NamedTuple):
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
        self._steps: list[_Step] = []

    def add(self, text: str, *values: Any, judge: Callable[[int], None] = _accept) -> None:
        """Have a statement run after those before.

        :param text: as ``statements.run`` takes it, and ``values``.
        :param judge: called with the row count; raises what it means if it is not the right one. Those behind may have
            run then.
        """
        self._steps.append(_Step(text, values, judge))

    def run(self) -> None:
        """Run all of them.

        :raises DBError: one failed, and the row counts of those before were right.
        """
        steps, self._steps = self._steps, []
        if not statements.is_mysql(self.tx.dialect):
            for step in steps:
                step.judge(statements.run(self.tx, step.text, *step.values).rowcount)
        else:
            self._send(steps, [])

    def run_last(self) -> None:
        """Run all of them as the end of the transaction, which has noted all that it changes.

        :raises DBError: as ``run``.
        :raises Forgotten: of the writer of the log.
        """
        notes = changes.notes_of(self.tx)
        if not statements.is_mysql(self.tx.dialect):
            self.run()
            return
        steps, self._steps = self._steps, []
        counts: list[int] = []
        entry = [_Step(text, (), _accept) for text in notes.writer.entry(notes.noted)]
        try:
            self._send(steps + entry, counts)
        except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry):
            if len(counts) < len(steps):
                raise
            with notes.writer.entering():
                raise
        notes.writer.entered = notes.entered = bool(entry)

    def _send(self, steps: list[_Step], counts: list[int]) -> None:
        if not steps:
            return
        text = '; '.join(step.text for step in steps)
        values = [value for step in steps for value in step.values]
        try:
            statements.run(self.tx, text, *values, options={_COUNTS: counts})
        except Exception as error:
            if not error_kinds.is_lost(error):
                _judge(steps, counts)
            raise
        _judge(steps, counts)


def _judge(steps: list[_Step], counts: list[int]) -> None:
    for step, count in zip(steps, counts, strict=False):
        step.judge(count)


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
