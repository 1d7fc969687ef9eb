"""The tables of a database to adopt, and how they differ from the tables that this service needs.

``alembic.autogenerate`` would compare indexes and constraints by name, and names differ between deployments. Here a
constraint with another name counts if it has the same columns, and an index if it begins with the same columns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

from placement.db import sql, tables
from placement.ops.adoption.names import Names


class FoundTable:
    """One table as it is in the database, and how it differs from our declaration of it."""

    def __init__(self, connection: sa.Connection, inspector: sa.Inspector, names: Names, table: sa.Table) -> None:
        #: The name of the dialect of the database.
        self.dialect = connection.dialect.name
        #: Our declaration of the table, and its name in the database.
        self.table = table
        self.name = name = names[table].name
        #: The description of each column by SQLAlchemy's inspector.
        self.columns: Mapping[str, Any] = {column['name']: column for column in inspector.get_columns(name)}
        primary_key = tuple(inspector.get_pk_constraint(name)['constrained_columns'])
        self.primary_key = frozenset(primary_key)
        constraints, indexes = inspector.get_unique_constraints(name), inspector.get_indexes(name)
        # Only indexes of all rows and of whole values count: no partial indexes, and none on prefixes or expressions.
        partial = ('postgresql_where', 'sqlite_where', 'mysql_length', 'mariadb_length')
        columns_of_indexes = [
            (tuple(map(str, index['column_names'])), index['unique'])
            for index in indexes
            if None not in index['column_names']
            and all(index.get('dialect_options', {}).get(option) is None for option in partial)
        ]
        unique = {tuple(constraint['column_names']) for constraint in constraints}
        unique |= {columns for columns, is_unique in columns_of_indexes if is_unique} | {primary_key}
        #: The columns of each unique constraint, unique index and primary key.
        self.unique = frozenset(frozenset(columns) for columns in unique if columns)
        #: The columns of each index, in order.
        self.indexes = frozenset({columns for columns, _ in columns_of_indexes} | unique)
        #: The names of the indexes and unique constraints.
        self.used_names = frozenset(str(item['name']) for item in (*indexes, *constraints))
        #: For the columns of each foreign key, our name of the table whose id they refer to.
        self.foreign_keys = {
            tuple(key['constrained_columns']): names.ours(key['referred_table'])
            for key in inspector.get_foreign_keys(name)
        }
        #: The storage engine on MySQL and MariaDB, None elsewhere.
        self.engine: str | None = None
        if sql.is_mysql(connection.dialect):
            options = inspector.get_table_options(name)
            self.engine = next(str(value) for option, value in options.items() if option.endswith('_engine'))
        definition = ''
        if self.dialect == 'sqlite':
            query = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?"
            definition = str(sql.execute_text(connection, query, name).scalar_one())
        #: The text columns that the database does not compare code point by code point.
        self.collated_columns = frozenset(_collated_columns(connection, table, name, definition))
        #: True on SQLite if AUTOINCREMENT is missing.
        self.reuses_ids = bool(
            definition
            and table.dialect_options['sqlite']['autoincrement']
            and not re.search(r'\bAUTOINCREMENT\b', definition, re.IGNORECASE)
        )

    def missing_columns(self) -> list[str]:
        """Return our columns that the table does not have."""
        return [column.name for column in self.table.columns if column.name not in self.columns]

    def missing_not_null(self) -> list[str]:
        """Return columns that allow NULL in the database, but not in our table."""
        return self._columns_where(lambda ours, present: ours.nullable is False and present['nullable'])

    def short_columns(self) -> list[str]:
        """Return text columns that are shorter than ours. SQLite does not limit lengths."""
        if self.dialect == 'sqlite':
            return []
        return self._columns_where(lambda ours, present: _length(present['type']) < _length(ours.type))

    def single_precision(self) -> list[str]:
        """Return columns that are doubles in our table, but round numbers to single precision in the database."""
        # On SQLite these types are doubles.
        if self.dialect == 'sqlite':
            return []
        return self._columns_where(
            lambda ours, present: (
                isinstance(ours.type, sa.Double)
                and isinstance(present['type'], sa.REAL | sa.FLOAT)
                and not isinstance(present['type'], sa.Double)
            )
        )

    def _columns_where(self, predicate: Callable[[sa.Column[Any], Any], bool | None]) -> list[str]:
        """Return the columns for which ``predicate``, called with our column and the database's, returns true."""
        common = [column for column in self.table.columns if column.name in self.columns]
        return [column.name for column in common if predicate(column, self.columns[column.name])]

    def missing_unique_constraints(self) -> list[sa.UniqueConstraint]:
        """Return our unique constraints that no constraint or index of the table enforces."""
        constraints = [item for item in self.table.constraints if isinstance(item, sa.UniqueConstraint)]
        # In a fixed order; SQLAlchemy keeps them in a set.
        return [
            constraint
            for constraint in sorted(constraints, key=lambda constraint: constraint.columns.keys())
            if not any(columns <= set(constraint.columns.keys()) for columns in self.unique)
        ]

    def missing_foreign_keys(self) -> list[tuple[str, str]]:
        """Return the column of each of our foreign keys that the table lacks, and our name of the referred table."""
        keys = sorted((key.parent.name, key.column.table.name) for key in self.table.foreign_keys)
        return [(column, referred) for column, referred in keys if self.foreign_keys.get((column,)) != referred]

    def missing_indexes(self) -> list[sa.Index]:
        """Return our indexes for which the table has none that begins with the same columns."""
        return [
            index
            for index in sorted(self.table.indexes, key=lambda index: str(index.name))
            if not any(columns[: len(index.columns)] == tuple(index.columns.keys()) for columns in self.indexes)
        ]

    def free_name(self, name: object) -> str:
        """Return ``name``, with a prefix if an index or constraint of the table already has it."""
        return f'placement_{name}' if str(name) in self.used_names else str(name)


