"""Problems about the schema of a database, and the steps that alter it.

SQLite cannot change a column or add a constraint: Alembic's batch mode copies the table instead. Columns, constraints
and indexes that only the other service has are kept.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from placement import exception
from placement.db import sql, tables
from placement.ops.adoption import Step, found_tables
from placement.ops.adoption.found_tables import FoundTable

if TYPE_CHECKING:
    from alembic.operations import Operations

_inventories = tables.inventories
_NEW_RATIO = 'placement_allocation_ratio'


def problems(connection: sa.Connection, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """Yield a sentence about each difference from the expected schema that an operator has to resolve."""
    for existing in existing_tables.values():
        for column in existing.missing_columns():
            if column not in tables.ADDED_COLUMNS:
                yield f'The table {existing.name} has no column {column}.'
        for column_name, column in existing.columns.items():
            yield from _column_problems(existing, column_name, column)
        yield from _key_problems(existing, existing_tables)
        if connection.dialect.name == 'sqlite':
            yield from _sqlite_problems(connection, existing.name)
        if connection.dialect.name == 'postgresql':
            yield from _postgresql_problems(connection, existing)
        if existing.engine is not None:
            yield from _mysql_problems(connection, existing)


def _column_problems(existing: FoundTable, name: str, column: Any) -> Iterator[str]:
    where = f'The column {existing.name}.{name}'
    if name in existing.table.columns:
        if not found_tables.is_expected(existing.table.columns[name], column['type']):
            yield f'{where} is of an unexpected type: {column["type"]!r}.'
        return
    fills_itself = any(column.get(word) not in (None, False) for word in ('default', 'computed', 'identity'))
    if not column['nullable'] and not fills_itself:
        yield f'{where} is unknown, NOT NULL and has no default, so that no row could be inserted.'


def _key_problems(existing: FoundTable, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    expected = frozenset(column.name for column in existing.table.primary_key)
    if existing.primary_key != expected:
        present = ', '.join(sorted(existing.primary_key)) or 'nothing'
        yield f'The primary key of {existing.name} is {present} instead of {", ".join(sorted(expected))}.'
    for key in existing.missing_foreign_keys():
        (column,), referred = key.column_keys, key.referred_table.name
        where = f'{existing.name}.{column}'
        elsewhere = existing.foreign_keys.get((column,))
        if elsewhere is not None:
            yield f'{where} refers to the table {elsewhere}.'
        elif existing.engine is not None and column in existing.columns and referred in existing_tables:
            types_ = existing.columns[column]['type'], existing_tables[referred].columns['id']['type']
            if type(types_[0]) is not type(types_[1]):
                target = f'{existing_tables[referred].name}.id'
                yield f'{where} is of the type {types_[0]!r} and cannot refer to {target}, which is {types_[1]!r}.'


def _sqlite_problems(connection: sa.Connection, name: str) -> Iterator[str]:
    query = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') AND sql LIKE ?"
    for row in sql.execute_text(connection, query, f'%{name}%'):
        yield f'The {row.type} {row.name} depends on the table {name}, which has to be rebuilt. Drop the {row.type}.'


def _postgresql_problems(connection: sa.Connection, existing: FoundTable) -> Iterator[str]:
    """Yield the views that use a column whose type changes, which PostgreSQL does not allow."""
    columns = {*existing.single_precision(), *existing.short_columns(), *existing.collated_columns}
    query = (
        'SELECT DISTINCT view.relname AS name, used.attname AS used_column FROM pg_depend'
        ' JOIN pg_rewrite ON pg_rewrite.oid = pg_depend.objid JOIN pg_class AS view ON view.oid = pg_rewrite.ev_class'
        ' JOIN pg_attribute AS used ON used.attrelid = pg_depend.refobjid AND used.attnum = pg_depend.refobjsubid'
        ' WHERE pg_depend.refobjid = to_regclass(?) ORDER BY 1, 2'
    )
    for row in sql.execute_text(connection, query, existing.name):
        if row.used_column in columns:
            where = f'{existing.name}.{row.used_column}'
            yield f'The view {row.name} uses the column {where}, whose type has to change. Drop the view.'


def _mysql_problems(connection: sa.Connection, existing: FoundTable) -> Iterator[str]:
    """Yield problems of collations: MySQL cannot change the collation of the columns of a foreign key."""
    query = (
        'SELECT table_name AS referring, column_name AS foreign_key, referenced_table_name AS referred,'
        ' referenced_column_name AS target FROM information_schema.key_column_usage'
        ' WHERE table_schema = DATABASE() AND referenced_table_name IS NOT NULL'
    )
    for row in sql.execute_text(connection, query):
        for table, column in ((row.referring, row.foreign_key), (row.referred, row.target)):
            if table == existing.name and column in existing.collated_columns:
                yield f'The foreign key from {row.referring}.{row.foreign_key} is on a text column: drop the key first.'


def id_problems(connection: sa.Connection, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """Yield a sentence about each table in which the database does not number new rows."""
    for existing in existing_tables.values():
        id_ = existing.columns.get('id')
        # This service chooses the ids of resource classes itself.
        if id_ is None or existing.table is tables.resource_classes:
            continue
        numbers = id_.get('autoincrement') is True or bool(id_.get('identity')) or bool(id_['default'])
        if connection.dialect.name == 'sqlite':
            numbers = str(id_['type']).upper() == 'INTEGER'
        if not numbers:
            yield f'The column {existing.name}.id is not numbered by the database.'


# Steps ---------------------------------------------------------------------------------------------------


def columns(connection: sa.Connection, existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield steps that add missing columns and change types and NOT NULL. They do not work on SQLite."""
    for name, existing in existing_tables.items():
        changes = list(_column_changes(connection, existing))
        if changes:
            what = '; '.join(sentence for sentence, _ in changes)
            yield _step(f'Alter the table {name}: {what}.', *(change for _, change in changes))
        if existing.single_precision():
            sentence = f'Convert {name}.allocation_ratio to double precision.'
            yield Step(sentence, _ratio_on_mysql if existing.engine else _ratio_on_postgresql)


