"""Adoption on SQLite, which cannot change a column or add a constraint: the table is copied to a new one instead.

What the other service has in addition to ours (columns, constraints, indexes) is kept.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from placement import exception
from placement.db import tables
from placement.db.adoption.found_tables import Shape
from placement.db.adoption.plan import Step

_PREFIX = 'placement_new_'


class BrokenReferences(exception.PlacementError):
    template = 'The tables {tables} would refer to rows that are not there. Nothing was changed.'


def check_references(connection: sa.Connection) -> None:
    """Check all foreign keys, which are not checked while the schema is changed.

    :raises BrokenReferences: a row refers to one that does not exist.
    """
    broken = connection.exec_driver_sql('PRAGMA foreign_key_check').all()
    if broken:
        theirs = {table.name: name for table, name in tables.THEIR_NAMES.items()}
        names = {theirs.get(row[0], str(row[0])) for row in broken}
        raise BrokenReferences(tables=', '.join(sorted(names)))


def columns(shapes: Mapping[str, Shape]) -> Iterator[Step]:
    """A step for each table that lacks something, after which it has all our columns and constraints."""
    for name, shape in shapes.items():
        reasons = list(_reasons(shape))
        if reasons:
            sentence = f'Write the table {name} anew, with what else is in it: {"; ".join(reasons)}.'
            yield Step(sentence, functools.partial(_rewrite, shape))


def _reasons(shape: Shape) -> Iterator[str]:
    lacking = shape.lacks_columns()
    if lacking:
        yield f'add {", ".join(lacking)}'
    if shape.own_order:
        yield f'compare {", ".join(sorted(shape.own_order))} character by character'
    if shape.too_open():
        yield f'never empty {", ".join(shape.too_open())}'
    if shape.too_strict():
        yield f'perhaps empty {", ".join(shape.too_strict())}'
    if shape.reuses_ids:
        yield 'give no id twice'
    for unique in shape.lacks_unique():
        yield f'unique {", ".join(unique.columns.keys())}'
    for key in shape.lacks_foreign_keys():
        yield f'{", ".join(key.column_keys)} refers to {key.referred_table.name}'


def _rewrite(shape: Shape, connection: sa.Connection) -> None:
    name = shape.table.name
    made = _combined(connection, shape)
    indexes = sa.text("SELECT sql FROM sqlite_master WHERE type = 'index' AND tbl_name = :name AND sql IS NOT NULL")
    kept = connection.execute(indexes, {'name': name}).scalars().all()
    quote = connection.dialect.identifier_preparer.quote
    shared = ', '.join(quote(column) for column in shape.columns)
    connection.execute(CreateTable(made))
    connection.exec_driver_sql(f'INSERT INTO {made.name} ({shared}) SELECT {shared} FROM {name}')  # noqa: S608
    connection.exec_driver_sql(f'DROP TABLE {name}')
    connection.exec_driver_sql(f'ALTER TABLE {made.name} RENAME TO {name}')
    for statement in kept:
        connection.exec_driver_sql(statement)


def _combined(connection: sa.Connection, shape: Shape) -> sa.Table:
    """Our table under a temporary name, with the columns and constraints that only theirs has."""
    metadata = sa.MetaData()
    for table in tables.metadata.sorted_tables:
        table.to_metadata(metadata)
    made = shape.table.to_metadata(metadata, name=_PREFIX + shape.table.name)
    for name, column in shape.columns.items():
        if name not in made.columns:
            default = None if column['default'] is None else sa.text(column['default'])
            made.append_column(sa.Column(name, column['type'], nullable=column['nullable'], server_default=default))
    for constraint in _their_constraints(connection, shape, metadata):
        made.append_constraint(constraint)
    return made


def _their_constraints(connection: sa.Connection, shape: Shape, metadata: sa.MetaData) -> Iterator[sa.Constraint]:
    inspector, name = sa.inspect(connection), shape.table.name
    ours = {tuple(one.column_keys) for one in shape.table.foreign_key_constraints}
    for key in inspector.get_foreign_keys(name):
        if tuple(key['constrained_columns']) not in ours:
            referred = key['referred_table']
            if referred not in metadata.tables:
                sa.Table(referred, metadata, autoload_with=connection, resolve_fks=False)
            columns = [f'{referred}.{column}' for column in key['referred_columns']]
            yield sa.ForeignKeyConstraint(key['constrained_columns'], columns, **key['options'])
    unique = {frozenset(one.columns.keys()) for one in shape.table.constraints if isinstance(one, sa.UniqueConstraint)}
    for one in inspector.get_unique_constraints(name):
        if frozenset(one['column_names']) not in unique:
            yield sa.UniqueConstraint(*one['column_names'], name=one['name'])
    for check in inspector.get_check_constraints(name):
        yield sa.CheckConstraint(check['sqltext'], name=check['name'])
