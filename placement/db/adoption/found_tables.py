"""The tables of a database that is adopted, as they are, compared with those that this service needs.

``alembic.autogenerate`` would compare indexes and constraints by their names, which differ between deployments. Here an
index or constraint with another name counts if it enforces, or begins with, the same columns.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from placement.db import tables, types
from placement.db.adoption.names import Names

#: Columns that another service may lack: ``inventories.used`` is ours, and older releases have neither times nor types.
ADDED_COLUMNS = frozenset({'used', 'created_at', 'updated_at', 'consumer_type_id'})


#: The columns of a foreign key -> the table whose id they refer to.
ForeignKeys = Mapping[tuple[str, ...], str]


@dataclasses.dataclass(frozen=True)
class FoundTable:
    """One table as it is in the database.

    ``table`` is ours; ``name`` is the one that it has there. ``columns`` are by name, as SQLAlchemy's inspector gives
    them. ``unique`` has the columns of each unique constraint, unique index and primary key. ``foreign_keys`` has our
    names of tables. ``indexes`` has the columns of all indexes, in order. ``collated_columns`` are the text columns
    that the database does not compare code point by code point. ``reuses_ids`` is true on SQLite if AUTOINCREMENT is
    missing. ``engine`` is the storage engine on MySQL and MariaDB, None elsewhere. ``used_names`` are the names of its
    indexes and unique constraints.
    """

    table: sa.Table
    name: str
    columns: Mapping[str, Any]
    primary_key: frozenset[str]
    unique: frozenset[frozenset[str]]
    foreign_keys: ForeignKeys
    indexes: frozenset[tuple[str, ...]]
    collated_columns: frozenset[str]
    reuses_ids: bool
    engine: str | None
    used_names: frozenset[str]

    def missing_columns(self) -> list[str]:
        """Return our columns that the table does not have."""
        return [column.name for column in self.table.columns if column.name not in self.columns]

    def missing_not_null(self) -> list[str]:
        """Return columns that may be NULL there, and are NOT NULL in ours."""
        return [name for name, column in self._both() if column.nullable is False and self.columns[name]['nullable']]

    def unwanted_not_null(self) -> list[str]:
        """Return columns that are NOT NULL there, and may be NULL in ours, unless we always write a value."""
        always_written = {'name', 'created_at'}
        return [
            name
            for name, column in self._both()
            if column.nullable and not self.columns[name]['nullable'] and name not in always_written
        ]

    def short_columns(self) -> list[str]:
        """Return text columns that are shorter than ours."""
        return [name for name, column in self._both() if _length(self.columns[name]['type']) < _length(column.type)]

    def single_precision(self) -> list[str]:
        """Return columns that are doubles in ours and singles there, which round numbers when they are stored."""
        return [
            name
            for name, column in self._both()
            if isinstance(column.type, sa.Double) and _is_single(self.columns[name]['type'])
        ]

    def missing_unique_constraints(self) -> list[sa.UniqueConstraint]:
        """Return our unique constraints that no constraint or index of the table enforces."""
        return [
            one
            for one in _ordered(self.table, sa.UniqueConstraint)
            if not any(columns <= set(one.columns.keys()) for columns in self.unique)
        ]

    def missing_foreign_keys(self) -> list[sa.ForeignKeyConstraint]:
        """Return our foreign keys that the table does not have."""
        return [
            one
            for one in _ordered(self.table, sa.ForeignKeyConstraint)
            if self.foreign_keys.get(tuple(one.column_keys)) != one.referred_table.name
        ]

    def missing_indexes(self) -> list[sa.Index]:
        """Return our indexes for which the table has none that begins with the same columns."""
        wanted = sorted(self.table.indexes, key=lambda index: str(index.name))
        return [index for index in wanted if not self._led_by(tuple(index.columns.keys()))]

    def free_name(self, wanted: object) -> str:
        """Return ``wanted``, or the same with a prefix if an index or constraint of the table has that name."""
        return f'placement_{wanted}' if str(wanted) in self.used_names else str(wanted)

    def _led_by(self, columns: tuple[str, ...]) -> bool:
        return any(there[: len(columns)] == columns for there in self.indexes)

    def _both(self) -> Iterator[tuple[str, sa.Column[Any]]]:
        return ((column.name, column) for column in self.table.columns if column.name in self.columns)


def read(connection: sa.Connection, names: Names) -> dict[str, FoundTable]:
    """Inspect the tables of ``tables.SHARED`` that exist; by our names of them."""
    inspector = sa.inspect(connection)
    return {table.name: _inspect(connection, inspector, names, table) for table in tables.SHARED if table in names}


def _inspect(connection: sa.Connection, inspector: sa.Inspector, names: Names, table: sa.Table) -> FoundTable:
    name = names.of(table)
    key = inspector.get_pk_constraint(name)['constrained_columns']
    indexes = [one for one in inspector.get_indexes(name) if None not in one['column_names'] and _is_whole(one)]
    uniques = [tuple(one['column_names']) for one in inspector.get_unique_constraints(name)]
    uniques += [tuple(map(str, one['column_names'])) for one in indexes if one['unique']]
    led = {tuple(map(str, one['column_names'])) for one in indexes} | {tuple(key), *uniques}
    return FoundTable(
        table=table,
        name=name,
        columns={column['name']: column for column in inspector.get_columns(name)},
        primary_key=frozenset(key),
        unique=frozenset(frozenset(one) for one in (*uniques, key) if one),
        foreign_keys={
            tuple(one['constrained_columns']): names.ours(one['referred_table'])
            for one in inspector.get_foreign_keys(name)
        },
        indexes=frozenset(led),
        collated_columns=frozenset(_collated_columns(connection, table, name)),
        reuses_ids=_reuses_ids(connection, table, name),
        engine=_engine(connection, name),
        used_names=frozenset(
            str(one['name']) for one in (*inspector.get_indexes(name), *inspector.get_unique_constraints(name))
        ),
    )


def _is_whole(index: Any) -> bool:
    """Return whether an index covers all rows (is not partial) and whole values (not prefixes of them)."""
    options = index.get('dialect_options', {})
    partial = ('postgresql_where', 'sqlite_where', 'mysql_length', 'mariadb_length')
    return all(options.get(option) is None for option in partial)


def _collated_columns(connection: sa.Connection, table: sa.Table, found_name: str) -> Iterator[str]:
    texts = [column.name for column in table.columns if isinstance(column.type, types.Text)]
    if connection.dialect.name in ('mysql', 'mariadb'):
        query = sa.text(
            'SELECT column_name AS name, collation_name AS collation FROM information_schema.columns'
            ' WHERE table_schema = DATABASE() AND table_name = :table'
        )
        there = {row.name: row.collation for row in connection.execute(query, {'table': found_name})}
        yield from (name for name in texts if there.get(name) not in (None, binary_collation(connection)))
    elif connection.dialect.name == 'sqlite':
        definition = _definition(connection, found_name)
        yield from (
            name
            for name in texts
            if re.search(rf'\b{name}\b["`\]]?[^,]*\bCOLLATE\s+(?!BINARY)', definition, re.IGNORECASE)
        )


def _reuses_ids(connection: sa.Connection, table: sa.Table, name: str) -> bool:
    if connection.dialect.name != 'sqlite' or not table.dialect_options['sqlite']['autoincrement']:
        return False
    return re.search(r'\bAUTOINCREMENT\b', _definition(connection, name), re.IGNORECASE) is None


def _definition(connection: sa.Connection, table: str) -> str:
    query = sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :table")
    return str(connection.execute(query, {'table': table}).scalar_one())


def binary_collation(connection: sa.Connection) -> str:
    """Return the name of the collation of ``types.Text`` on MySQL or MariaDB."""
    return str(types.Text(1).compile(connection.dialect)).rpartition(' ')[2]


def _engine(connection: sa.Connection, name: str) -> str | None:
    if connection.dialect.name not in ('mysql', 'mariadb'):
        return None
    query = sa.text(
        'SELECT engine FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = :name'
    )
    return str(connection.execute(query, {'name': name}).scalar_one())


def is_expected(column: sa.Column[Any], found: Any) -> bool:
    """Return whether the type ``found`` can store what our ``column`` stores, or a step of the plan makes it so."""
    if isinstance(column.type, types.Text):
        # CHAR pads values with blanks; a TEXT of MySQL cannot be indexed as a whole.
        return isinstance(found, sa.String) and not isinstance(found, sa.CHAR | mysql.TEXT | mysql.CHAR)
    if isinstance(column.type, sa.Integer):
        small = sa.SmallInteger | mysql.TINYINT | mysql.MEDIUMINT
        return isinstance(found, sa.Integer) and not isinstance(found, small) and not getattr(found, 'unsigned', False)
    if isinstance(column.type, sa.Double):
        return isinstance(found, sa.Float)
    return isinstance(found, sa.DateTime) and not found.timezone


def _is_single(type_: Any) -> bool:
    # Not compared on SQLite, where all of these are doubles.
    return isinstance(type_, sa.REAL | sa.FLOAT) and not isinstance(type_, sa.Double)


def _length(type_: Any) -> float:
    if not isinstance(type_, sa.String):
        return 0
    return float('inf') if type_.length is None else type_.length


def _ordered(table: sa.Table, kind: type[Any]) -> list[Any]:
    """Return the constraints of one kind in a fixed order; SQLAlchemy keeps them in a set."""
    found = [one for one in table.constraints if isinstance(one, kind)]
    return sorted(found, key=lambda one: [str(column) for column in one.columns])
