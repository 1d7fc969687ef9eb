"""The checks of the audit for the records of consumers, and the copies of their columns with their allocations."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator
from typing import Any

import sqlalchemy as sa

from placement import units
from placement.db import tables
from placement.ops.audit.check import Finding, IdOf, RowChange, Scope
from placement.ops.lost_consumers import OWNER_COLUMNS, read_lost_consumers

_allocations, _consumers, _providers = tables.allocations, tables.consumers, tables.resource_providers
_projects, _users = tables.projects, tables.users


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
    are_inserted = scope.assumes_repaired('missing_reference')
    for consumer in read_lost_consumers(scope.tx, *ids, uuid=scope.key, are_inserted=are_inserted):
        owner: dict[str, Any] = dict.fromkeys(OWNER_COLUMNS)
        changes: list[RowChange] = []
        if consumer.owner:
            owner = consumer.owner
            origin = 'its owner is recorded with them'
        else:
            for name, (column, text) in incomplete_owner.items():
                owner[name] = IdOf(column, text)
                # The repair of the first of these consumers inserts them for all.
                if getattr(consumer.allocations[0], f'incomplete_{name}') is None and name not in inserted:
                    inserted.add(name)
                    changes.append(RowChange(column.table, new={column.name: text}))
            origin = 'nothing records its owner'
        changes.append(RowChange(_consumers, new={'uuid': consumer.uuid, **owner, 'generation': 0}))
        number = units.plural(len(consumer.allocations), 'allocation')
        detail = f'{number} without a record of the consumer; {origin}'
        changes += (change for row in consumer.allocations for change in _copies(row, owner.values()))
        yield Finding(scope.kind, {'consumer': consumer.uuid}, detail, tuple(changes), consumer.uuid)


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
    query = scope.lock_and_restrict(query, _consumers.c.uuid)
    owner_of = operator.attrgetter(*(f'owner_{name}' for name in OWNER_COLUMNS))
    for consumer, group in itertools.groupby(scope.tx.execute(query), key=operator.attrgetter('consumer_id')):
        rows = list(group)
        detail = f'{units.plural(len(rows), "allocation")} with another project, user or type than the consumer'
        changes = [change for row in rows for change in _copies(row, owner_of(row))]
        yield Finding(scope.kind, {'consumer': consumer}, detail, tuple(changes), consumer)


def consumer_without_allocations(scope: Scope) -> Iterator[Finding]:
    """Find consumers without allocations."""
    detail = 'a consumer without allocations'
    for row in scope.unused_rows(_consumers.c.uuid, _allocations.c.consumer_id):
        deletion = RowChange.deletion(_consumers, row)
        yield Finding(scope.kind, {'consumer': row.uuid}, detail, (deletion,), row.id)


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
