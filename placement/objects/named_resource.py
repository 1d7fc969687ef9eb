"""The base of resource classes and traits: standard names, and custom names that clients create and delete."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Self

import sqlalchemy as sa

from placement import exception
from placement.db import change_log, errors, name_locks, retries, sql
from placement.objects import base
from placement.objects.base import Context

#: Maximum number of retries of ``ensure`` while other clients create and delete the name.
_MAX_RETRIES = 9


class NameList(NamedTuple):
    """Names in order of id, and the aware time of the latest change; None if it is unknown or there are no names."""

    names: tuple[str, ...]
    modified: dt.datetime | None


class NamedResource(base.Timestamped):
    """A row of a table of names.

    ``TABLE`` is the table. ``USES`` selects one row that refers to the name with the id ``sought``. ``NOT_FOUND``,
    ``STANDARD`` and ``IN_USE`` are the exceptions for a name that does not exist, that is standard, or that is in use.
    """

    TABLE: ClassVar[sa.Table]
    USES: ClassVar[sa.Select[Any]]
    NOT_FOUND: ClassVar[type[exception.NotFound]]
    STANDARD: ClassVar[type[exception.Invalid]]
    IN_USE: ClassVar[type[exception.Conflict]]

    id: int
    name: str

    @classmethod
    def create(cls, context: Context, name: str) -> Self:
        """Insert a name.

        :param name: a valid custom name.
        :raises NameTaken: it exists.
        """
        raise NotImplementedError

    @classmethod
    def get_names(
        cls, context: Context, *, names: frozenset[str] | None = None, prefix: str = '', condition: str = '1 = 1'
    ) -> NameList:
        """Read the names that pass all filters, in one row: drivers in Python take 10 microseconds for each row.

        :param names: only these names; None does not filter.
        :param prefix: only names with this prefix.
        :param condition: only names that satisfy this SQL.
        :raises TruncatedResult: the text of the names is longer than the database allows.
        """
        dialect = context.db.engine.dialect
        columns = ['id', sql.microseconds(dialect, 'COALESCE(updated_at, created_at)'), 'name']
        query = sql.statement(
            'SELECT COUNT(*), {lines} FROM {table} WHERE {condition}',
            lines=sql.joined(dialect, columns),
            table=cls.TABLE,
            condition=condition,
        )
        # ``_parsed`` filters, because LIKE ignores case on some databases, and there are only hundreds of names.
        count, lines = context.db.read(lambda connection: sql.execute_text(connection, query).one())
        return _parsed(count, lines, names, prefix)

    @classmethod
    def get_by_name(cls, context: Context, name: str, tx: sa.Connection | None = None) -> Self:
        """Read the row of ``name``.

        :param tx: the transaction in which to read it; None to read it alone.
        :raises NotFound: there is none.
        """
        rows: Sequence[sa.Row[Any]] = ()
        if sql.storable(name):
            query, parameters = _by_name(cls.TABLE), {'sought': name}
            rows = context.db.fetch_all(query, parameters) if tx is None else tx.execute(query, parameters).all()
        # Some databases compare names without regard to case.
        if not rows or rows[0].name != name:
            raise cls.NOT_FOUND(names=name)
        return cls.from_row(context, rows[0])

    @classmethod
    def ensure(cls, context: Context, name: str) -> tuple[Self, bool]:
        """Read the row of ``name``, a valid custom name, and insert it if it does not exist.

        :returns: the object, and whether this call created it.
        :raises ConcurrentUpdate: other clients created and deleted it during each attempt.
        """

        def get_or_create() -> tuple[Self, bool]:
            try:
                return cls.get_by_name(context, name), False
            except exception.NotFound:
                return cls.create(context, name), True

        try:
            # If another client creates it at the same time, the next attempt reads it, unless it was deleted again.
            return retries.retry(
                get_or_create, lambda error: isinstance(error, exception.NameTaken), retries=_MAX_RETRIES
            )
        except exception.NameTaken as error:
            raise exception.ConcurrentUpdate from error

    @classmethod
    def destroy(cls, context: Context, name: str) -> None:
        """Delete a custom name.

        :raises NotFound: there is none.
        :raises Invalid: it is standard.
        :raises Conflict: it is in use.
        """

        def work(tx: sa.Connection) -> None:
            resource = cls.get_by_name(context, name, tx)
            if not name_locks.is_custom(name):
                raise cls.STANDARD(name=name)
            if tx.execute(cls.USES, {'sought': resource.id}).first() is not None:
                raise cls.IN_USE(name=name)
            # If another transaction has used the name since, the foreign key fails and the next attempt finds the use.
            deleted = tx.execute(
                cls.TABLE.delete().where(cls.TABLE.c.id == resource.id, cls.TABLE.c.name == resource.name)
            )
            if deleted.rowcount != 1:
                # It was deleted or renamed since it was read.
                raise errors.RetryTransaction
            change_log.record_names(tx)

        context.db.write(work)


# Made once, because making it takes longer than executing it on SQLite.
@functools.cache
def _by_name(table: sa.Table) -> sa.Select[Any]:
    return sa.select(table).where(table.c.name == sa.bindparam('sought'))


@functools.lru_cache(maxsize=8)
def _parsed(count: int, lines: str | None, names: frozenset[str] | None, prefix: str) -> NameList:
    """Select names from the lines that ``get_names`` read. The cache saves work if nothing has changed.

    :raises TruncatedResult: there are not ``count`` lines.
    """
    rows = [line.split(' ', 2) for line in (lines.split('\n') if lines else ())]
    if len(rows) != count:
        raise sql.TruncatedResult(f'{count} names')
    rows.sort(key=lambda row: int(row[0]))
    selected = [row for row in rows if (names is None or row[2] in names) and row[2].startswith(prefix)]
    moments = [int(moment) for _, moment, _ in selected]
    is_known = bool(moments) and sql.NO_MOMENT not in moments
    modified = dt.datetime.fromtimestamp(max(moments) // 10**6, dt.UTC) if is_known else None
    return NameList(tuple(name for _, _, name in selected), modified)