def read(connection: sa.Connection, names: Names) -> dict[str, FoundTable]:
    """Inspect the tables of ``tables.SHARED`` that exist, and return them by our names."""
    inspector = sa.inspect(connection)
    return {table.name: FoundTable(connection, inspector, names, table) for table in tables.SHARED if table in names}


def _collated_columns(connection: sa.Connection, table: sa.Table, name: str, definition: str) -> Iterator[str]:
    texts = [column.name for column in table.columns if isinstance(column.type, sql.Text)]
    if sql.is_mysql(connection.dialect):
        query = (
            'SELECT column_name AS name, collation_name AS collation FROM information_schema.columns'
            ' WHERE table_schema = DATABASE() AND table_name = ?'
        )
        collations = {row.name: row.collation for row in sql.execute_text(connection, query, name)}
        # The type of our columns ends with the name of its collation.
        binary = str(sql.Text(1).compile(connection.dialect)).rpartition(' ')[2]
        yield from (text for text in texts if collations.get(text) not in (None, binary))
    for text in texts if definition else ():
        if re.search(rf'\b{text}\b["`\]]?[^,]*\bCOLLATE\s+(?!BINARY)', definition, re.IGNORECASE):
            yield text


def is_expected(column: sa.Column[Any], type_: Any) -> bool:
    """Return whether ``type_`` can store what our ``column`` stores, if necessary after a step of the plan."""
    if isinstance(column.type, sql.Text):
        # CHAR pads values with blanks; MySQL can index only a prefix of a TEXT.
        return isinstance(type_, sa.String) and not isinstance(type_, sa.CHAR | mysql.TEXT | mysql.CHAR)
    if isinstance(column.type, sa.Integer):
        small = sa.SmallInteger | mysql.TINYINT | mysql.MEDIUMINT
        return isinstance(type_, sa.Integer) and not isinstance(type_, small) and not getattr(type_, 'unsigned', False)
    if isinstance(column.type, sa.Double):
        return isinstance(type_, sa.Float)
    return isinstance(type_, sa.DateTime) and not type_.timezone


def _length(type_: Any) -> float:
    if not isinstance(type_, sa.String):
        return 0
    return float('inf') if type_.length is None else type_.length
