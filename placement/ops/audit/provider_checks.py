"""The checks of the audit for providers and their aggregates."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import sqlalchemy as sa

from placement.db import change_log, errors, tables
from placement.ops.audit.check import Finding, RowChange, Scope
from placement.ops.provider_roots import find_roots

_providers = tables.resource_providers


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
    root_of = find_roots({id_: row.parent_provider_id for id_, row in rows.items()})
    for id_, row in rows.items():
        root_id = root_of[id_]
        if root_id == row.root_provider_id or scope.key not in (None, id_):
            continue
        subject = {'resource_provider': row.uuid, 'provider_name': row.name}
        if root_id is None:
            detail = 'its parents form a loop: set parent_provider_id of one of them to NULL by hand'
            yield Finding(scope.kind, subject, detail)
        else:
            recorded = row.recorded_root
            if recorded is None and row.root_provider_id is not None:
                # It was recorded while the database did not check foreign keys.
                recorded = f'id {row.root_provider_id}, which does not exist'
            detail = f'its root is recorded as {recorded}, but its parents lead to {rows[root_id].uuid}'
            old, new = {'root_provider_id': row.root_provider_id}, {'root_provider_id': root_id}
            change = RowChange(_providers, {'id': id_}, old, new)
            record = functools.partial(change_log.record_providers, provider_ids=[id_])
            yield Finding(scope.kind, subject, detail, (change,), id_, record)


def orphaned_aggregate(scope: Scope) -> Iterator[Finding]:
    """Find aggregates without providers."""
    aggregates, detail = tables.placement_aggregates, 'an aggregate without providers'
    for row in scope.unused_rows(aggregates.c.id, tables.resource_provider_aggregates.c.aggregate_id):
        deletion = RowChange.deletion(aggregates, row)
        yield Finding(scope.kind, {'aggregate': row.uuid}, detail, (deletion,), row.id)


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
