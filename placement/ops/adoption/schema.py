"""Problems about the schema of a database, and the steps that alter it.

SQLite cannot change a column or add a constraint: Alembic's batch mode copies the table instead. Columns, constraints
and indexes that only the other service has are kept.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from placement import exception
from placement.db import sql, tables
from placement.ops.adoption import Step, found_tables
from placement.ops.adoption.found_tables import FoundTable

if TYPE_CHECKING:
    from alembic.operations import BatchOperations

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
        yield from _id_problems(existing)
        if existing.dialect == 'sqlite':
            query = "SELECT type, name FROM sqlite_master WHERE type IN ('trigger', 'view') AND sql LIKE ?"
            for kind, name in sql.execute_text(connection, query, f'%{existing.name}%'):
                where = f'The {kind} {name} depends on the table {existing.name}'
                yield f'{where}, which has to be rebuilt. Drop the {kind}.'
        if existing.dialect == 'postgresql':
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
    for column, referred in existing.missing_foreign_keys():
        where = f'{existing.name}.{column}'
        elsewhere = existing.foreign_keys.get((column,))
        if elsewhere is not None:
            yield f'{where} refers to the table {elsewhere}.'
        elif existing.engine is not None and column in existing.columns and referred in existing_tables:
            types_ = existing.columns[column]['type'], existing_tables[referred].columns['id']['type']
            if type(types_[0]) is not type(types_[1]):
                target = f'{existing_tables[referred].name}.id'
                yield f'{where} is of the type {types_[0]!r} and cannot refer to {target}, which is {types_[1]!r}.'


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


def _id_problems(existing: FoundTable) -> Iterator[str]:
    """Yield a problem if the database does not number new rows."""
    id_ = existing.columns.get('id')
    # This service chooses the ids of resource classes itself.
    if id_ is None or existing.table is tables.resource_classes:
        return
    numbers = id_.get('autoincrement') is True or bool(id_.get('identity')) or bool(id_['default'])
    if existing.dialect == 'sqlite':
        numbers = str(id_['type']).upper() == 'INTEGER'
    if not numbers:
        yield f'The column {existing.name}.id is not numbered by the database.'


# Steps ---------------------------------------------------------------------------------------------------


def alterations(existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield steps that add missing columns and change types and NOT NULL. On SQLite, they also add constraints."""
    for existing in existing_tables.values():
        changes = [*_column_changes(existing)]
        if existing.dialect == 'sqlite':
            changes += [*_new_unique_constraints(existing), *_new_foreign_keys(existing)]
        yield from _alteration(existing, changes)
        if existing.single_precision():
            yield Step(f'Convert {existing.table.name}.allocation_ratio to double precision.', _convert_ratios)


