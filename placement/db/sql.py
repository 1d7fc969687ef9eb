"""SQL and types of columns that differ between databases, or that have to stay within the limits of a database.

A statement is an expression of SQLAlchemy Core unless there is one of two reasons for a text, which ``execute_text``
runs. The first is speed, for claims, other frequent writes and refreshes of the cache: a database needs about 0.1 ms
for a statement, and an expression adds as much each time it is run, even though it is compiled only once. The second is
that Core lacks something: settings of a connection, catalogs of a database, changes of the schema, UPDATEs in a given
order, and rows that the database joins into one text.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import orjson
import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler, TypeCompiler
from sqlalchemy.sql.functions import FunctionElement

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Maximum number of values of an IN list. PostgreSQL takes 65,535 parameters, SQLite 32,766. MariaDB converts a list of
#: 1,000 values or more to a temporary table, and may read the whole other table to join them.
MAX_VALUES_PER_STATEMENT = 900

#: Maximum number of rows to which one statement gives different values. SQLite rejects a chain of more than 1,000
#: conditions.
MAX_ROWS_PER_STATEMENT = 300

#: ``group_concat_max_len`` of connections to MariaDB and MySQL. The text is also limited by ``max_allowed_packet``.
MAX_JOINED_BYTES = 2**30

#: How many ids one text of ``fetch_rows`` spans. With 30 KB for each id it is still shorter than 16 MB.
_IDS_PER_TEXT = 500

#: By type of a column, how its values are made of those in JSON. MariaDB writes the double 1.0 as 1.
_FROM_JSON: Mapping[type, Callable[[Any], Any]] = {sa.Double: float, sa.DateTime: dt.datetime.fromisoformat}

#: The result of ``microseconds`` for NULL.
NO_MOMENT = -1

V = TypeVar('V')
Moment = TypeVar('Moment', dt.datetime, dt.datetime | None)


class TruncatedResult(RuntimeError):
    """The database returned only the beginning of the rows that it joined."""


class Text(sa.String):
    """A string of up to ``length`` code points, compared code point by code point.

    This is the default of SQLite and PostgreSQL. The default of MySQL and MariaDB ignores case and trailing blanks, so
    different names would be equal.
    """

    cache_ok = True
    __visit_name__ = 'placement_text'


@compiles(Text)
def _plain(type_: Text, _compiler: TypeCompiler, **_kw: Any) -> str:
    return f'VARCHAR({type_.length})'


@compiles(Text, 'mysql')
def _mysql(type_: Text, compiler: TypeCompiler, **_kw: Any) -> str:
    # MariaDB and MySQL 8 have different names for the collation that compares all bytes, including trailing blanks.
    collation = 'utf8mb4_nopad_bin' if getattr(compiler.dialect, 'is_mariadb', False) else 'utf8mb4_0900_bin'
    return f'VARCHAR({type_.length}) CHARACTER SET utf8mb4 COLLATE {collation}'


#: By name of the dialect, the current time by the clock of the database, in UTC without a time zone. MySQL requires the
#: parentheses in the default of a column.
UTC_NOW = {
    'sqlite': 'CURRENT_TIMESTAMP',
    'postgresql': "timezone('utc', now())",
    'mysql': '(utc_timestamp())',
}


class UtcNow(FunctionElement[Any]):
    """``UTC_NOW`` as an expression, which can be the default of a column."""

    inherit_cache = True
    type = sa.DateTime()


@compiles(UtcNow)
def _utc_now(_element: UtcNow, compiler: SQLCompiler, **_kw: Any) -> str:
    return UTC_NOW[compiler.dialect.name]


def chunks(values: Sequence[V], size: int = MAX_VALUES_PER_STATEMENT) -> Iterator[Sequence[V]]:
    """Yield ``values`` in their order, in chunks of at most ``size`` for one statement each. No chunk is empty."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


# ``execute_text`` passes times to the driver as they are. On SQLite this adapter makes of them the text that SQLAlchemy
# would store, so that they compare as text. The adapter of ``sqlite3`` omits the microseconds if they are 0, and is
# deprecated.
sqlite3.register_adapter(dt.datetime, lambda moment: moment.isoformat(' ', 'microseconds'))


def statement(template: str, **parts: object) -> str:
    """Return ``template`` with the names in braces replaced by ``parts``.

    :param parts: tables, names of columns, expressions, question marks, and our own numbers. Text from a client or
        an operator must not be a part: pass it to ``execute_text`` as a value.
    """
    return template.format(**parts)


