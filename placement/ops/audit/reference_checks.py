"""The checks of the audit for references to rows that do not exist, and for the ids of new resource classes.

The database rejects references to rows that do not exist, except while it does not check foreign keys, as when a dump
is loaded.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from placement import units
from placement.db import change_log, tables
from placement.ops.audit.check import Finding, RowChange, Scope
from placement.ops.audit.lost_names import NAME_COLUMNS, lost_name

_providers = tables.resource_providers
#: The root of a provider is left out: ``invalid_tree`` has it.
CHECKED = [reference for reference in tables.REFERENCES if reference[0] is not _providers.c.root_provider_id]


def missing_reference(scope: Scope) -> Iterator[Finding]:
    """Find the rows that name a row that does not exist, with one statement for each column, grouped by that row."""
    for column, target in CHECKED:
        name, table = str(column), column.table.name
        if scope.key is not None and scope.key[0] != name:
            continue
        query = _dangling(column, target)
        if scope.key is not None:
            query = query.where(column == scope.key[1])
        for id_, group in itertools.groupby(scope.tx.execute(query), key=operator.attrgetter(column.name)):
            rows = list(group)
            subject = {column.name.removesuffix('_id'): f'number {id_}'}
            detail = f'{units.plural(len(rows), "row")} of {table} with this id, which {target.name} lacks'
            # Only right before the repair: otherwise the number of statements would depend on the number of rows.
            if scope.key is not None and (conflict := _name_conflict(scope.tx, target, id_)):
                yield Finding(scope.kind, subject, f'{detail}; {conflict}')
            else:
                changes = _changes(column, target, id_, rows)
                yield Finding(scope.kind, subject, detail, changes, (name, id_), change_log.record_reload)


def outdated_class_sequence(scope: Scope) -> Iterator[Finding]:
    """Find that a new resource class would get an id that is in use or of a standard class, or no id."""
    sequence = tables.resource_class_sequence
    columns = (
        tables.resource_classes.c.id,
        tables.inventories.c.resource_class_id,
        tables.allocations.c.resource_class_id,
    )
    largest = [sa.select(sa.func.coalesce(sa.func.max(column), 0)).scalar_subquery() for column in columns]
    if scope.key is not None:
        # Every transaction that creates a class locks this row.
        scope.tx.execute(sequence.select().with_for_update())
    recorded = sa.select(sa.func.max(sequence.c.last)).scalar_subquery()
    last, *ids = scope.tx.execute(sa.select(recorded, *largest)).one()
    # The ids below that of the first custom class are those of standard classes, also of later releases.
    least = max(tables.FIRST_CUSTOM_CLASS_ID - 1, *ids)
    if last is None or last < least:
        detail = f'recorded as the largest id of a resource class: {last}; in use: {max(ids)}; needed: {least} or more'
        change = RowChange(sequence, {'id': 1}, None if last is None else {'last': last}, {'last': least})
        yield Finding(scope.kind, {'resource_class': f'number {max(ids)}'}, detail, (change,), 1)


@functools.cache
def _dangling(column: sa.Column[int], target: sa.Table) -> sa.Select[Any]:
    """Select the rows whose id is not in the other table, in order of this id."""
    table = column.table
    # An alias, because a provider refers to another one.
    other = target.alias('target')
    query = sa.select(table).outerjoin(other, other.c.id == column).where(column.is_not(None), other.c.id.is_(None))
    if target is not _providers and 'resource_provider_id' in table.c:
        # The rows of providers that do not exist are deleted.
        query = query.join(_providers, _providers.c.id == table.c.resource_provider_id)
    if column is tables.allocations.c.resource_class_id:
        # The class is inserted for the inventories that stay.
        inventories = tables.inventories.c
        stays = sa.exists().where(inventories.resource_provider_id == _providers.c.id).correlate(table)
        query = query.where(~stays.where(inventories.resource_class_id == column))
    return query.order_by(column, *table.primary_key)


def _changes(column: sa.Column[int], target: sa.Table, id_: int, rows: list[Any]) -> tuple[RowChange, ...]:
    """Return the changes for an id that does not exist, by the rows that have it."""
    if target in NAME_COLUMNS:
        name_column = NAME_COLUMNS[target]
        # So the rows with this id still belong together.
        return (RowChange(target, {'id': id_}, new={name_column.name: lost_name(name_column, id_)}),)
    if column is _providers.c.parent_provider_id:
        return tuple(RowChange(target, {'id': row.id}, {column.name: id_}, {column.name: None}) for row in rows)
    return tuple(RowChange.deletion(column.table, row) for row in rows)


def _name_conflict(tx: sa.Connection, target: sa.Table, id_: int) -> str:
    """Return why the row with the lost id cannot be inserted; an empty text if it can, or if rows are deleted."""
    if target in NAME_COLUMNS:
        name = lost_name(NAME_COLUMNS[target], id_)
        other_id = tx.scalar(sa.select(target.c.id).where(NAME_COLUMNS[target] == name))
        if other_id is not None:
            return f'{target.name} has the name {name} already, with the id {other_id}: rename this row by hand'
    return ''
