"""Aggregates: groups of providers that come into being when a provider is put into one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import statements, tables
from placement.objects import provider_parts

_aggregates = tables.placement_aggregates
_members = tables.resource_provider_aggregates


def get_with_provider(context: Any, uuid: str) -> tuple[provider_parts.Provider, list[str]]:
    """A provider and the uuids of the aggregates that it is in.

    :raises ResourceProviderNotFound: no such provider.
    """
    provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
    return provider, [row.uuid for row in rows]


_WITH_PROVIDER = provider_parts.statement(
    _members.join(_aggregates, _aggregates.c.id == _members.c.aggregate_id),
    _members.c.resource_provider_id,
    _aggregates.c.id,
    _aggregates.c.uuid,
)


def replace(tx: sa.Connection, provider_id: int, uuids: Sequence[str]) -> None:
    """Make ``uuids`` all the aggregates of a provider whose row the transaction has locked.

    :param uuids: sorted and distinct, so that two requests that introduce the same aggregates meet in one order.
    """
    tx.execute(_members.delete().where(_members.c.resource_provider_id == provider_id))
    if not uuids:
        return
    tx.execute(statements.insert_unless_present(tx, _aggregates), [{'uuid': uuid} for uuid in uuids])
    ids = _hold(tx, uuids)
    try:
        tx.execute(_members.insert(), [{'resource_provider_id': provider_id, 'aggregate_id': id_} for id_ in ids])
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # An audit on another node of a cluster removed an aggregate that nobody was in.
        raise db_api.TryAgain from error


def _hold(tx: sa.Connection, uuids: Sequence[str]) -> list[int]:
    """The ids of aggregates, none of which goes away before the transaction ends; start over if one just did."""
    ids: list[int] = []
    for batch in statements.batches(uuids):
        query = sa.select(_aggregates.c.id).where(_aggregates.c.uuid.in_(batch)).order_by(_aggregates.c.id)
        ids += tx.scalars(query.with_for_update(read=True, key_share=True))
    if len(ids) != len(uuids):
        raise db_api.TryAgain
    return ids