Change = Callable[['Operations'], None]


def _operations(connection: sa.Connection) -> Operations:
    # Not at the top, because the import would delay the commands that change no schema.
    from alembic import migration
    from alembic.operations import Operations

    return Operations(migration.MigrationContext.configure(connection))


def _step(sentence: str, *changes: Change) -> Step:
    """Return the step that makes ``changes`` of the schema."""

    def run(connection: sa.Connection) -> None:
        operations = _operations(connection)
        for change in changes:
            change(operations)

    return Step(sentence, run)


def _column_changes(connection: sa.Connection, existing: FoundTable) -> Iterator[tuple[str, Change]]:
    name = existing.table.name
    if existing.engine is not None and existing.engine.lower() != 'innodb':
        yield 'move it to InnoDB', operator.methodcaller('execute', f'ALTER TABLE {name} ENGINE=InnoDB')
    if existing.collated_columns:
        # The row formats of old tables limit index entries too much for texts with four bytes per character.
        change = operator.methodcaller('execute', f'ALTER TABLE {name} ROW_FORMAT=DYNAMIC')
        yield 'use the dynamic row format', change
    for column in existing.missing_columns():
        added = _column_to_add(existing.table.columns[column])
        yield f'add the column {column}', operator.methodcaller('add_column', name, added)
    for column in (column.name for column in existing.table.columns):
        words = list(_words(connection, existing, column))
        if words:
            yield f'{column} {" and ".join(words)}', _altering(existing, column)


def _words(connection: sa.Connection, existing: FoundTable, column: str) -> Iterator[str]:
    if column in existing.collated_columns:
        yield f'gets the collation {found_tables.binary_collation(connection)}'
    if column in existing.short_columns():
        yield f'gets the length {existing.table.columns[column].type.length}'  # type: ignore[attr-defined]
    # The step that converts a ratio from single precision also makes it NOT NULL.
    if column in existing.missing_not_null() and column not in existing.single_precision():
        yield 'becomes NOT NULL'
    if column in existing.unwanted_not_null():
        yield 'allows NULL'


