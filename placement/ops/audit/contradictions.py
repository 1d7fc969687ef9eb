"""The checks of the audit for rows that contradict one another, although all that they refer to exist."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from placement import capacity, units
from placement.db import change_log, errors, tables
from placement.ops.audit import Scope
from placement.ops.audit.findings import Finding, IdOf, RowChange, deletion
from placement.ops.audit.references import lost_name
from placement.ops.lost_consumers import OWNER_COLUMNS, read_lost_consumers
from placement.ops.provider_roots import find_roots

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_classes, _providers = tables.resource_classes, tables.resource_providers
_projects, _users, _members = tables.projects, tables.users, tables.resource_provider_aggregates


def invalid_tree(scope: Scope) -> Iterator[Finding]:
    """Find providers whose recorded root is not the one that their parents lead to."""
    columns = _providers.c
    recorded_root = _providers.alias()
    query = (
        sa.select(columns.id, columns.uuid, columns.name, columns.parent_provider_id, columns.root_provider_id)
        .add_columns(recorded_root.c.uuid.label('recorded_root'))
        .outerjoin(recorded_root, recorded_root.c.id == columns.root_provider_id)
    )
    if scope.key is not None:
        query = query.where(columns.id.in_(_locked_ancestors(scope.tx, scope.key)))
    rows = {row.id: row for row in scope.tx.execute(query.order_by(columns.id))}
    parents: dict[int, int | None] = {id_: row.parent_provider_id for id_, row in rows.items()}
    root_of = find_roots(parents)
    for id_, row in rows.items():
        root_id = root_of[id_]
        if root_id == row.root_provider_id or scope.key not in (None, id_):
            continue
        subject = {'resource_provider': row.uuid, 'provider_name': row.name}
        if root_id is None:
            detail = 'its parents form a loop: set parent_provider_id of one of them to NULL by hand'
            yield Finding(subject, detail)
        else:
            recorded = row.recorded_root
            if recorded is None and row.root_provider_id is not None:
                # It was recorded while the database did not check foreign keys.
                recorded = f'id {row.root_provider_id}, which does not exist'
            detail = f'its root is recorded as {recorded}, but its parents lead to {rows[root_id].uuid}'
            old, new = {'root_provider_id': row.root_provider_id}, {'root_provider_id': root_id}
            change = RowChange(_providers, {'id': id_}, old, new)
            record = functools.partial(change_log.record_providers, provider_ids=[id_])
            yield Finding(subject, detail, (change,), id_, record)


def allocation_without_consumer(scope: Scope) -> Iterator[Finding]:
    """Find allocations whose consumer has no record.

    Their newest copies of project, user and type are the owner (``lost_consumers``), or, if no allocation has copies,
    project and user of ``[placement] incomplete_consumer_...``.
    """
    incomplete_owner = {
        'project_id': (_projects.c.external_id, scope.conf.placement.incomplete_consumer_project_id),
        'user_id': (_users.c.external_id, scope.conf.placement.incomplete_consumer_user_id),
    }
    ids = [
        sa.select(column.table.c.id).where(column == text).scalar_subquery().label(f'incomplete_{name}')
        for name, (column, text) in incomplete_owner.items()
    ]
    inserted = set()
    for consumer in read_lost_consumers(scope.tx, *ids, uuid=scope.key):
        owner: dict[str, Any] = dict.fromkeys(OWNER_COLUMNS)
        new_rows: list[RowChange] = []
        if consumer.owner:
            owner = consumer.owner
            origin = 'its owner is recorded with them'
        else:
            for name, (column, text) in incomplete_owner.items():
                owner[name] = IdOf(column, text)
                # The repair of the first of these consumers inserts them for all.
                if getattr(consumer.allocations[0], f'incomplete_{name}') is None and name not in inserted:
                    inserted.add(name)
                    new_rows.append(RowChange(column.table, {}, None, {column.name: text}))
            origin = 'nothing records its owner'
        new_rows.append(RowChange(_consumers, {}, None, {'uuid': consumer.uuid, **owner, 'generation': 0}))
        number = units.plural(len(consumer.allocations), 'allocation')
        detail = f'{number} without a record of the consumer; {origin}'
        copies = [change for row in consumer.allocations for change in _copies(row, owner.values())]
        yield Finding({'consumer': consumer.uuid}, detail, (*new_rows, *copies), consumer.uuid)


def allocation_owner_mismatch(scope: Scope) -> Iterator[Finding]:
    """Find consumers whose allocations have other copies of project, user and type than their own."""
    copies = _allocations.c
    query = (
        sa.select(_allocations, *(_consumers.c[name].label(f'owner_{name}') for name in OWNER_COLUMNS))
        .join(_consumers, copies.consumer_id == _consumers.c.uuid)
        .join(_providers, _providers.c.id == copies.resource_provider_id)
        .where(copies.consumer_project_id.is_not(None))
        .where(
            sa.or_(
                copies.consumer_project_id != _consumers.c.project_id,
                copies.consumer_user_id.is_distinct_from(_consumers.c.user_id),
                copies.consumer_type_id.is_distinct_from(_consumers.c.consumer_type_id),
            )
        )
        .order_by(copies.consumer_id, copies.id)
    )
    # A claim updates the row of the consumer before it replaces the allocations, so under the lock both belong to the
    # same claim.
    query = scope.restrict(query, _consumers.c.uuid)
    owner_of = operator.attrgetter(*(f'owner_{name}' for name in OWNER_COLUMNS))
    for consumer, group in itertools.groupby(scope.tx.execute(query), key=operator.attrgetter('consumer_id')):
        rows = list(group)
        detail = f'{units.plural(len(rows), "allocation")} with another project, user or type than the consumer'
        changes = [change for row in rows for change in _copies(row, owner_of(row))]
        yield Finding({'consumer': consumer}, detail, tuple(changes), consumer)


def allocation_without_inventory(scope: Scope) -> Iterator[Finding]:
    """Find allocations of classes that the provider has no inventory of."""
    for row in scope.tx.execute(_select_allocations().where(_inventories.c.id.is_(None))):
        detail = f'allocation of {row.used}, but the provider has no inventory: add one or delete the allocation'
        yield Finding(_subject(row), detail)


def usage_mismatch(scope: Scope) -> Iterator[Finding]:
    """Find inventories whose recorded usage is not the sum of the allocations."""
    query = _select(_inventories, tables.ALLOCATED.label('allocated')).where(_inventories.c.used != tables.ALLOCATED)
    # Each transaction that changes allocations of this inventory also updates its row. While the row is locked, no such
    # transaction can be committed, so the sum of the committed allocations does not change.
    for row in scope.tx.execute(scope.restrict(query, _inventories.c.id)):
        detail = f'recorded as used: {row.used}; sum of the allocations: {row.allocated}'
        change = RowChange(_inventories, {'id': row.id}, {'used': row.used}, {'used': int(row.allocated)})
        record = functools.partial(change_log.record_usage, provider_ids=[row.resource_provider_id])
        yield Finding(_subject(row), detail, (change,), row.id, record)


def over_committed(scope: Scope) -> Iterator[Finding]:
    """Find inventories whose allocations exceed their capacity."""
    limit, allocated = capacity.capacity_limit(_inventories.c), tables.ALLOCATED
    # What ``usage_mismatch`` records as used if it repairs.
    query = _select(_inventories, limit.label('limit'), allocated.label('allocated'))
    for row in scope.tx.execute(query.where(allocated > sa.case((limit > 0, limit), else_=0))):
        subject = _subject(row)
        used = units.used_of_capacity(subject['resource_class'], int(row.allocated), max(int(row.limit), 0))
        detail = f'{used} used: raise the inventory or move consumers to other providers'
        yield Finding(subject, detail)


def invalid_step_size(scope: Scope) -> Iterator[Finding]:
    """Find inventories with a step size below 1, which another program wrote."""
    for row in scope.tx.execute(_select(_inventories).where(_inventories.c.step_size < 1)):
        detail = f'step_size is {row.step_size}, so no amount can be allocated: set it to 1 or more'
        yield Finding(_subject(row), detail)


def unit_violation(scope: Scope) -> Iterator[Finding]:
    """Find allocations that their inventory would not allow now."""
    inv = _inventories.c
    used = _allocations.c.used
    violated = sa.not_(capacity.satisfies_unit_constraints(inv, used, used, used))
    # ``invalid_step_size`` finds the others. PostgreSQL fails on a division by 0, and only CASE guarantees the order.
    is_violated = sa.case((inv.step_size < 1, sa.false()), else_=violated)
    for row in scope.tx.execute(_select_allocations(inv.min_unit, inv.max_unit, inv.step_size).where(is_violated)):
        rules = f'min_unit {row.min_unit}, max_unit {row.max_unit}, step_size {row.step_size}'
        detail = f'allocation of {row.used} violates {rules}, which changed after the claim'
        yield Finding(_subject(row), detail)


def orphaned_aggregate(scope: Scope) -> Iterator[Finding]:
    """Find aggregates without providers."""
    aggregates = tables.placement_aggregates
    is_member = sa.exists().where(_members.c.aggregate_id == aggregates.c.id)
    # Rows of providers that do not exist are deleted (``references``), so they do not count.
    is_used = is_member.where(_members.c.resource_provider_id == _providers.c.id)
    return _unused(scope, aggregates, is_used, 'aggregate', 'an aggregate without providers')


def consumer_without_allocations(scope: Scope) -> Iterator[Finding]:
    """Find consumers without allocations."""
    has_allocation = sa.exists().where(_allocations.c.consumer_id == _consumers.c.uuid)
    is_used = has_allocation.where(_allocations.c.resource_provider_id == _providers.c.id)
    return _unused(scope, _consumers, is_used, 'consumer', 'a consumer without allocations')


# Queries and changes of the checks ------------------------------------------------------------------------


def _unused(
    scope: Scope, table: sa.Table, is_used: sa.ColumnElement[bool], noun: str, detail: str
) -> Iterator[Finding]:
    """Find the rows that nothing refers to.

    :param is_used: the condition that something refers to a row.
    :param noun: what a row is.
    """
    query = sa.select(table).where(~is_used).order_by(table.c.id)
    # The lock prevents new references: a claim updates the row of the consumer before it inserts allocations.
    for row in scope.tx.execute(scope.restrict(query, table.c.id)):
        yield Finding({noun: row.uuid}, detail, (deletion(table, row),), row.id)


def _select(table: sa.Table, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select the inventories or allocations with the names of their providers and classes (see ``_subject``)."""
    class_name = _classes.c.name.label('class_name')
    return (
        sa.select(table, _providers.c.uuid, _providers.c.name.label('provider_name'), class_name, *columns)
        .select_from(table)
        .join(_providers, _providers.c.id == table.c.resource_provider_id)
        .outerjoin(_classes, _classes.c.id == table.c.resource_class_id)
        .order_by(table.c.id)
    )


