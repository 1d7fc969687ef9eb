"""Adoption on SQLite, which cannot change a column or add a constraint: Alembic's batch mode copies the table instead.

Columns, constraints and indexes that only the other service has are kept.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import sqlalchemy as sa
from alembic import migration
from alembic.operations import Operations

from placement import exception
from placement.db import tables
from placement.db.adoption import schema
from placement.db.adoption.found_tables import FoundTable
from placement.db.adoption.plan import Step


class BrokenReferences(exception.PlacementError):
    template = 'The tables {tables} would refer to rows that do not exist. Nothing was changed.'


def check_references(connection: sa.Connection) -> None:
    """Check all foreign keys, which are not checked while the schema is changed.

    :raises BrokenReferences: a row refers to one that does not exist.
    """
    broken = connection.exec_driver_sql('PRAGMA foreign_key_check').all()
    if broken:
        theirs = {table.name: name for table, name in tables.THEIR_NAMES.items()}
        names = {theirs.get(row[0], str(row[0])) for row in broken}
        raise BrokenReferences(tables=', '.join(sorted(names)))


def columns(existing_tables: Mapping[str, FoundTable]) -> Iterator[Step]:
    """Yield a step for each table that lacks something, after which it has all our columns and constraints."""
    for name, existing in existing_tables.items():
        reasons = list(_reasons(existing))
        if reasons:
            sentence = f'Rebuild the table {name}, with everything else in it: {"; ".join(reasons)}.'
            yield Step(sentence, functools.partial(_rebuild, existing))


def _reasons(existing: FoundTable) -> Iterator[str]:
    lacking = existing.missing_columns()
    if lacking:
        yield f'add {", ".join(lacking)}'
    if existing.collated_columns:
        yield f'compare {", ".join(sorted(existing.collated_columns))} character by character'
    if existing.missing_not_null():
        yield f'NOT NULL {", ".join(existing.missing_not_null())}'
    if existing.unwanted_not_null():
        yield f'NULL allowed {", ".join(existing.unwanted_not_null())}'
    if existing.reuses_ids:
        yield 'never use an id again'
    for unique in existing.missing_unique_constraints():
        yield f'unique {", ".join(unique.columns.keys())}'
    for key in existing.missing_foreign_keys():
        yield f'{", ".join(key.column_keys)} refers to {key.referred_table.name}'


def _rebuild(existing: FoundTable, connection: sa.Connection) -> None:
    table = existing.table
    checks = tuple(
        sa.CheckConstraint(one['sqltext'])
        for one in sa.inspect(connection).get_check_constraints(table.name)
        # Alembic copies the others.
        if one['name'] is None
    )
    # As they were created: Alembic would not copy all of their details.
    query = sa.text(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = :table AND sql IS NOT NULL"
    )
    indexes = connection.execute(query, {'table': table.name}).all()
    quote = connection.dialect.identifier_preparer.quote
    for name, _ in indexes:
        connection.exec_driver_sql(f'DROP INDEX {quote(name)}')
    operations = Operations(migration.MigrationContext.configure(connection))
    with operations.batch_alter_table(
        table.name,
        recreate='always',
        table_args=checks,
        table_kwargs={'sqlite_autoincrement': table.dialect_options['sqlite']['autoincrement']},
    ) as batch:
        missing = existing.missing_columns()
        for column in table.columns:
            if column.name in missing:
                batch.add_column(schema.column_to_add(column))
            elif not column.primary_key:
                batch.alter_column(column.name, type_=column.type, nullable=column.nullable)
        for unique in existing.missing_unique_constraints():
            batch.create_unique_constraint(existing.free_name(unique.name), unique.columns.keys())
        for key in existing.missing_foreign_keys():
            columns = list(key.column_keys)
            batch.create_foreign_key(f'{table.name}_{columns[0]}_fk', key.referred_table.name, columns, ['id'])
    for _, definition in indexes:
        connection.exec_driver_sql(definition)
