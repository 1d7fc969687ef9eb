"""How provider trees grow, join and shrink.

Whatever changes the shape of a tree locks the tree's root first, so that two such changes follow one another. The
foreign keys on parent and root back this up on a cluster, where locks of two nodes do not meet before the commit.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, statements, tables

_providers = tables.resource_providers


def insert(
    tx: sa.Connection, *, name: str, uuid: str, parent_uuid: str | None, created_at: dt.datetime
) -> tuple[int, str]:
    """Store a provider below the parent, or as a root.

    :returns: its id, and the uuid of its root.
    :raises ParentProviderNotFound: no such parent.
    :raises DBDuplicateEntry: the name or the uuid is taken.
    """
    parent_id = root_id = None
    root_uuid = uuid
    if parent_uuid is not None:
        parent = tx.execute(_PARENT, {'sought': parent_uuid}).first()
        if parent is None:
            raise exception.ParentProviderNotFound
        parent_id, root_id, root_uuid = parent.id, parent.root_id, parent.root_uuid
        _lock_root(tx, parent.root_id)
    with _parent_may_vanish():
        made = tx.execute(
            _providers.insert(),
            {
                'name': name,
                'uuid': uuid,
                'generation': 0,
                'parent_provider_id': parent_id,
                'root_provider_id': root_id,
                'created_at': created_at,
            },
        )
    own_id = statements.new_id(made)
    changes.providers(tx, [own_id])
    if root_id is None:
        tx.execute(_MAKE_ROOT, {'provider': own_id})
    return own_id, root_uuid


def rename(tx: sa.Connection, provider_id: int, uuid: str, name: str) -> None:
    """Give a provider a name.

    :raises ResourceProviderNotFound: it is gone.
    :raises DBDuplicateEntry: another provider has the name.
    """
    renamed = tx.execute(_providers.update().where(_providers.c.id == provider_id).values(name=name))
    if renamed.rowcount != 1:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    changes.providers(tx, [provider_id])


def set_parent(tx: sa.Connection, provider_id: int, uuid: str, parent_uuid: str | None) -> None:
    """Apply api-ref/resource-providers.md#the-rules-of-parents, given the parent that a request names.

    :raises ParentProviderNotFound, ReparentingNotAllowed, UnparentingNotAllowed, ProviderTreeLoop:
    :raises ResourceProviderNotFound: it is gone.
    """
    both = {row.uuid: row for row in tx.execute(_OWN_AND_PARENT, {'own': provider_id, 'parent': parent_uuid})}
    if parent_uuid is not None and parent_uuid not in both:
        raise exception.ParentProviderNotFound
    parent_id = None if parent_uuid is None else both[parent_uuid].id
    present = both.get(uuid)
    if present is None or present.id != provider_id:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    if parent_id == present.parent_provider_id:
        return
    if parent_id is None:
        raise exception.UnparentingNotAllowed
    if present.parent_provider_id is not None:
        raise exception.ReparentingNotAllowed
    _join(tx, provider_id, parent_id)


def delete(tx: sa.Connection, uuid: str) -> None:
    """Remove a provider and what hangs on it.

    :raises ResourceProviderNotFound: there is none.
    :raises CannotDeleteParentProvider: it has children.
    :raises ResourceProviderInUse: it has allocations.
    """
    found = tx.execute(_TO_DELETE, {'sought': uuid}).first()
    if found is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    if found.has_children:
        raise exception.CannotDeleteParentProvider(uuid=uuid)
    if found.has_allocations:
        raise exception.ResourceProviderInUse(uuid=uuid)
    for table in _PARTS:
        if getattr(found, table.name):
            tx.execute(table.delete().where(table.c.resource_provider_id == found.id))
    try:
        if found.root_provider_id == found.id:
            # A row that refers to itself cannot be deleted everywhere.
            tx.execute(_unstamped(_providers.c.id == found.id).values(root_provider_id=None))
        tx.execute(_providers.delete().where(_providers.c.id == found.id))
        changes.providers(tx, [found.id])
    except db_exc.DBReferenceError as error:
        # A child, an allocation or another part arrived since we looked; the next attempt sees it.
        raise db_api.TryAgain from error


def _join(tx: sa.Connection, root_id: int, parent_id: int) -> None:
    """Hang the tree of ``root_id`` below ``parent_id``, which must be of another tree."""
    new_root_id = _root_of(tx, parent_id)
    if new_root_id == root_id:
        raise exception.ProviderTreeLoop
    # In order of id, so that two trees that join each other do not wait for each other.
    for id_ in sorted((root_id, new_root_id)):
        _lock_root(tx, id_)
    # With the root locked nothing joins or leaves its tree.
    members = tx.scalars(sa.select(_providers.c.id).where(_providers.c.root_provider_id == root_id))
    changes.providers(tx, [root_id, *members])
    tx.execute(_providers.update().where(_providers.c.root_provider_id == root_id).values(root_provider_id=new_root_id))
    with _parent_may_vanish():
        tx.execute(
            _providers.update()
            .where(_providers.c.id == root_id)
            .values(parent_provider_id=parent_id, root_provider_id=new_root_id)
        )


@contextlib.contextmanager
def _parent_may_vanish() -> Iterator[None]:
    """Start over when the parent was deleted since we looked; the next attempt says so."""
    try:
        yield
    except db_exc.DBReferenceError as error:
        raise db_api.TryAgain(exception.ParentProviderNotFound()) from error


def _lock_root(tx: sa.Connection, root_id: int) -> None:
    """Keep ``root_id`` from joining another tree until we are done; start over if it just did.

    An update that changes nothing, rather than a lock: it also conflicts at REPEATABLE READ on PostgreSQL.
    """
    if tx.execute(_LOCK_ROOT, {'provider': root_id}).rowcount != 1:
        raise db_api.TryAgain


def _root_of(tx: sa.Connection, provider_id: int) -> int:
    root_id: int | None = tx.scalar(sa.select(_providers.c.root_provider_id).where(_providers.c.id == provider_id))
    # An adopted database may have roots without a root.
    return provider_id if root_id is None else root_id


def _unstamped(*conditions: sa.ColumnElement[bool]) -> sa.Update:
    """An update that does not count as a modification."""
    return _providers.update().where(*conditions).values(updated_at=_providers.c.updated_at)


_MAKE_ROOT = _unstamped(_providers.c.id == sa.bindparam('provider')).values(root_provider_id=_providers.c.id)
_LOCK_ROOT = _MAKE_ROOT.where(_providers.c.parent_provider_id.is_(None))

# An adopted database may have roots without a root.
_roots = _providers.alias('root')
_PARENT = (
    sa.select(
        _providers.c.id,
        sa.func.coalesce(_providers.c.root_provider_id, _providers.c.id).label('root_id'),
        sa.func.coalesce(_roots.c.uuid, _providers.c.uuid).label('root_uuid'),
    )
    .select_from(_providers.outerjoin(_roots, _roots.c.id == _providers.c.root_provider_id))
    .where(_providers.c.uuid == sa.bindparam('sought'))
)

_OWN_AND_PARENT = sa.select(_providers.c.id, _providers.c.uuid, _providers.c.parent_provider_id).where(
    sa.or_(_providers.c.id == sa.bindparam('own'), _providers.c.uuid == sa.bindparam('parent'))
)

_PARTS = (tables.inventories, tables.resource_provider_traits, tables.resource_provider_aggregates)
_children = _providers.alias('child')
#: Locks the provider, and says what hangs on it.
_TO_DELETE = (
    sa.select(
        _providers.c.id,
        _providers.c.root_provider_id,
        sa.exists().where(_children.c.parent_provider_id == _providers.c.id).label('has_children'),
        sa.exists().where(tables.allocations.c.resource_provider_id == _providers.c.id).label('has_allocations'),
        *(sa.exists().where(table.c.resource_provider_id == _providers.c.id).label(table.name) for table in _PARTS),
    )
    .where(_providers.c.uuid == sa.bindparam('sought'))
    .with_for_update(of=_providers)
)