def constraints(existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield steps that add missing indexes and, except on SQLite, missing unique constraints and foreign keys."""
    for existing in existing_tables.values():
        unique = () if existing.dialect == 'sqlite' else _new_unique_constraints(existing)
        changes: list[Change] = [*unique]
        for index in existing.missing_indexes():
            columns, name = index.columns.keys(), existing.free_name(index.name)
            sentence = f'create an index on {", ".join(columns)}'
            changes.append((sentence, operator.methodcaller('create_index', name, columns)))
        yield from _alteration(existing, changes, rebuilds=False)
    # Foreign keys come after all indexes: MySQL would create an additional index for each key that has none.
    for existing in existing_tables.values():
        if existing.dialect != 'sqlite':
            yield from _alteration(existing, [*_new_foreign_keys(existing)])


#: What changes, for the sentence of a step, and the call that changes it.
Change = tuple[str, Callable[['BatchOperations'], object]]


def _alteration(existing: FoundTable, changes: Sequence[Change], rebuilds: bool = True) -> Iterator[Step]:
    """Yield the step that makes the changes of a table, if there are any.

    :param rebuilds: whether SQLite has to rebuild the table for them.
    """
    if not changes:
        return
    name, what = existing.table.name, '; '.join(sentence for sentence, _ in changes)
    if rebuilds and existing.dialect == 'sqlite':
        yield Step(
            f'Rebuild the table {name}, with all its rows: {what}.', functools.partial(_rebuild, existing, changes)
        )
    else:
        yield Step(f'Alter the table {name}: {what}.', functools.partial(_alter, name, changes))


def _alter(name: str, changes: Sequence[Change], connection: sa.Connection, **options: Any) -> None:
    # Not at the top, because the import would delay the commands that change no schema.
    from alembic import migration
    from alembic.operations import Operations

    operations = Operations(migration.MigrationContext.configure(connection))
    with operations.batch_alter_table(name, **{'recreate': 'never', **options}) as batch:
        for _, change in changes:
            change(batch)


def _column_changes(existing: FoundTable) -> Iterator[Change]:
    name = existing.table.name
    if existing.engine is not None and existing.engine.lower() != 'innodb':
        yield 'move it to InnoDB', operator.methodcaller('execute', f'ALTER TABLE {name} ENGINE=InnoDB')
    if existing.engine is not None and existing.collated_columns:
        # The row formats of old tables limit index entries too much for texts with four bytes per character.
        change = operator.methodcaller('execute', f'ALTER TABLE {name} ROW_FORMAT=DYNAMIC')
        yield 'use the dynamic row format', change
    if existing.reuses_ids:
        # Every rebuild declares this.
        yield 'never reuse an id', lambda _batch: None
    for column_name in existing.missing_columns():
        ours = existing.table.columns[column_name]
        # Without constraints and indexes, which are added separately.
        default = '0' if column_name == 'used' else None
        added = sa.Column(column_name, ours.type, nullable=ours.nullable, server_default=default)
        yield f'add the column {column_name}', operator.methodcaller('add_column', added)
    for column in existing.table.columns:
        if column.name in existing.columns:
            yield from _changes_of_column(existing, column)


def _changes_of_column(existing: FoundTable, ours: sa.Column[Any]) -> Iterator[Change]:
    """Yield the change of the type of a column and of NOT NULL, if one of them has to change."""
    name, present = ours.name, existing.columns[ours.name]
    type_, nullable = None, present['nullable']
    words = []
    if name in existing.collated_columns:
        words.append('is compared character by character')
    if name in existing.short_columns():
        words.append(f'gets the length {ours.type.length}')  # type: ignore[attr-defined]
    if words:
        # A text column that is longer than ours keeps its length.
        type_ = sql.Text(max(ours.type.length, present['type'].length or 0))  # type: ignore[attr-defined]
    # The step that converts a ratio from single precision also makes it NOT NULL.
    if name in existing.missing_not_null() and name not in existing.single_precision():
        words.append('becomes NOT NULL')
        nullable = False
    # This service always writes a name and the time of creation.
    if ours.nullable and not present['nullable'] and name not in ('name', 'created_at'):
        words.append('allows NULL')
        nullable = True
    if words:
        default = None if present['default'] is None else sa.text(present['default'])
        change = operator.methodcaller(
            'alter_column',
            name,
            type_=type_,
            nullable=nullable,
            existing_type=type_ or present['type'],
            existing_nullable=present['nullable'],
            existing_server_default=default,
        )
        yield f'{name} {" and ".join(words)}', change


def _new_unique_constraints(existing: FoundTable) -> Iterator[Change]:
    for unique in existing.missing_unique_constraints():
        columns, name = unique.columns.keys(), existing.free_name(unique.name)
        yield f'make {", ".join(columns)} unique', operator.methodcaller('create_unique_constraint', name, columns)


def _new_foreign_keys(existing: FoundTable) -> Iterator[Change]:
    for column, referred in existing.missing_foreign_keys():
        name = f'{existing.table.name}_{column}_fk'
        change = operator.methodcaller('create_foreign_key', name, referred, [column], ['id'])
        yield f'let {column} refer to {referred}', change


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


def _rebuild(existing: FoundTable, changes: Sequence[Change], connection: sa.Connection) -> None:
    table, name = existing.table, existing.table.name
    # Alembic itself copies the checks that have a name.
    checks = tuple(
        sa.CheckConstraint(check['sqltext'])
        for check in sa.inspect(connection).get_check_constraints(name)
        if check['name'] is None
    )
    # The original SQL creates the indexes again, because Alembic would not copy all details.
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL"
    indexes = sql.execute_text(connection, query, name).all()
    quote = connection.dialect.identifier_preparer.quote
    for index, _ in indexes:
        sql.execute_text(connection, f'DROP INDEX {quote(index)}')
    # Columns that need no rebuild also become as this service declares them.
    declared = [
        ('', operator.methodcaller('alter_column', column.name, type_=column.type, nullable=column.nullable))
        for column in table.columns
        if column.name in existing.columns and not column.primary_key
    ]
    autoincrement = table.dialect_options['sqlite']['autoincrement']
    options = {'recreate': 'always', 'table_args': checks, 'table_kwargs': {'sqlite_autoincrement': autoincrement}}
    _alter(name, [*changes, *declared], connection, **options)
    for _, definition in indexes:
        sql.execute_text(connection, definition)


# Ratios --------------------------------------------------------------------------------------------------


def shortest(value: float) -> float:
    """Return the double with the fewest digits that is equal in single precision, such as 0.1 for 0.10000000149."""
    # NumPy writes a number with as few digits as identify it in its precision.
    # Not at the top, because the import takes longer than most commands of placement-manage db.
    import numpy as np

    return float(str(np.float32(value)))


def _convert_ratios(connection: sa.Connection) -> None:
    def alter(changes: str) -> None:
        sql.execute_text(connection, f'ALTER TABLE {_inventories} {changes}')

    if connection.dialect.name == 'postgresql':
        # As a text, a number has as few digits as identify it in its precision. 1 is the default.
        sql.execute_text(connection, 'SET LOCAL extra_float_digits = 1')
        converted = 'TYPE double precision USING allocation_ratio::text::double precision'
        alter(f'ALTER COLUMN allocation_ratio {converted}, ALTER COLUMN allocation_ratio SET NOT NULL')
        return
    # On MySQL, fill a new column, then replace the old one, so that the step can be repeated if it was interrupted.
    if _NEW_RATIO not in {column['name'] for column in sa.inspect(connection).get_columns(_inventories.name)}:
        alter(f'ADD COLUMN {_NEW_RATIO} DOUBLE NULL')
    # MySQL sends single-precision numbers with only six digits, but computes and sends this sum as a double.
    names = {'ratio': 'allocation_ratio + 0e0', 'table': _inventories, 'new': _NEW_RATIO}
    update = sql.statement('UPDATE {table} SET {new} = ? WHERE {ratio} = ?', **names)
    select = sql.statement('SELECT DISTINCT {ratio} FROM {table}', **names)
    for value in sql.execute_text(connection, select).scalars().all():
        sql.execute_text(connection, update, shortest(value), value)
    alter(f'DROP COLUMN allocation_ratio, CHANGE COLUMN {_NEW_RATIO} allocation_ratio DOUBLE NOT NULL')
