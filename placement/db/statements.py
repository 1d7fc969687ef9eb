"""SQL that each database spells differently, or that must stay within a database's limits."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import sqlalchemy as sa
from oslo_utils import timeutils
from sqlalchemy.dialects import mysql, postgresql, sqlite

#: How many conditions stand side by side. SQLite refuses expressions nested deeper than 1,000, and a chain of ANDs is
#: as deep as it is long.
_CHUNK = 100

#: The longest list that one statement takes. PostgreSQL has a limit of 65,535 parameters, SQLite one of 32,766, and
#: from 1,000 values on MariaDB reads the list as a table, which it may join by reading all of the other one.
BATCH = 900

V = TypeVar('V')


def batches(values: Sequence[V]) -> Iterator[Sequence[V]]:
    """``values`` in their order, in lists that are short enough for one statement; nothing for no values."""
    for start in range(0, len(values), BATCH):
        yield values[start : start + BATCH]


def locked_in_order(tx: sa.Connection, table: sa.Table, which: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    """Return the WHERE clause of an UPDATE or DELETE of the rows for which ``which`` is true, locked in order of
    ``id``.

    MariaDB and MySQL find, and so lock, the rows in that order anyway. PostgreSQL promises no order, so there a
    subquery locks them first; ``which`` is evaluated once more after that, as it may not be true any more.
    """
    if tx.dialect.name != 'postgresql':
        return which
    held = sa.select(table.c.id).where(which).order_by(table.c.id).with_for_update(key_share=True).cte()
    return sa.and_(table.c.id == held.c.id, which)


def insert_unless_present(tx: sa.Connection, table: sa.Table) -> sa.Insert:
    """An INSERT into ``table`` that leaves a row alone whose key is already there."""
    if tx.dialect.name == 'postgresql':
        return postgresql.insert(table).on_conflict_do_nothing()
    if tx.dialect.name == 'sqlite':
        return sqlite.insert(table).on_conflict_do_nothing()
    return mysql.insert(table).prefix_with('IGNORE')


# As plain text: beside a statement that takes the database a tenth of a millisecond, an expression costs as much again
# each time that it runs, though it is built and compiled but once.


def run(tx: sa.Connection, text: str, *values: Any, options: Mapping[str, Any] | None = None) -> sa.CursorResult[Any]:
    """Run ``text``, in which a question mark stands for each of ``values``: integers, floats, texts, None, ``now``."""
    return tx.exec_driver_sql(_spelled(text, tx.dialect.paramstyle), values, execution_options=options)


@functools.lru_cache(maxsize=1024)
def _spelled(text: str, paramstyle: str) -> str:
    return text if paramstyle == 'qmark' else text.replace('?', '%s')


def marks(count: int) -> str:
    """As many question marks as a list of ``count`` values needs, without its parentheses."""
    return ', '.join('?' * count)


def now(tx: sa.Connection) -> Any:
    """This moment, for ``created_at`` and ``updated_at``, as ``run`` takes it."""
    return as_stored(tx, timeutils.utcnow())


def as_stored(tx: sa.Connection, moment: dt.datetime) -> Any:
    """A moment as ``run`` takes it: on SQLite as SQLAlchemy writes it."""
    return moment.isoformat(' ', 'microseconds') if tx.dialect.name == 'sqlite' else moment


def insertions(
    tx: sa.Connection, table: str, columns: str, rows: Sequence[Sequence[Any]]
) -> Iterator[tuple[str, list[Any]]]:
    """What inserts rows, ``created_at`` now: one text and its values, unless there are very many.

    :param columns: their names, joined with commas.
    :param rows: what ``run`` takes, in the order of ``columns``.
    """
    moment = now(tx)
    for batch in batches(rows):
        yield (
            _insertion(table, columns, len(batch[0]) + 1, len(batch)),
            [value for row in batch for value in (*row, moment)],
        )


def insert_one(tx: sa.Connection, table: str, columns: str, row: Sequence[Any], created_at: dt.datetime) -> int:
    """Insert one row, and return the ``id`` that the database gave to it."""
    text = _insertion(table, columns, len(row) + 1, 1)
    if tx.dialect.name == 'postgresql':
        return int(run(tx, f'{text} RETURNING id', *row, created_at).scalar_one())
    return int(run(tx, text, *row, as_stored(tx, created_at)).lastrowid)


def insertion_unless_present(
    tx: sa.Connection, table: str, column: str, values: Sequence[Any]
) -> tuple[str, list[Any]]:
    """What inserts a row of each value, but for those whose key is already there: a text and its values."""
    ((text, given),) = insertions(tx, table, column, [(value,) for value in values])
    if is_mysql(tx.dialect):
        return text.replace('INSERT', 'INSERT IGNORE', 1), given
    return f'{text} ON CONFLICT DO NOTHING', given


@functools.lru_cache(maxsize=256)
def _insertion(table: str, columns: str, width: int, count: int) -> str:
    rows = ', '.join([f'({marks(width)})'] * count)
    return f'INSERT INTO {table} ({columns}, created_at) VALUES {rows}'  # noqa: S608


def otherwise_overwrite(tx: sa.Connection, key: str, columns: Mapping[str, str]) -> str:
    """What stands behind the rows of an INSERT, so that of rows whose ``key`` is there already columns are overwritten.

    :param columns: each, and that of the new row which it is taken from.
    """
    if is_mysql(tx.dialect):
        return ' ON DUPLICATE KEY UPDATE ' + ', '.join(f'{name} = VALUES({new})' for name, new in columns.items())
    written = ', '.join(f'{name} = excluded.{new}' for name, new in columns.items())
    return f' ON CONFLICT ({key}) DO UPDATE SET {written}'


def is_mysql(dialect: sa.Dialect) -> bool:
    """Whether it is MySQL or MariaDB, however the URL calls it."""
    return dialect.name in ('mysql', 'mariadb')


def all_of(conditions: Iterable[sa.ColumnElement[bool]]) -> sa.ColumnElement[bool]:
    """The conjunction of any number of ``conditions``, nested so that no database finds it too deep."""
    level: Sequence[sa.ColumnElement[bool]] = list(conditions)
    while len(level) > _CHUNK:
        chunks = [level[start : start + _CHUNK] for start in range(0, len(level), _CHUNK)]
        # As operands of IS the chunks stay what they are; SQLAlchemy makes one chain of anything else.
        level = [sa.and_(*chunk).is_(sa.true()) for chunk in chunks]
    return sa.and_(sa.true(), *level)


def new_id(inserted: sa.CursorResult[Any]) -> int:
    """The id that the database gave to the one row that was inserted."""
    key: Any = inserted.inserted_primary_key
    return int(key[0])


def storable(text: str) -> bool:
    """False for text that no database could hold, with a NUL or a lone surrogate, and that some refuse to look for."""
    return '\x00' not in text and not any('\ud800' <= char <= '\udfff' for char in text)
