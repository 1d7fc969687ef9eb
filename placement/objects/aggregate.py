"""Aggregates: groups of providers. An aggregate is created when the first provider is put into it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import name_cache, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderVersion
from placement.objects import provider_query
from placement.objects.base import Context

_aggregates = tables.placement_aggregates
_members, _providers = tables.resource_provider_aggregates, tables.resource_providers


def get_with_provider(context: Context, uuid: str) -> tuple[ProviderVersion, list[str]]:
    """Read a provider and the uuids of its aggregates.

    :param uuid: canonical.
    :raises ResourceProviderNotFound: no such provider.
    """
    provider, rows = provider_query.read_with_parts(context, _WITH_PROVIDER, uuid)
    return provider, [row.uuid for row in rows]


_WITH_PROVIDER = provider_query.statement(
    _providers.outerjoin(_members, _members.c.resource_provider_id == _providers.c.id).outerjoin(
        _aggregates, _aggregates.c.id == _members.c.aggregate_id
    ),
    _aggregates.c.id,
    _aggregates.c.uuid,
)


def replace(tx: sa.Connection, known: name_cache.KnownAggregates, provider_id: int, uuids: Sequence[str]) -> None:
    """Put a provider into exactly the aggregates ``uuids``, and create those that do not exist.

    The last change of a transaction, which has locked the provider's row.

    :param known: aggregates for which no INSERT is needed; ``uuids`` are added to it.
    :param uuids: sorted and distinct, so that concurrent requests insert new aggregates in the same order.
    :raises RetryTransaction: an audit deleted one of the aggregates meanwhile.
    """
    batch = StatementBatch(tx)
    # All are deleted, not only those that were read before: below microversion 1.19 a write does not increment
    # the generation, so nothing shows whether they have changed.
    batch.add('DELETE FROM placement_resource_provider_aggregates WHERE resource_provider_id = ?', provider_id)
    moment = sql.now(tx)
    for chunk in sql.chunks(uuids):
        if unknown := known.unknown(chunk):
            text, values = sql.insertion_unless_present(tx, 'placement_aggregates', 'uuid', unknown)
            batch.add(text, *values)
        check = functools.partial(_expect, known, chunk)
        batch.add(_insertion(tx.dialect.name, len(chunk)), provider_id, moment, *chunk, check=check)
    try:
        batch.execute_final()
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # An audit on another node of a cluster deleted an aggregate that had no providers.
        raise db_api.RetryTransaction from error
    known.add(uuids)


def _expect(known: name_cache.KnownAggregates, uuids: Sequence[str], inserted: int) -> None:
    if inserted != len(uuids):
        # An audit deleted an aggregate that had no providers.
        known.invalidate(uuids)
        raise db_api.RetryTransaction


@functools.lru_cache(maxsize=64)
def _insertion(dialect: str, count: int) -> str:
    """Return the INSERT into ``count`` aggregates. Its shared locks keep audits from deleting them."""
    which = f'uuid IN ({sql.placeholders(count)}) ORDER BY id{sql.SHARED_LOCKS[dialect]}'
    return (
        'INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id, created_at)'  # noqa: S608
        f' SELECT ?, id, ? FROM placement_aggregates WHERE {which}'
    )