def execute_text(
    tx: sa.Connection, text: str, *values: Any, options: Mapping[str, Any] | None = None
) -> sa.CursorResult[*tuple[Any, ...]]:
    """Execute ``text``.

    :param text: has a question mark for each of ``values``, and no other question mark or percent sign.
    :param values: integers, floats, texts, None, or times from ``timeutils.utcnow``.
    :param options: execution options.
    """
    # The converted text is not cached: most texts contain ids or are joined from several, so they are not used again.
    if values and tx.dialect.paramstyle != 'qmark':
        text = text.replace('?', '%s')
    return tx.exec_driver_sql(text, values, execution_options=options)


def placeholders(count: int) -> str:
    """Return ``count`` question marks for an IN list, without its parentheses."""
    return ', '.join('?' * count)


def with_utc(moment: Moment) -> Moment:
    """Return the aware time for a value of ``created_at`` or ``updated_at``: these are in UTC, most without a zone."""
    return moment.replace(tzinfo=dt.UTC) if moment and not moment.tzinfo else moment


def update_in_order(
    dialect: sa.Dialect,
    table: sa.Table,
    assignments: str,
    values: Sequence[Any],
    rows: str,
    row_values: Sequence[Any] = (),
    *,
    count: int,
    condition: str = '',
    order: str = 'id',
    index: str = 'PRIMARY',
) -> tuple[str, list[Any]]:
    """Return the text and values for ``execute_text`` of an UPDATE that locks several rows in a fixed order.

    SQLite has one writer at a time. MySQL and MariaDB lock rows in the order in which they find them, so the statement
    names the index. PostgreSQL guarantees no order, so there a query locks the rows first.

    :param assignments: the SET clause, with a question mark for each of ``values``.
    :param rows: the condition on the rows to lock, with a question mark for each of ``row_values``.
    :param count: the number of rows.
    :param condition: the condition on the rows to update, without question marks; by default ``rows``. It has to imply
        ``rows``.
    :param order: the columns of ``index``.
    """
    parts = {'table': table, 'set': assignments, 'rows': rows, 'condition': condition or rows, 'order': order}
    if count == 1 or dialect.name != 'postgresql':
        hint = f' FORCE INDEX ({index})' if is_mysql(dialect) else ''
        text = statement('UPDATE {table}{hint} SET {set} WHERE {condition}', hint=hint, **parts)
        return text, [*values] if condition else [*values, *row_values]
    text = statement(
        'WITH locked AS (SELECT id AS locked_id FROM {table} WHERE {rows} ORDER BY {order} FOR NO KEY UPDATE)'
        ' UPDATE {table} SET {set} FROM locked WHERE id = locked_id',
        **parts,
    )
    return f'{text} AND ({condition})' if condition else text, [*row_values, *values]


def delete_in_id_order(dialect: sa.Dialect, table: sa.Table, condition: str, ids: Sequence[int]) -> str:
    """Return the text of a DELETE that locks rows in order of id, as ``update_in_order`` does.

    :param condition: the condition on the rows to delete. It has to imply that the id is one of ``ids``.
    """
    if len(ids) == 1 or dialect.name != 'postgresql':
        return statement('DELETE FROM {table} WHERE {condition}', table=table, condition=condition)
    return statement(
        'WITH locked AS (SELECT id AS locked_id FROM {table} WHERE id IN ({ids}) ORDER BY id FOR NO KEY UPDATE)'
        ' DELETE FROM {table} USING locked WHERE id = locked_id AND ({condition})',
        table=table,
        condition=condition,
        ids=', '.join(f'{id_:d}' for id_ in ids),
    )


def upsert_clause(tx: sa.Connection, key: str, columns: Mapping[str, str]) -> str:
    """Return the end of an INSERT statement that makes it update rows whose ``key`` exists.

    :param key: the columns of a unique constraint, joined with commas.
    :param columns: the columns to update, each with the column of the new row that has its value.
    """
    if is_mysql(tx.dialect):
        return ' ON DUPLICATE KEY UPDATE ' + ', '.join(f'{name} = VALUES({new})' for name, new in columns.items())
    written = ', '.join(f'{name} = excluded.{new}' for name, new in columns.items())
    return f' ON CONFLICT ({key}) DO UPDATE SET {written}'


def for_update(dialect: sa.Dialect) -> str:
    """Return the end of a SELECT that locks its rows; empty on SQLite, which has one writer at a time."""
    return '' if dialect.name == 'sqlite' else ' FOR UPDATE'


#: By name of the dialect, the end of a SELECT that takes shared locks on its rows.
SHARED_LOCKS = {
    'sqlite': '',
    'postgresql': ' FOR KEY SHARE',
    'mysql': ' LOCK IN SHARE MODE',
}


