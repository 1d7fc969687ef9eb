"""Aggregates: groups of providers that come into being when a provider is put into one."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement.db import api as db_api
from placement.db import name_cache, statements, tables
from placement.db.together import Together
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
    """Make ``uuids`` all the aggregates of a provider whose row the transaction has locked; as its last change.

    :param heard: those of them that it lacks are created, unless they are there.
    :param uuids: sorted and distinct, so that two requests that introduce the same aggregates meet in one order.
    """
    together = Together(tx)
    # Whatever was read before may have changed: below microversion 1.19 the generation does not tell.
    together.add('DELETE FROM placement_resource_provider_aggregates WHERE resource_provider_id = ?', provider_id)
    moment = statements.now(tx)
    for batch in statements.batches(uuids):
        if unheard := heard.lacks(batch):
            text, values = statements.insertion_unless_present(tx, 'placement_aggregates', 'uuid', unheard)
            together.add(text, *values)
        check = functools.partial(_expect, heard, batch)
        together.add(_joining(tx.dialect.name, len(batch)), provider_id, moment, *batch, check=check)
    try:
        together.run_last()
    except (db_exc.DBReferenceError, db_exc.DBDuplicateEntry) as error:
        # An audit on another node of a cluster removed an aggregate that nobody was in.
        raise db_api.TryAgain from error
    heard.add(uuids)


def _expect(heard: name_cache.Heard, uuids: Sequence[str], joined: int) -> None:
    if joined != len(uuids):
        # An audit removed one that nobody was in.
        heard.forget(uuids)
        raise db_api.TryAgain


@functools.lru_cache(maxsize=64)
def _joining(dialect: str, count: int) -> str:
    """The statement that puts a provider into ``count`` aggregates, and holds these until the transaction ends."""
    lock = {'sqlite': '', 'postgresql': ' FOR KEY SHARE'}.get(dialect, ' LOCK IN SHARE MODE')
    return (
        'INSERT INTO placement_resource_provider_aggregates (resource_provider_id, aggregate_id, created_at)'  # noqa: S608
        f' SELECT ?, id, ? FROM placement_aggregates WHERE uuid IN ({statements.marks(count)}) ORDER BY id{lock}'
    )
