"""Aggregates: groups of providers that come into being when a provider is put into one."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from placement.db import statements, tables

_aggregates = tables.placement_aggregates
_members = tables.resource_provider_aggregates


def of_provider(tx: sa.Connection, provider_id: int) -> list[str]:
    """The uuids of the aggregates of one provider."""
    query = (
        sa.select(_aggregates.c.uuid)
        .join(_members, _members.c.aggregate_id == _aggregates.c.id)
        .where(_members.c.resource_provider_id == provider_id)
        .order_by(_aggregates.c.id)
    )
    return list(tx.scalars(query))


def replace(tx: sa.Connection, provider_id: int, uuids: Sequence[str]) -> None:
    """Make ``uuids`` all the aggregates of a provider whose row the transaction has locked.

    :param uuids: sorted and distinct, so that two requests that introduce the same aggregates meet in one order.
    """
    tx.execute(_members.delete().where(_members.c.resource_provider_id == provider_id))
    if not uuids:
        return
    tx.execute(statements.insert_unless_present(tx, _aggregates), [{'uuid': uuid} for uuid in uuids])
    ids = tx.scalars(sa.select(_aggregates.c.id).where(_aggregates.c.uuid.in_(uuids)))
    tx.execute(_members.insert(), [{'resource_provider_id': provider_id, 'aggregate_id': id_} for id_ in ids])
