"""Rows of another service that prevent an adoption, because an operator has to decide how to correct them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import os_resource_classes
import sqlalchemy as sa

from placement.db import roots, tables, types
from placement.db.adoption.found_tables import FoundTable
from placement.db.adoption.names import Names
from placement.db.adoption.plan import count

_CANONICAL = re.compile(r'[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}')
#: How many examples a problem names.
_MAX_EXAMPLES = 3

STANDARD_CLASSES = dict(enumerate(os_resource_classes.STANDARDS))


def find(connection: sa.Connection, names: Names, existing_tables: Mapping[str, FoundTable]) -> Iterator[str]:
    """Yield a sentence about everything that would make a step fail, or that no audit could repair afterwards."""
    for existing in existing_tables.values():
        yield from _empty(connection, names, existing)
        yield from _equal(connection, names, existing)
        for column, referred in _references(existing.table):
            # A column or table that is missing is added without rows.
            if column.name in existing.columns and referred.table in names:
                yield from _orphans(connection, names, column, referred.table)
    yield from _classes(connection, names)
    yield from _uuids(connection, names)
    yield from _loops(connection, names)
    yield from _steps(connection, names)


def _empty(connection: sa.Connection, names: Names, existing: FoundTable) -> Iterator[str]:
    for name in existing.missing_not_null():
        # A generation of NULL is set to 0 by a step (``rows.generations``).
        if name != 'generation':
            column = names[existing.table].c[name]
            number = connection.execute(sa.select(sa.func.count()).where(column.is_(None))).scalar_one()
            if number:
                yield f'{existing.name}.{name} is NULL in {count(number, "row")}.'


def _equal(connection: sa.Connection, names: Names, existing: FoundTable) -> Iterator[str]:
    for unique in existing.missing_unique_constraints():
        there = [names[existing.table].c[column.name] for column in unique.columns]
        # Compared as after the adoption. Until then MySQL may take different texts as equal.
        binary = connection.dialect.name in ('mysql', 'mariadb')
        columns = [
            sa.cast(column, sa.LargeBinary) if binary and isinstance(column.type, types.Text) else column
            for column in there
        ]
        twice = sa.select(*there).group_by(*columns, *there).having(sa.func.count() > 1)
        found = connection.execute(twice.limit(_MAX_EXAMPLES)).all()
        if found:
            same = ', '.join(unique.columns.keys())
            yield f'{existing.name} has rows with the same {same}: {_examples(map(tuple, found))}.'


def _references(table: sa.Table) -> Iterator[tuple[sa.Column[Any], sa.Column[Any]]]:
    """Yield each column that refers to a row of another table, and the column it refers to."""
    for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
        yield key.parent, key.column
    if table is tables.allocations:
        yield table.c.resource_class_id, tables.resource_classes.c.id


def _orphans(connection: sa.Connection, names: Names, referring: sa.Column[Any], referred: sa.Table) -> Iterator[str]:
    column = names[referring.table].c[referring.name]
    target = names[referred].alias()
    without_target = column.is_not(None) & ~sa.exists().where(target.c.id == column)
    found: Iterable[int] = connection.scalars(sa.select(column).where(without_target).distinct().order_by(column))
    if referred is tables.resource_classes:
        # A step inserts the standard classes that are missing, with these ids.
        found = (id_ for id_ in found if id_ not in STANDARD_CLASSES)
    missing = list(found)
    if missing:
        name, target_name = names.of(referring.table), names.of(referred)
        yield f'{name}.{column.name} refers to {target_name} that do not exist: {_examples(missing)}.'


def _classes(connection: sa.Connection, names: Names) -> Iterator[str]:
    classes = names[tables.resource_classes].c
    positions = {name: id_ for id_, name in STANDARD_CLASSES.items()}
    for id_, name in connection.execute(sa.select(classes.id, classes.name).order_by(classes.id)):
        if name in positions and positions[name] != id_:
            yield f'The standard resource class {name} has the id {id_} instead of {positions[name]}.'
        elif id_ in STANDARD_CLASSES and name not in positions:
            yield f'The id {id_} belongs to the standard resource class {STANDARD_CLASSES[id_]}, but is that of {name}.'


def _uuids(connection: sa.Connection, names: Names) -> Iterator[str]:
    for wanted in (
        tables.resource_providers.c.uuid,
        tables.placement_aggregates.c.uuid,
        tables.consumers.c.uuid,
        tables.allocations.c.consumer_id,
    ):
        column = names[wanted.table].c[wanted.name]
        texts = connection.scalars(sa.select(column).where(column.is_not(None)))
        odd = [text for text in texts if not _CANONICAL.fullmatch(text)]
        if odd:
            yield (
                f'{names.of(wanted.table)}.{column.name} has uuids that are not in lower case with hyphens:'
                f' {_examples(odd)}.'
            )


def _loops(connection: sa.Connection, names: Names) -> Iterator[str]:
    columns = names[tables.resource_providers].c
    rows = connection.execute(sa.select(columns.id, columns.parent_provider_id)).all()
    parents = {row.id: row.parent_provider_id for row in rows}
    looping = sorted(id_ for id_, root_id in roots.of(parents).items() if root_id is None)
    if looping:
        yield f'The parents of {names.of(tables.resource_providers)} form a cycle: {_examples(looping)}.'


def _steps(connection: sa.Connection, names: Names) -> Iterator[str]:
    inventories = names[tables.inventories].c
    found = connection.scalars(sa.select(inventories.id).where(inventories.step_size < 1).limit(_MAX_EXAMPLES)).all()
    if found:
        name = names.of(tables.inventories)
        yield f'{name}.step_size is less than 1, which no amount is a multiple of: {_examples(found)}.'


def _examples(found: Iterable[Any]) -> str:
    """Return the first few, and how many more."""
    listed = list(found)
    examples = ', '.join(str(one) for one in listed[:_MAX_EXAMPLES])
    return examples if len(listed) <= _MAX_EXAMPLES else f'{examples} and {len(listed) - _MAX_EXAMPLES} more'
