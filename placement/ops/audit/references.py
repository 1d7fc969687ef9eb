"""The checks of the audit for references to rows that do not exist.

The database rejects such references, except while it does not check foreign keys, as when a dump is loaded.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import units
from placement.db import change_log, tables
from placement.ops.audit.findings import Finding, RowChange, deletion


class _Reference(NamedTuple):
    """A column with ids of rows of another table, and the repair of the rows whose id does not exist."""

    column: sa.Column[int]
    target: sa.Table
    #: Returns the changes for an id that does not exist.
    changes: Callable[[_Reference, int, list[Any]], list[RowChange]]
    #: The name of the inserted row, with the number of its id.
    placeholder: str = ''


def missing_reference(tx: sa.Connection, key: tuple[str, int] | None = None, /) -> Iterator[Finding]:
    """Find the rows that name a row that does not exist, with one statement for each column, grouped by that row."""
    for reference in REFERENCES:
        column, table = reference.column, reference.column.table
        name = str(column)
        query = _dangling(reference)
        if key is not None:
            if key[0] != name:
                continue
            query = query.where(column == key[1])
        for id_, group in itertools.groupby(tx.execute(query), key=operator.attrgetter(column.name)):
            rows = list(group)
            subject = {column.name.removesuffix('_id'): f'number {id_}'}
            detail = (
                f'{units.plural(len(rows), "row")} of {table.name} with this id, which {reference.target.name} lacks'
            )
            changes = tuple(reference.changes(reference, id_, rows))
            yield Finding(subject, detail, changes, (name, id_), change_log.record_reload)


def outdated_class_sequence(tx: sa.Connection, key: int | None = None, /) -> Iterator[Finding]:
    """Find that a new resource class would get an id that is in use."""
    sequence = tables.resource_class_sequence.c
    columns = (
        tables.resource_classes.c.id,
        tables.inventories.c.resource_class_id,
        tables.allocations.c.resource_class_id,
    )
    largest = [sa.select(sa.func.coalesce(sa.func.max(column), 0)).scalar_subquery() for column in columns]
    if key is not None:
        # Every transaction that creates a class updates this row.
        tx.execute(sa.select(sequence.id).with_for_update())
    for row in tx.execute(sa.select(sequence.id, sequence.last, *largest)):
        id_, last, *ids = row
        if last < max(ids):
            detail = f'recorded as the largest id of a resource class: {last}; in use: {max(ids)}'
            change = RowChange(tables.resource_class_sequence, {'id': id_}, {'last': last}, {'last': max(ids)})
            yield Finding({'resource_class': f'number {max(ids)}'}, detail, (change,), id_)


def _dangling(reference: _Reference) -> sa.Select[Any]:
    """Select the rows whose id is not in the other table, in order of this id."""
    column, table = reference.column, reference.column.table
    providers, inventories = tables.resource_providers, tables.inventories
    # An alias, because a provider refers to another one.
    target = reference.target.alias('target')
    query = sa.select(table).outerjoin(target, target.c.id == column).where(column.is_not(None), target.c.id.is_(None))
    if reference.target is not providers and 'resource_provider_id' in table.c:
        # The rows of providers that do not exist are deleted.
        query = query.join(providers, providers.c.id == table.c.resource_provider_id)
    if column is tables.allocations.c.resource_class_id:
        # The class is inserted for the inventories.
        query = query.where(~sa.exists().where(inventories.c.resource_class_id == column))
    return query.order_by(column, *table.primary_key)


def _delete(reference: _Reference, _id: int, rows: list[Any]) -> list[RowChange]:
    return [deletion(reference.column.table, row) for row in rows]


def _make_root(reference: _Reference, id_: int, rows: list[Any]) -> list[RowChange]:
    table, name = reference.column.table, reference.column.name
    return [RowChange(table, {'id': row.id}, {name: id_}, {name: None}) for row in rows]


def _insert_target(reference: _Reference, id_: int, _rows: list[Any]) -> list[RowChange]:
    """Insert a row with a name that tells that the right one is lost. So the rows with its id still belong together."""
    (name,) = {'name', 'external_id'} & set(reference.target.columns.keys())
    text = reference.placeholder.format(id_)
    if reference.target is tables.resource_classes:
        text = tables.STANDARD_CLASSES.get(id_, text)
    return [RowChange(reference.target, {'id': id_}, None, {name: text})]


_providers, _inventories, _allocations = tables.resource_providers, tables.inventories, tables.allocations
_provider_traits, _members = tables.resource_provider_traits, tables.resource_provider_aggregates
_consumers = tables.consumers
_LOST_CLASS = 'CUSTOM_LOST_CLASS_{}'
#: All columns with ids of other tables, except those that ``contradictions`` has: the root of a provider, and the
#: copies in allocations. A consumer is referred to by its uuid.
REFERENCES = (
    _Reference(_providers.c.parent_provider_id, _providers, _make_root),
    _Reference(_inventories.c.resource_provider_id, _providers, _delete),
    _Reference(_allocations.c.resource_provider_id, _providers, _delete),
    _Reference(_provider_traits.c.resource_provider_id, _providers, _delete),
    _Reference(_members.c.resource_provider_id, _providers, _delete),
    _Reference(_inventories.c.resource_class_id, tables.resource_classes, _insert_target, _LOST_CLASS),
    _Reference(_allocations.c.resource_class_id, tables.resource_classes, _insert_target, _LOST_CLASS),
    _Reference(_provider_traits.c.trait_id, tables.traits, _delete),
    _Reference(_members.c.aggregate_id, tables.placement_aggregates, _delete),
    _Reference(_consumers.c.project_id, tables.projects, _insert_target, 'lost-project-{}'),
    _Reference(_consumers.c.user_id, tables.users, _insert_target, 'lost-user-{}'),
    _Reference(_consumers.c.consumer_type_id, tables.consumer_types, _insert_target, 'LOST_TYPE_{}'),
)
