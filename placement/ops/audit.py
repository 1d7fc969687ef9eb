"""The audit: checks that find rows that contradict one another, and the repairs of what they find.

Each check is one statement, regardless of the number of rows. Each repair is its own transaction, with locks or
conditions against changes since the check. So both are safe while the service runs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg
from oslo_utils import timeutils

from placement import capacity, exception, units
from placement.claims import consumers
from placement.db import change_log, errors, sql, tables
from placement.db.api import Database
from placement.db.batch import StatementBatch
from placement.ops.provider_roots import find_roots

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_classes, _providers = tables.resource_classes, tables.resource_providers
_aggregates, _members = tables.placement_aggregates, tables.resource_provider_aggregates
_PROVIDER_NAME = _providers.c.name.label('provider_name')


@dataclasses.dataclass
class Finding:
    """One inconsistency.

    ``subject`` maps kinds of objects to the uuid or name of each; a provider has both. ``detail`` says what is wrong.
    ``repair`` is for ``Database.write``. It leaves data that have become consistent as they are, and is None if
    an operator has to decide. ``needs_action`` is false if the finding is for information only. ``kind`` is the key of
    the check in ``CHECKS``, or ``unchanged_tree``.
    """

    subject: Mapping[str, Any]
    detail: str
    repair: Callable[[sa.Connection], None] | None = None
    repaired: bool = False
    needs_action: bool = True
    kind: str = ''


Check = Callable[[sa.Connection, cfg.ConfigOpts], Iterator[Finding]]


def find(db: Database, conf: cfg.ConfigOpts, kind: str) -> list[Finding]:
    """Run one check and return its findings.

    :param kind: a key of ``CHECKS``.
    """
    with db.reader() as tx:
        return [dataclasses.replace(finding, kind=kind) for finding in CHECKS[kind](tx, conf)]


def repair(db: Database, finding: Finding) -> None:
    """Repair a finding if it has a repair. Set ``repaired``, unless concurrent writes made all attempts fail."""
    if finding.repair is not None:
        with contextlib.suppress(exception.ConcurrentProviderUpdate):
            db.write(finding.repair)
            finding.repaired = True


def find_unchanged_trees(db: Database, age: dt.timedelta) -> list[Finding]:
    """Return the roots of the trees in which nothing has changed for ``age``; trees without allocations come first.

    Claims and writes to a provider or its inventories set ``updated_at`` of the provider. Deleting allocations does
    not.
    """
    trees = _providers.alias('trees')
    changed_at = sa.func.max(sa.func.coalesce(trees.c.updated_at, trees.c.created_at))
    members = _providers.alias('members')
    allocations = (
        sa.select(sa.func.count())
        .join_from(_allocations, members, members.c.id == _allocations.c.resource_provider_id)
        .where(members.c.root_provider_id == _providers.c.id)
        .scalar_subquery()
    )
    query = (
        sa.select(
            _providers.c.uuid, _providers.c.name, changed_at.label('changed_at'), allocations.label('allocations')
        )
        .join(trees, trees.c.root_provider_id == _providers.c.id)
        .group_by(_providers.c.id, _providers.c.uuid, _providers.c.name)
        .having(changed_at < timeutils.utcnow() - age)
        .order_by('allocations', _providers.c.name)
    )
    with db.reader() as tx:
        return [
            Finding(
                {'resource_provider': row.uuid, 'provider_name': row.name},
                f'nothing has changed in its tree since {units.moment(sql.with_utc(row.changed_at))};'
                f' {units.plural(row.allocations, "allocation") if row.allocations else "no allocations"}',
                needs_action=False,
                kind='unchanged_tree',
            )
            for row in tx.execute(query)
        ]


# The checks ----------------------------------------------------------------------------------------------


def _usage_mismatch(tx: sa.Connection, _conf: cfg.ConfigOpts) -> Iterator[Finding]:
    for row in tx.execute(
        _select_inventories(tables.ALLOCATED.label('allocated')).where(_inventories.c.used != tables.ALLOCATED)
    ):
        detail = f'recorded as used: {row.used}; sum of the allocations: {row.allocated}'
        yield Finding(_subject(row), detail, functools.partial(_set_usage, row.id))


def _allocation_without_inventory(tx: sa.Connection, _conf: cfg.ConfigOpts) -> Iterator[Finding]:
    for row in tx.execute(_select_allocations().where(_inventories.c.id.is_(None))):
        detail = f'allocation of {row.used}, but the provider has no inventory: add one or delete the allocation'
        yield Finding(_subject(row), detail)


def _allocation_without_consumer(tx: sa.Connection, conf: cfg.ConfigOpts) -> Iterator[Finding]:
    query = (
        sa.select(_allocations.c.consumer_id, sa.func.count().label('allocations'))
        .outerjoin(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .where(_consumers.c.id.is_(None))
        .group_by(_allocations.c.consumer_id)
        .order_by(_allocations.c.consumer_id)
    )
    owner = (conf.placement.incomplete_consumer_project_id, conf.placement.incomplete_consumer_user_id)
    for row in tx.execute(query):
        detail = f'{units.plural(row.allocations, "allocation")} without a record of the consumer'
        repair = functools.partial(_insert_consumer, row.consumer_id, *owner)
        yield Finding({'consumer': row.consumer_id}, detail, repair)


def _allocation_owner_mismatch(tx: sa.Connection, _conf: cfg.ConfigOpts) -> Iterator[Finding]:
    copies = _allocations.c
    query = (
        sa.select(_consumers.c.uuid, sa.func.count().label('allocations'))
        .join(_allocations, copies.consumer_id == _consumers.c.uuid)
        .where(copies.consumer_project_id.is_not(None))
        .where(
            sa.or_(
                copies.consumer_project_id != _consumers.c.project_id,
                copies.consumer_user_id.is_distinct_from(_consumers.c.user_id),
                copies.consumer_type_id.is_distinct_from(_consumers.c.consumer_type_id),
            )
        )
        .group_by(_consumers.c.uuid)
        .order_by(_consumers.c.uuid)
    )
    for row in tx.execute(query):
        detail = f'{units.plural(row.allocations, "allocation")} with another project, user or type than the consumer'
        yield Finding({'consumer': row.uuid}, detail, functools.partial(_copy_owner, row.uuid))


def _over_committed(tx: sa.Connection, _conf: cfg.ConfigOpts) -> Iterator[Finding]:
    inv = _inventories.c
    limit = capacity.capacity_limit(inv)
    for row in tx.execute(_select_inventories(limit.label('limit')).where(inv.used > limit, inv.used > 0)):
        used = units.used_of_capacity(row.name, row.used, max(int(row.limit), 0))
        detail = f'{used} used: raise the inventory or move consumers to other providers'
        yield Finding(_subject(row), detail)


def _unit_violation(tx: sa.Connection, _conf: cfg.ConfigOpts) -> Iterator[Finding]:
    inv = _inventories.c
    used = _allocations.c.used
    violated = sa.not_(capacity.satisfies_unit_constraints(inv, used, used, used))
    # PostgreSQL fails on a division by 0, and only CASE guarantees the order of evaluation.
    is_violated = sa.case((inv.step_size < 1, sa.true()), else_=violated)
    for row in tx.execute(_select_allocations(inv.min_unit, inv.max_unit, inv.step_size).where(is_violated)):
        rules = f'min_unit {row.min_unit}, max_unit {row.max_unit}, step_size {row.step_size}'
        detail = f'allocation of {row.used} violates {rules}, which changed after the claim'
        yield Finding(_subject(row), detail, needs_action=False)


def _invalid_tree(tx: sa.Connection, _conf: cfg.ConfigOpts) -> Iterator[Finding]:
    columns = _providers.c
    query = sa.select(columns.id, columns.uuid, columns.name, columns.parent_provider_id, columns.root_provider_id)
    rows = {row.id: row for row in tx.execute(query.order_by(columns.id))}
    parents: dict[int, int | None] = {id_: row.parent_provider_id for id_, row in rows.items()}
    uuids = {None: None} | {id_: row.uuid for id_, row in rows.items()}
    root_of = find_roots(parents)
    for id_, row in rows.items():
        root_id = root_of[id_]
        if root_id == row.root_provider_id:
            continue
        subject = {'resource_provider': row.uuid, 'provider_name': row.name}
        if root_id is None:
            detail = 'its parents form a loop: set parent_provider_id of one of them to NULL by hand'
            yield Finding(subject, detail)
        else:
            # A root that does not exist was recorded while the database did not check foreign keys.
            recorded = uuids.get(row.root_provider_id, f'id {row.root_provider_id}, which does not exist')
            detail = f'its root is recorded as {recorded}, but its parents lead to {rows[root_id].uuid}'
            yield Finding(subject, detail, functools.partial(_set_root, id_))


def _unused(
    noun: str, detail: str, key: sa.Column[Any], reference: sa.Column[Any], tx: sa.Connection, _conf: cfg.ConfigOpts
) -> Iterator[Finding]:
    """Find the rows, each of what ``noun`` names, whose ``key`` is not in the column ``reference``."""
    table = key.table
    query = sa.select(table.c.id, table.c.uuid).outerjoin(reference.table, reference == key).where(reference.is_(None))
    for row in tx.execute(query.order_by(table.c.id)):
        yield Finding({noun: row.uuid}, detail, functools.partial(_delete_unused, key, reference, row.id))


#: All checks, in the order in which an audit runs them and their repairs.
CHECKS: Mapping[str, Check] = {
    'invalid_tree': _invalid_tree,
    'allocation_without_consumer': _allocation_without_consumer,
    'allocation_owner_mismatch': _allocation_owner_mismatch,
    'consumer_without_allocations': functools.partial(
        _unused, 'consumer', 'a consumer without allocations', _consumers.c.uuid, _allocations.c.consumer_id
    ),
    'allocation_without_inventory': _allocation_without_inventory,
    'usage_mismatch': _usage_mismatch,
    'over_committed': _over_committed,
    'unit_violation': _unit_violation,
    'orphaned_aggregate': functools.partial(
        _unused, 'aggregate', 'an aggregate without providers', _aggregates.c.id, _members.c.aggregate_id
    ),
}


# Queries of the checks -----------------------------------------------------------------------------------


def _select_inventories(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    return (
        sa.select(_inventories, _providers.c.uuid, _PROVIDER_NAME, _classes.c.name, *columns)
        .select_from(_inventories)
        .join(_providers, _providers.c.id == _inventories.c.resource_provider_id)
        .join(_classes, _classes.c.id == _inventories.c.resource_class_id)
        .order_by(_inventories.c.id)
    )


def _select_allocations(*columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select the allocations, each with its inventory if there is one."""
    return (
        sa.select(_allocations, _providers.c.uuid, _PROVIDER_NAME, _classes.c.name, *columns)
        .select_from(_allocations)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .outerjoin(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .outerjoin(_inventories, tables.ALLOCATION_OF_INVENTORY)
        .order_by(_allocations.c.id)
    )


def _subject(row: Any) -> dict[str, Any]:
    """Return the ``subject`` for the row of an inventory or an allocation. Its class may not exist."""
    about = {
        'resource_provider': row.uuid,
        'provider_name': row.provider_name,
        'resource_class': row.name or f'number {row.resource_class_id}',
    }
    return about | ({'consumer': row.consumer_id} if hasattr(row, 'consumer_id') else {})


# The repairs. The transaction is their last argument, for ``functools.partial`` ----------------------------


def _set_usage(inventory_id: int, tx: sa.Connection) -> None:
    """Set ``used`` of one inventory to the sum of its allocations."""
    # Each transaction that changes allocations of this inventory also updates its row. While the row is locked, no
    # such transaction can be committed, so the sum of the committed allocations does not change.
    row = tx.execute(sa.select(_inventories).where(_inventories.c.id == inventory_id).with_for_update()).first()
    if row is None:
        return
    allocated = tx.execute(
        sa.select(sa.func.coalesce(sa.func.sum(_allocations.c.used), 0))
        .where(_allocations.c.resource_provider_id == row.resource_provider_id)
        .where(_allocations.c.resource_class_id == row.resource_class_id)
    ).scalar_one()
    tx.execute(
        _inventories.update()
        .where(_inventories.c.id == inventory_id)
        .values(used=int(allocated), updated_at=_inventories.c.updated_at)
    )
    change_log.record_usage(tx, [row.resource_provider_id])


def _insert_consumer(uuid: str, project_id: str, user_id: str, tx: sa.Connection) -> None:
    """Insert the missing row of a consumer that has allocations (api-ref/allocations.md#project-and-user).

    :param project_id: external id of the project.
    :param user_id: external id of the user.
    """
    owner = consumers.ensure_owner(tx, project_id, user_id)
    allocation_id = tx.scalar(sa.select(_allocations.c.id).where(_allocations.c.consumer_id == uuid).limit(1))
    if allocation_id is not None:
        columns, row = 'uuid, project_id, user_id, generation', (uuid, *owner, 0)
        batch = StatementBatch(tx)
        batch.add_insert(_consumers, columns, [row], unless_present=True)
        batch.execute()


def _copy_owner(uuid: str, tx: sa.Connection) -> None:
    """Copy project, user and type of a consumer to its allocations."""
    # A claim updates the row of the consumer before it replaces the allocations, so both are consistent under the lock.
    tx.execute(sa.select(_consumers.c.id).where(_consumers.c.uuid == uuid).with_for_update())
    change = _allocations.update().where(_allocations.c.consumer_id == uuid)
    tx.execute(change.values(**tables.CONSUMER_COPIES, updated_at=_allocations.c.updated_at))


def _delete_unused(key: sa.Column[Any], reference: sa.Column[Any], id_: int, tx: sa.Connection) -> None:
    """Delete a row, as ``_unused`` finds it, unless its ``key`` is in the column ``reference`` by now."""
    row_id = key.table.c.id
    # The lock prevents new references: a claim updates the row of the consumer before it inserts allocations.
    value = tx.scalar(sa.select(key).where(row_id == id_).with_for_update())
    if tx.scalar(sa.select(reference).where(reference == value).limit(1)) is None:
        tx.execute(key.table.delete().where(row_id == id_))


def _set_root(provider_id: int, tx: sa.Connection) -> None:
    """Set the root of a provider to the ancestor that has no parent, if there is one: parents may form a loop."""
    start = sa.select(_providers.c.id, _providers.c.parent_provider_id).where(_providers.c.id == provider_id)
    above = start.cte('above', recursive=True)
    # UNION instead of UNION ALL, so that the query ends if the parents form a loop.
    above = above.union(
        sa.select(_providers.c.id, _providers.c.parent_provider_id).join(
            above, _providers.c.id == above.c.parent_provider_id
        )
    )
    parents = {row.id: row.parent_provider_id for row in tx.execute(sa.select(above))}
    # While the rows are locked, no other transaction can change their parents.
    locked = sa.select(_providers.c.id).where(_providers.c.id.in_(parents)).order_by(_providers.c.id)
    tx.execute(locked.with_for_update())
    if parents != {row.id: row.parent_provider_id for row in tx.execute(sa.select(above))}:
        raise errors.RetryTransaction
    for root_id in (id_ for id_, parent_id in parents.items() if parent_id is None):
        tx.execute(
            _providers.update()
            .where(_providers.c.id == provider_id)
            .values(root_provider_id=root_id, updated_at=_providers.c.updated_at)
        )
        change_log.record_providers(tx, [provider_id])