def _select_allocations(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select the allocations, each with its inventory if there is one."""
    return _select(_allocations, *columns).outerjoin(_inventories, tables.ALLOCATION_OF_INVENTORY)


def _subject(row: Any) -> dict[str, Any]:
    """Return the ``subject`` for the row of an inventory or an allocation.

    A class that does not exist has the name with which ``missing_reference`` inserts it.
    """
    class_name = row.class_name or lost_name(_classes, row.resource_class_id)
    about = {'resource_provider': row.uuid, 'provider_name': row.provider_name, 'resource_class': class_name}
    return about | ({'consumer': row.consumer_id} if hasattr(row, 'consumer_id') else {})


def _copies(row: Any, owner: Iterable[Any]) -> Iterator[RowChange]:
    """Yield the change of the copies of an allocation that differ from the columns of its consumer, if any.

    :param row: has the columns of the allocation.
    :param owner: the columns of the consumer in the order of ``OWNER_COLUMNS``.
    """
    new = {
        copy: value for copy, value in zip(tables.CONSUMER_COPIES, owner, strict=True) if value != getattr(row, copy)
    }
    if new:
        yield RowChange(_allocations, {'id': row.id}, {copy: getattr(row, copy) for copy in new}, new)


def _locked_ancestors(tx: sa.Connection, provider_id: int) -> list[int]:
    """Lock a provider and its ancestors, and return their ids. Parents may form a loop.

    :raises RetryTransaction: a parent changed before the lock.
    """
    query = sa.select(_providers.c.id, _providers.c.parent_provider_id)
    above = query.where(_providers.c.id == provider_id).cte('above', recursive=True)
    # UNION instead of UNION ALL, so that the query ends if the parents form a loop.
    ancestors = sa.select(above.union(query.join(above, _providers.c.id == above.c.parent_provider_id)))
    parents = set(tx.execute(ancestors))
    # While the rows are locked, no other transaction can change their parents.
    ids = sorted(row.id for row in parents)
    tx.execute(sa.select(_providers.c.id).where(_providers.c.id.in_(ids)).order_by(_providers.c.id).with_for_update())
    if set(tx.execute(ancestors)) != parents:
        raise errors.RetryTransaction
    return ids
