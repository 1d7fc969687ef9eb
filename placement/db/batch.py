"""A batch of statements of one transaction. No statement needs the result of an earlier one.

Statements, row locks and checks have the same order on all databases. The statements are executed and their row counts
are checked in the order in which the statements were added, and the first wrong count raises an exception, even if a
later statement failed. A check sees only its count, and the exception rolls the transaction back.

MySQL and MariaDB get all statements as one text, so that row locks last for fewer round trips. The other databases get
one statement at a time. There are two differences: MySQL and MariaDB also execute the statements after a wrong count,
and these are rolled back. And if KILL QUERY arrives between two statements of a text, the server ends the text without
an answer, so the transaction is rolled back only after ``socket_timeout``.

The nodes of a Galera cluster also get one statement at a time. If a transaction of another node makes a node roll back
between two statements of one text, MariaDB 10.11 reports nothing, but executes and commits the rest of the text, which
is a part of a claim. Between two texts it reports a conflict (test_galera.py, ``test_no_claim_is_written_by_halves``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import timeutils

from placement.db import connections, errors, sql

#: Execution option of a connection: the batch that its transaction has deferred.
_DEFERRED = 'placement_deferred_batch'


class _Statement(NamedTuple):
    text: str
    values: tuple[Any, ...]
    rows: int | None
    error: Callable[[], Exception]


class StatementBatch:
    """A list of statements that are executed in the order in which they were added.

    :param tx: the connection that ``Database.write`` passed to its ``work``.
    :param key_error: makes the exception to raise if a statement violates a key, because another transaction has
        inserted or deleted a row since it was read. Without it, the error of the database is raised.
    """

    def __init__(self, tx: sa.Connection, key_error: Callable[[], Exception] | None = None) -> None:
        self.tx = tx
        self._key_error = key_error
        self._statements: list[_Statement] = []

    def add_statement(
        self, text: str, *values: Any, rows: int | None = None, error: Callable[[], Exception] = errors.RetryTransaction
    ) -> None:
        """Append a statement.

        ``text`` and ``values`` are as for ``sql.execute_text``.

        :param rows: the number of rows that the statement has to change; None to allow any number.
        :param error: makes the exception to raise for another number. It must not use the database.
        """
        self._statements.append(_Statement(text, values, rows, error))

    def add_for_ids(
        self,
        template: str,
        ids: Sequence[Any],
        *values: Any,
        error: Callable[[], Exception] | None = None,
        **parts: object,
    ) -> None:
        """Append a statement for every 900 of ``ids``, which may also be uuids.

        :param template: has ``{ids}`` for the question marks of the ids, after those of ``values``, and the names of
            ``parts``, as for ``sql.statement``.
        :param error: makes the exception to raise if the number of rows differs from the number of ids; None to allow
            any number.
        """
        for chunk in sql.chunks(ids):
            text = sql.statement(template, ids=sql.placeholders(len(chunk)), **parts)
            rows = None if error is None else len(chunk)
            self.add_statement(text, *values, *chunk, rows=rows, error=error or errors.RetryTransaction)

    def add_insert(
        self,
        table: sa.Table,
        columns: str,
        rows: Sequence[Sequence[Any]],
        row: str = '',
        *,
        unless_present: bool = False,
        otherwise: str = '',
    ) -> None:
        """Append INSERT statements, one for every 900 rows.

        :param columns: the names of the columns, joined with commas, except ``created_at``. It gets the current time.
        :param rows: values for ``sql.execute_text``, in the order of the question marks in ``row``.
        :param row: the expressions for ``columns``, joined with commas; by default question marks.
        :param unless_present: whether to skip rows whose key exists.
        :param otherwise: the end of the statements, from ``sql.upsert_clause``.
        """
        moment, ignore = timeutils.utcnow(), ''
        if unless_present:
            is_mysql = sql.is_mysql(self.tx.dialect)
            ignore, otherwise = (' IGNORE', '') if is_mysql else ('', ' ON CONFLICT DO NOTHING')
        for chunk in sql.chunks(rows):
            values = ', '.join([f'({row or sql.placeholders(len(chunk[0]))}, ?)'] * len(chunk))
            template = 'INSERT{ignore} INTO {table} ({columns}, created_at) VALUES {values}{otherwise}'
            text = sql.statement(
                template, ignore=ignore, table=table, columns=columns, values=values, otherwise=otherwise
            )
            self.add_statement(text, *(value for items in chunk for value in (*items, moment)))

    def execute(self) -> None:
        """Execute the statements, check their row counts, and empty the list.

        :raises DBError: a statement failed, and the row counts of the statements before it are as expected.
        """
        added, self._statements = self._statements, []
        try:
            for count, statement in zip(self._row_counts(added), added, strict=True):
                if statement.rows is not None and count != statement.rows:
                    raise statement.error()
        except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
            if self._key_error is None:
                raise
            raise self._key_error() from error

    def _row_counts(self, statements: Sequence[_Statement]) -> Iterator[int]:
        """Execute ``statements``, and yield how many rows each has changed."""
        if not sql.is_mysql(self.tx.dialect) or self.tx.info[connections.GALERA]:
            for statement in statements:
                yield sql.execute_text(self.tx, statement.text, *statement.values).rowcount
        elif statements:
            counts: list[int] = []
            text = connections.SEPARATOR.join(statement.text for statement in statements)
            values = [value for statement in statements for value in statement.values]
            try:
                sql.execute_text(self.tx, text, *values, options={connections.ROW_COUNTS: counts})
            except Exception as error:
                # A wrong count before the failed statement takes precedence, because it may have caused the error.
                if not errors.is_disconnect(error):
                    yield from counts
                raise
            yield from counts

    def defer(self) -> None:
        """Leave the statements to ``Database.write``.

        After ``work`` it sends them together with the entries of the change log, as the last statements of the
        transaction. They raise the same errors as in ``execute``.

        :raises RuntimeError: a bug: the transaction has deferred another batch.
        """
        if _DEFERRED in self.tx.get_execution_options():
            raise RuntimeError('A transaction can defer only one batch.')
        self.tx.execution_options(**{_DEFERRED: self})


def deferred(tx: sa.Connection) -> StatementBatch:
    """Return the batch that the transaction has deferred, or an empty one."""
    batch: StatementBatch | None = tx.get_execution_options().get(_DEFERRED)
    return batch or StatementBatch(tx)