def _column_to_add(column: sa.Column[Any]) -> sa.Column[Any]:
    """Return a column like one of ours, without its constraints and indexes."""
    default = '0' if column.name == 'used' else None
    return sa.Column(column.name, column.type, nullable=column.nullable, server_default=default)


def _altering(existing: FoundTable, column: str) -> Change:
    ours, present = existing.table.columns[column], existing.columns[column]
    type_ = present['type']
    if column in existing.collated_columns or column in existing.short_columns():
        # A text column that is longer than ours keeps its length.
        type_ = sql.Text(max(ours.type.length, type_.length or 0))  # type: ignore[attr-defined]
    changes_null = column in (*existing.missing_not_null(), *existing.unwanted_not_null())
    return operator.methodcaller(
        'alter_column',
        existing.table.name,
        column,
        type_=type_ if type_ is not present['type'] else None,
        nullable=ours.nullable if changes_null else present['nullable'],
        existing_type=type_,
        existing_nullable=present['nullable'],
        existing_server_default=sa.text(present['default']) if present['default'] is not None else None,
    )


def constraints(connection: sa.Connection, existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield steps that add missing indexes and, except on SQLite, missing unique constraints and foreign keys."""
    for name, existing in existing_tables.items():
        for unique in existing.missing_unique_constraints() if connection.dialect.name != 'sqlite' else ():
            columns, constraint_name = unique.columns.keys(), existing.free_name(unique.name)
            yield _step(
                f'Add a unique constraint on {name}.{", ".join(columns)}.',
                operator.methodcaller('create_unique_constraint', constraint_name, name, columns),
            )
        for index in existing.missing_indexes():
            columns = index.columns.keys()
            yield _step(
                f'Create an index on {name}({", ".join(columns)}).',
                operator.methodcaller('create_index', existing.free_name(index.name), name, columns),
            )
    # Foreign keys come after all indexes: MySQL would create an additional index for each key that has none.
    for name, existing in existing_tables.items():
        for key in existing.missing_foreign_keys() if connection.dialect.name != 'sqlite' else ():
            columns, referred = list(key.column_keys), key.referred_table.name
            yield _step(
                f'Add a foreign key from {name}.{", ".join(columns)} to {referred}.',
                operator.methodcaller('create_foreign_key', None, name, referred, columns, ['id']),
            )


# SQLite --------------------------------------------------------------------------------------------------


class BrokenReferences(exception.PlacementError):
    template = 'The tables {tables} would refer to rows that do not exist. Nothing was changed.'


def check_references(connection: sa.Connection) -> None:
    """Check all foreign keys, because SQLite did not check them while the schema was changed.

    :raises BrokenReferences: a row refers to a row that does not exist.
    """
    broken = sql.execute_text(connection, 'PRAGMA foreign_key_check').all()
    if broken:
        theirs = {table.name: name for table, name in tables.UPSTREAM_NAMES.items()}
        names = {theirs.get(row[0], str(row[0])) for row in broken}
        raise BrokenReferences(tables=', '.join(sorted(names)))


def rebuilds(existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield a step for each table that lacks something. It adds all our columns and constraints."""
    for name, existing in existing_tables.items():
        reasons = list(_reasons(existing))
        if reasons:
            sentence = f'Rebuild the table {name}, with all its rows: {"; ".join(reasons)}.'
            yield Step(sentence, functools.partial(_rebuild, existing))


def _reasons(existing: FoundTable) -> Iterator[str]:
    lacking = existing.missing_columns()
    if lacking:
        yield f'add {", ".join(lacking)}'
    if existing.collated_columns:
        yield f'compare {", ".join(sorted(existing.collated_columns))} character by character'
    if existing.missing_not_null():
        yield f'make {", ".join(existing.missing_not_null())} NOT NULL'
    if existing.unwanted_not_null():
        yield f'allow NULL in {", ".join(existing.unwanted_not_null())}'
    if existing.reuses_ids:
        yield 'never reuse an id'
    for unique in existing.missing_unique_constraints():
        yield f'make {", ".join(unique.columns.keys())} unique'
    for key in existing.missing_foreign_keys():
        yield f'let {", ".join(key.column_keys)} refer to {key.referred_table.name}'


def _rebuild(existing: FoundTable, connection: sa.Connection) -> None:
    table = existing.table
    # Alembic itself copies the checks that have a name.
    checks = tuple(
        sa.CheckConstraint(check['sqltext'])
        for check in sa.inspect(connection).get_check_constraints(table.name)
        if check['name'] is None
    )
    # The original SQL creates the indexes again, because Alembic would not copy all details.
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
    indexes = sql.execute_text(connection, query, table.name).all()
    quote = connection.dialect.identifier_preparer.quote
    for name, _ in indexes:
        sql.execute_text(connection, f'DROP INDEX {quote(name)}')
    operations = _operations(connection)
    with operations.batch_alter_table(
        table.name,
        recreate='always',
        table_args=checks,
        table_kwargs={'sqlite_autoincrement': table.dialect_options['sqlite']['autoincrement']},
    ) as batch:
        missing = existing.missing_columns()
        for column in table.columns:
            if column.name in missing:
                batch.add_column(_column_to_add(column))
            elif not column.primary_key:
                batch.alter_column(column.name, type_=column.type, nullable=column.nullable)
        for unique in existing.missing_unique_constraints():
            batch.create_unique_constraint(existing.free_name(unique.name), unique.columns.keys())
        for key in existing.missing_foreign_keys():
            columns = list(key.column_keys)
            batch.create_foreign_key(f'{table.name}_{columns[0]}_fk', key.referred_table.name, columns, ['id'])
    for _, definition in indexes:
        sql.execute_text(connection, definition)


# Ratios --------------------------------------------------------------------------------------------------


def shortest(value: float) -> float:
    """Return the double with the fewest digits that is equal in single precision, such as 0.1 for 0.10000000149."""
    # NumPy writes a number with as few digits as identify it in its precision.
    # Not at the top, because the import takes longer than most commands of placement-manage db.
    import numpy as np

    return float(str(np.float32(value)))


def _ratio_on_postgresql(connection: sa.Connection) -> None:
    _alter_inventories(connection, 'ALTER COLUMN allocation_ratio TYPE double precision')
    _round(connection, 'allocation_ratio', 'allocation_ratio')
    _alter_inventories(connection, 'ALTER COLUMN allocation_ratio SET NOT NULL')


def _ratio_on_mysql(connection: sa.Connection) -> None:
    """Fill a new column, then replace the old one with it, so that the step can be repeated if it was interrupted."""
    if _NEW_RATIO not in {column['name'] for column in sa.inspect(connection).get_columns(_inventories.name)}:
        _alter_inventories(connection, f'ADD COLUMN {_NEW_RATIO} DOUBLE NULL')
    # MySQL sends single-precision numbers with only six digits, but computes and sends this sum as a double.
    _round(connection, 'allocation_ratio + 0e0', _NEW_RATIO)
    _alter_inventories(
        connection,
        f'DROP COLUMN allocation_ratio, CHANGE COLUMN {_NEW_RATIO} allocation_ratio DOUBLE NOT NULL',
    )


def _alter_inventories(connection: sa.Connection, change: str) -> None:
    sql.execute_text(connection, f'ALTER TABLE {_inventories} {change}')


def _round(connection: sa.Connection, ratio: str, target: str) -> None:
    """Store the shortest double of each ``ratio`` in the column ``target``."""
    select = sql.statement('SELECT DISTINCT {ratio} FROM {table}', ratio=ratio, table=_inventories)
    update = sql.statement(
        'UPDATE {table} SET {target} = ? WHERE {ratio} = ?', table=_inventories, target=target, ratio=ratio
    )
    for value in sql.execute_text(connection, select).scalars().all():
        sql.execute_text(connection, update, shortest(value), value)
