"""The checks of the audit for inventories and the allocations of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa

from placement import capacity, units
from placement.db import change_log, tables
from placement.ops.audit.check import Finding, RowChange, Scope
from placement.ops.audit.lost_names import lost_name

_allocations, _inventories = tables.allocations, tables.inventories
_classes, _providers = tables.resource_classes, tables.resource_providers


def allocation_without_inventory(scope: Scope) -> Iterator[Finding]:
    """Find allocations of classes that the provider has no inventory of."""
    query = _select(_allocations).outerjoin(_inventories, tables.ALLOCATION_OF_INVENTORY)
    for row in scope.tx.execute(query.where(_inventories.c.id.is_(None))):
        detail = f'allocation of {row.used}, but the provider has no inventory: add one or delete the allocation'
        yield Finding(scope.kind, _subject(scope, row), detail)


def usage_mismatch(scope: Scope) -> Iterator[Finding]:
    """Find inventories whose recorded usage is not the sum of the allocations."""
    query = _select(_inventories, tables.ALLOCATED.label('allocated')).where(_inventories.c.used != tables.ALLOCATED)
    # Each transaction that changes allocations of this inventory also updates its row. While the row is locked, no such
    # transaction can be committed, so the sum of the committed allocations does not change.
    for row in scope.tx.execute(scope.lock_and_restrict(query, _inventories.c.id)):
        detail = f'recorded as used: {row.used}; sum of the allocations: {row.allocated}'
        change = RowChange(_inventories, {'id': row.id}, {'used': row.used}, {'used': int(row.allocated)})
        record = functools.partial(change_log.record_usage, provider_ids=[row.resource_provider_id])
        yield Finding(scope.kind, _subject(scope, row), detail, (change,), row.id, record)


def over_committed(scope: Scope) -> Iterator[Finding]:
    """Find inventories whose allocations exceed their capacity."""
    # ``usage_mismatch`` records the sum of the allocations as used, if it repairs.
    limit, allocated = tables.CAPACITY_LIMIT, tables.ALLOCATED
    query = _select(_inventories, limit.label('limit'), allocated.label('allocated'))
    # A negative limit, as of an inventory that is reserved as a whole, is 0.
    for row in scope.tx.execute(query.where(allocated > sa.case((limit > 0, limit), else_=0))):
        subject = _subject(scope, row)
        used = units.used_of_capacity(subject['resource_class'], int(row.allocated), max(int(row.limit), 0))
        detail = f'{used} used: raise the inventory or move consumers to other providers'
        yield Finding(scope.kind, subject, detail)


def invalid_inventory(scope: Scope) -> Iterator[Finding]:
    """Find inventories with values that no request can store, which another program wrote."""
    columns, minimums = _inventories.c, {**capacity.MINIMUMS, 'capacity': 0}
    is_invalid = [columns[name] < minimum for name, minimum in capacity.MINIMUMS.items()]
    # A request may store a capacity that is 0 when it is truncated.
    for row in scope.tx.execute(_select(_inventories).where(sa.or_(*is_invalid, tables.CAPACITY_LIMIT <= -1))):
        values = {name: getattr(row, name) for name in capacity.MINIMUMS}
        values['capacity'] = capacity.InventoryRecord(**values).capacity
        wrong = [
            f'{name} is {values[name]}, below {minimums[name]}' for name in values if values[name] < minimums[name]
        ]
        detail = f'{"; ".join(wrong)}: write the inventory with valid values'
        yield Finding(scope.kind, _subject(scope, row), detail)


def unit_violation(scope: Scope) -> Iterator[Finding]:
    """Find allocations that their inventory would not allow now."""
    inv = _inventories.c
    used = _allocations.c.used
    violated = sa.not_(capacity.satisfies_unit_constraints(inv, used, used, used))
    # ``invalid_inventory`` finds the others. PostgreSQL fails on a division by 0, and only CASE guarantees the order.
    is_violated = sa.case((inv.step_size < 1, sa.false()), else_=violated)
    query = _select(_allocations, inv.min_unit, inv.max_unit, inv.step_size)
    for row in scope.tx.execute(query.join(_inventories, tables.ALLOCATION_OF_INVENTORY).where(is_violated)):
        rules = f'min_unit {row.min_unit}, max_unit {row.max_unit}, step_size {row.step_size}'
        detail = f'allocation of {row.used} violates {rules}'
        yield Finding(scope.kind, _subject(scope, row), detail)


def _select(table: sa.Table, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select inventories or allocations, with what ``_subject`` needs, in the order of their ids.

    Each is joined with its provider, and with its class if there is one. Those of a provider that does not exist are
    left out, because ``missing_reference`` deletes them.

    :param table: ``_inventories`` or ``_allocations``.
    :param columns: more columns, also of tables that the caller joins.
    """
    class_name = _classes.c.name.label('class_name')
    return (
        sa.select(table, _providers.c.uuid, _providers.c.name.label('provider_name'), class_name, *columns)
        .select_from(table)
        .join(_providers, _providers.c.id == table.c.resource_provider_id)
        .outerjoin(_classes, _classes.c.id == table.c.resource_class_id)
        .order_by(table.c.id)
    )


def _subject(scope: Scope, row: Any) -> dict[str, Any]:
    """Return the ``subject`` for the row of an inventory or an allocation.

    A class that does not exist has the name with which ``missing_reference`` inserts it, if it does.
    """
    number = row.resource_class_id
    is_inserted = scope.assumes_repaired('missing_reference')
    class_name = row.class_name or (lost_name(_classes.c.name, number) if is_inserted else f'number {number}')
    about = {'resource_provider': row.uuid, 'provider_name': row.provider_name, 'resource_class': class_name}
    return about | ({'consumer': row.consumer_id} if hasattr(row, 'consumer_id') else {})
