"""The repairs of an audit. Each corrects one finding in one transaction, and allows for changes since the check."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa

from placement.claims import consumers
from placement.db import change_log, errors, sql, tables

_allocations, _consumers, _inventories = tables.allocations, tables.consumers, tables.inventories
_aggregates, _members, _providers = (
    tables.placement_aggregates,
    tables.resource_provider_aggregates,
    tables.resource_providers,
)

#: The ``work`` of ``Database.write``.
Repair = Callable[[sa.Connection], None]


def usage(inventory_id: int) -> Repair:
    """Set ``used`` of one inventory to the sum of its allocations."""

    def apply(tx: sa.Connection) -> None:
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

    return apply


def consumer(uuid: str, project_id: str, user_id: str) -> Repair:
    """Insert the missing row of a consumer that has allocations (api-ref/allocations.md#project-and-user).

    :param project_id: external id of the project.
    :param user_id: external id of the user.
    """

    def apply(tx: sa.Connection) -> None:
        projects, users = consumers.ensure_owners(tx, {project_id}, {user_id})
        allocation_id = tx.scalar(sa.select(_allocations.c.id).where(_allocations.c.consumer_id == uuid).limit(1))
        if allocation_id is not None:
            columns, row = 'uuid, project_id, user_id, generation', (uuid, projects[project_id], users[user_id], 0)
            for text, values in sql.bulk_insert(tx, _consumers.name, columns, [row], unless_present=True):
                sql.execute_text(tx, text, *values)

    return apply


def owner(uuid: str) -> Repair:
    """Copy project, user and type of a consumer to its allocations."""

    def apply(tx: sa.Connection) -> None:
        # A claim updates the row of the consumer before it replaces the allocations, so both are consistent under the
        # lock.
        tx.execute(sa.select(_consumers.c.id).where(_consumers.c.uuid == uuid).with_for_update())
        change = _allocations.update().where(_allocations.c.consumer_id == uuid)
        tx.execute(change.values(**tables.OWNER, updated_at=_allocations.c.updated_at))

    return apply


def idle_consumer(consumer_id: int, uuid: str) -> Repair:
    """Delete a consumer without allocations."""

    def apply(tx: sa.Connection) -> None:
        # A claim updates the row of the consumer before it inserts allocations, so the lock prevents new allocations.
        tx.execute(sa.select(_consumers.c.id).where(_consumers.c.id == consumer_id).with_for_update())
        if tx.scalar(sa.select(_allocations.c.id).where(_allocations.c.consumer_id == uuid).limit(1)) is None:
            tx.execute(_consumers.delete().where(_consumers.c.id == consumer_id))

    return apply


def aggregate(aggregate_id: int) -> Repair:
    """Delete an aggregate without providers."""

    def apply(tx: sa.Connection) -> None:
        tx.execute(sa.select(_aggregates.c.id).where(_aggregates.c.id == aggregate_id).with_for_update())
        if (
            tx.scalar(sa.select(_members.c.aggregate_id).where(_members.c.aggregate_id == aggregate_id).limit(1))
            is None
        ):
            tx.execute(_aggregates.delete().where(_aggregates.c.id == aggregate_id))

    return apply


def root(provider_id: int) -> Repair:
    """Set the root of a provider to the ancestor that has no parent, if there is one: parents may form a loop."""
    start = sa.select(_providers.c.id, _providers.c.parent_provider_id).where(_providers.c.id == provider_id)
    above = start.cte('above', recursive=True)
    # UNION instead of UNION ALL, so that the query ends if the parents form a loop.
    above = above.union(
        sa.select(_providers.c.id, _providers.c.parent_provider_id).join(
            above, _providers.c.id == above.c.parent_provider_id
        )
    )

    def apply(tx: sa.Connection) -> None:
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

    return apply