def microseconds(dialect: sa.Dialect, moment: str) -> str:
    """Return the SQL that converts a time in UTC to microseconds since 1970, and NULL to ``NO_MOMENT``."""
    if is_mysql(dialect):
        number = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {moment})"
    elif dialect.name == 'postgresql':
        number = f'CAST(EXTRACT(EPOCH FROM {moment}) * 1000000 AS BIGINT)'
    else:
        # The fraction is added separately, because SQLite would round the time to milliseconds.
        number = f"strftime('%s', substr({moment}, 1, 19)) * 1000000 + CAST(substr({moment}, 21, 6) AS INTEGER)"
    return f'COALESCE({number}, {NO_MOMENT})'


#: The selected expressions, which are never NULL, and the text after FROM.
IntegerQuery = tuple[Sequence[str], str]


def fetch_integers(tx: sa.Connection, *queries: IntegerQuery, common: str = '') -> list[NDArray[np.int64]]:
    """Run queries that select integers in one statement, which returns one row for each query.

    The database joins the rows of a query into one text, because a driver in Python takes 10 microseconds for each row.

    :param common: a common table expression, from which the queries may select.
    :returns: for each query an array of its rows, as signed 64-bit integers.
    :raises TruncatedResult: a text was longer than the database allows.
    """
    # Not at the top, because commands that need no cache would take a quarter longer.
    import numpy as np

    template = 'SELECT {number} AS number, COUNT(*), {joined} FROM {source}'
    parts = [
        statement(template, number=number, joined=joined(tx.dialect, columns), source=source)
        for number, (columns, source) in enumerate(queries)
    ]
    arrays: dict[int, NDArray[np.int64]] = {}
    with_ = f'WITH {common} ' if common else ''
    for number, count, text in execute_text(tx, with_ + ' UNION ALL '.join(parts)):
        columns = len(queries[number][0])
        # This takes a seventh of the time of calling ``int`` for each number.
        values = np.fromstring(text, np.int64, sep=' ') if count else np.empty(0, np.int64)
        if len(values) != count * columns:
            raise TruncatedResult(f'{count} rows of {queries[number][1][:80]}')
        arrays[number] = values.reshape(count, columns)
    return [arrays[number] for number in range(len(queries))]


def joined(dialect: sa.Dialect, columns: Sequence[str]) -> str:
    """Return the aggregate function that joins all rows, in any order, into lines of columns separated by spaces."""
    if dialect.name == 'sqlite':
        row = " || ' ' || ".join(f'({column})' for column in columns)
        return f"group_concat({row}, '\n')"
    row = f"concat_ws(' ', {', '.join(columns)})"
    return f"GROUP_CONCAT({row} SEPARATOR '\n')" if is_mysql(dialect) else f"string_agg({row}, '\n')"


def fetch_rows(tx: sa.Connection, query: sa.Select[Any]) -> Iterator[Sequence[Any]]:
    """Run a query that returns many rows, and iterate over them.

    On MySQL and MariaDB the server joins the rows into texts, as for ``fetch_integers``. If it truncates a text, the
    query is run again as it is.

    :param query: a constant without bind parameters, because what is made of it is cached. Its first column is an id.
    """
    if is_mysql(tx.dialect):
        texts = tx.execute(_joined_rows(query)).all()
        try:
            rows = [row for _, text in texts for row in orjson.loads(f'[{text}]')]
        except ValueError:
            rows = []
        if len(rows) == sum(count for count, _ in texts):
            _convert_from_json(rows, query)
            return iter(rows)
    return iter(tx.execute(query))


@functools.cache
def _joined_rows(query: sa.Select[Any]) -> sa.Select[Any]:
    """Return a query for texts of the rows of ``query``, which are JSON arrays, each text with the number of rows."""
    columns = list(query.selected_columns)
    rows = sa.func.group_concat(sa.func.json_array(*columns))
    return query.with_only_columns(sa.func.count(), rows).group_by(columns[0].op('DIV')(_IDS_PER_TEXT))


def _convert_from_json(rows: list[list[Any]], query: sa.Select[Any]) -> None:
    """Replace the values for which JSON has no type, or another one."""
    for index, column in enumerate(query.selected_columns):
        convert = _FROM_JSON.get(type(column.type))
        if convert:
            for row in rows:
                if row[index] is not None:
                    row[index] = convert(row[index])


def is_mysql(dialect: sa.Dialect) -> bool:
    """Return whether the database is MySQL or MariaDB."""
    return dialect.name == 'mysql'


def new_id(inserted: sa.CursorResult[Any]) -> int:
    """Return the id of the row that an INSERT of one row added."""
    key: Any = inserted.inserted_primary_key
    return int(key[0])


_UNSTORABLE = re.compile('[\0\ud800-\udfff]')


def storable(text: str) -> bool:
    """Return whether every database can store ``text``: it contains neither NUL nor a lone surrogate.

    Do not query for other text: the database cannot have it, and some drivers reject it.
    """
    return _UNSTORABLE.search(text) is None
