"""Aggregates: groups of providers that come into being when a provider is put into one."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import name_cache, statements, tables
from placement.objects import provider_parts
from placement.objects.base import Context

_aggregates = tables.placement_aggregates
_members = tables.resource_provider_aggregates


def get_with_provider(context: Context, uuid: str) -> tuple[provider_parts.Provider, list[str]]:
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


def replace(tx: sa.Connection, heard: name_cache.Heard, provider_id: int, uuids: Sequence[str]) -> None:
    """Make ``uuids`` all the aggregates of a provider whose row the transaction has locked.

    :param uuids: sorted and distinct, so that two requests that introduce the same aggregates meet in one order.
    """
    # Whatever was read before may have changed: below microversion 1.19 the generation does not tell.
    tx.execute(_LEAVE, {'provider': provider_id})
    for batch in statements.batches(uuids):
        _join(tx, heard, provider_id, batch)


def _join(tx: sa.Connection, heard: name_cache.Heard, provider_id: int, uuids: Sequence[str]) -> None:
    """Put a provider into aggregates that it is not in; creates those that are unheard of."""
    try:
        _create(tx, heard.lacks(uuids))
        joined = tx.execute(_JOIN, {'provider': provider_id, 'uuids': uuids}).rowcount
        if joined < len(uuids):
            _create(tx, uuids)
            joined += tx.execute(_JOIN, {'provider': provider_id, 'uuids': uuids}).rowcount
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # An audit on another node of a cluster removed an aggregate that nobody was in.
        raise db_api.TryAgain from error
    if joined != len(uuids):
        raise db_api.TryAgain
    heard.add(uuids)


def _create(tx: sa.Connection, uuids: Sequence[str]) -> None:
    if uuids:
        tx.execute(statements.insert_unless_present(tx, _aggregates), [{'uuid': uuid} for uuid in uuids])


_LEAVE = _members.delete().where(_members.c.resource_provider_id == sa.bindparam('provider'))

_OWN = _members.alias('own')
#: Holds the aggregates, so that none goes away before the transaction ends.
_JOIN = (
    _members.insert()
    .from_select(
        ['resource_provider_id', 'aggregate_id'],
        sa.select(sa.bindparam('provider', type_=sa.Integer), _aggregates.c.id)
        .where(
            _aggregates.c.uuid.in_(sa.bindparam('uuids', expanding=True)),
            ~sa.exists().where(
                _OWN.c.aggregate_id == _aggregates.c.id, _OWN.c.resource_provider_id == sa.bindparam('provider')
            ),
        )
        .order_by(_aggregates.c.id)
        .with_for_update(read=True, key_share=True, of=_aggregates),
    )
    .execution_options(preserve_rowcount=True)
)
