"""Aggregates: groups of providers. An aggregate is created with its first provider."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa
from oslo_utils import timeutils

from placement import exception
from placement.db import change_log, errors, generation, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderGeneration
from placement.objects import base
from placement.objects.base import Context
from placement.objects.resource_provider import BY_UUID

_aggregates = tables.placement_aggregates
_members, _providers = tables.resource_provider_aggregates, tables.resource_providers

#: If a process remembers more uuids than this, its next write of aggregates forgets them. They take about 10 MB.
_MAX_KNOWN = 100_000


def get_with_provider(context: Context, uuid: str) -> tuple[ProviderGeneration, list[str]]:
    """Read a provider and the uuids of its aggregates.

    :param uuid: a canonical uuid.
    :raises ResourceProviderNotFound: no such provider.
    """
    provider, rows = base.read_with_provider(context, _WITH_PROVIDER, uuid)
    return provider, [row.uuid for row in rows]


_WITH_PROVIDER = base.with_provider(
    _providers.outerjoin(_members, _members.c.resource_provider_id == _providers.c.id).outerjoin(
        _aggregates, _aggregates.c.id == _members.c.aggregate_id
    ),
    _aggregates.c.id,
    _aggregates.c.uuid,
)


def replace(context: Context, provider_uuid: str, uuids: Iterable[str], expected_generation: int | None) -> None:
    """Put a provider into exactly the aggregates ``uuids``, and create those that do not exist.

    :param expected_generation: compared with the generation of the provider, which is then incremented (from
        microversion 1.19 on); None to do neither.
    :raises ProviderGenerationMismatch: the provider has another generation.
    :raises ResourceProviderNotFound: there is no such provider.
    """
    # Sorted, so that concurrent requests insert new aggregates in the same order.
    desired = sorted(set(uuids))

    def work(tx: sa.Connection) -> None:
        if expected_generation is not None:
            provider_id = generation.increment_by_uuid(tx, provider_uuid, expected_generation)
        else:
            provider_id = tx.execute(_LOCK, {'sought': provider_uuid}).scalar_one_or_none()
            if provider_id is not None:
                change_log.record_providers(tx, [provider_id])
        if provider_id is None:
            provider = tx.execute(BY_UUID, {'sought': provider_uuid}).first()
            if provider is None:
                raise exception.ResourceProviderNotFound(uuid=provider_uuid)
            if expected_generation in (None, provider.generation):
                # It was created after the statement above did not find it.
                raise errors.RetryTransaction
            raise exception.ProviderGenerationMismatch(
                uuid=provider_uuid, actual=provider.generation, sent=expected_generation
            )
        _replace(tx, context.db.known_aggregates, provider_id, desired)

    context.db.write(work)
    remembered = context.db.known_aggregates
    if len(remembered) > _MAX_KNOWN:
        remembered.clear()
    remembered.update(desired)


_LOCK = sa.select(_providers.c.id).where(_providers.c.uuid == sa.bindparam('sought')).with_for_update()


def _replace(tx: sa.Connection, remembered: set[str], provider_id: int, uuids: Sequence[str]) -> None:
    """Replace the aggregates of a provider whose row is locked.

    :param remembered: the uuids of aggregates that need no INSERT. If one was deleted, ``uuids`` are removed from it.
    """

    def deleted() -> errors.RetryTransaction:
        # An audit, perhaps on another node of a cluster, deleted an aggregate that had no providers.
        remembered.difference_update(uuids)
        return errors.RetryTransaction()

    batch = StatementBatch(tx, key_error=deleted)
    # This deletes all rows, not only rows that were read before: below microversion 1.19 a write does not increment the
    # generation, so nothing shows whether they have changed.
    batch.add_statement(_DELETION, provider_id)
    unknown = [(uuid,) for uuid in uuids if uuid not in remembered]
    batch.add_insert(_aggregates, 'uuid', unknown, unless_present=True)

    # The shared locks prevent audits from deleting the aggregates.
    parts = {'members': _members, 'aggregates': _aggregates, 'lock': sql.SHARED_LOCKS[tx.dialect.name]}
    batch.add_for_ids(_INSERTION, uuids, provider_id, timeutils.utcnow(), error=deleted, **parts)
    batch.defer()


_DELETION = sql.statement('DELETE FROM {members} WHERE resource_provider_id = ?', members=_members)
_INSERTION = (
    'INSERT INTO {members} (resource_provider_id, aggregate_id, created_at)'
    ' SELECT ?, id, ? FROM {aggregates} WHERE uuid IN ({ids}) ORDER BY id{lock}'
)
