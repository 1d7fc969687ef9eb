"""How provider trees grow, join and shrink.

Whatever changes the shape of a tree locks the tree's root first, so that two such changes follow one another. The
foreign keys on parent and root back this up on a cluster, where locks of two nodes do not meet before the commit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import api as db_api
from placement.db import changes, statements, tables

_providers = tables.resource_providers


def insert(tx: sa.Connection, *, name: str, uuid: str, parent_uuid: str | None) -> None:
    """Store a provider below the parent, or as a root.

    :raises ParentProviderNotFound: no such parent.
    :raises DBDuplicateEntry: the name or the uuid is taken.
    """
    parent_id = root_id = None
    if parent_uuid is not None:
        parent_id = _id_of(tx, parent_uuid)
        root_id = _lock_root_of(tx, parent_id)
    with _parent_may_vanish():
        made = tx.execute(
            _providers.insert().values(name=name, uuid=uuid, parent_provider_id=parent_id, root_provider_id=root_id)
        )
    own_id = statements.new_id(made)
    changes.providers(tx, [own_id])
    if root_id is None:
        tx.execute(_unstamped(_providers.c.id == own_id).values(root_provider_id=own_id))


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
    """Apply the parent rules of contract A 5.3 to a provider, given the parent that a request names.

    :raises ParentProviderNotFound, ReparentingNotAllowed, UnparentingNotAllowed, ProviderTreeLoop:
    :raises ResourceProviderNotFound: it is gone.
    """
    parent_id = None if parent_uuid is None else _id_of(tx, parent_uuid)
    present = tx.execute(sa.select(_providers.c.parent_provider_id).where(_providers.c.id == provider_id)).first()
    if present is None:
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
    provider_id = tx.scalar(sa.select(_providers.c.id).where(_providers.c.uuid == uuid).with_for_update())
    if provider_id is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    if _exists(tx, _providers.c.parent_provider_id == provider_id):
        raise exception.CannotDeleteParentProvider(uuid=uuid)
    if _exists(tx, tables.allocations.c.resource_provider_id == provider_id):
        raise exception.ResourceProviderInUse(uuid=uuid)
    for table in (tables.inventories, tables.resource_provider_traits, tables.resource_provider_aggregates):
        tx.execute(table.delete().where(table.c.resource_provider_id == provider_id))
    try:
        # A row that refers to itself cannot be deleted everywhere.
        tx.execute(_unstamped(_providers.c.id == provider_id).values(root_provider_id=None))
        tx.execute(_providers.delete().where(_providers.c.id == provider_id))
        changes.providers(tx, [provider_id])
    except db_exc.DBReferenceError as error:
        # A child or an allocation arrived since we looked; the next attempt sees it and says so.
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


def _lock_root_of(tx: sa.Connection, provider_id: int) -> int:
    root_id = _root_of(tx, provider_id)
    _lock_root(tx, root_id)
    return root_id


def _lock_root(tx: sa.Connection, root_id: int) -> None:
    """Keep ``root_id`` from joining another tree until we are done; start over if it just did.

    An update that changes nothing, rather than a lock: it also conflicts at REPEATABLE READ on PostgreSQL.
    """
    still_root = _providers.c.parent_provider_id.is_(None)
    locked = tx.execute(_unstamped(_providers.c.id == root_id, still_root).values(root_provider_id=root_id))
    if locked.rowcount != 1:
        raise db_api.TryAgain


def _root_of(tx: sa.Connection, provider_id: int) -> int:
    root_id: int | None = tx.scalar(sa.select(_providers.c.root_provider_id).where(_providers.c.id == provider_id))
    # An adopted database may have roots without a root.
    return provider_id if root_id is None else root_id


def _id_of(tx: sa.Connection, parent_uuid: str) -> int:
    parent_id: int | None = tx.scalar(sa.select(_providers.c.id).where(_providers.c.uuid == parent_uuid))
    if parent_id is None:
        raise exception.ParentProviderNotFound
    return parent_id


def _unstamped(*conditions: sa.ColumnElement[bool]) -> sa.Update:
    """An update that does not count as a modification."""
    return _providers.update().where(*conditions).values(updated_at=_providers.c.updated_at)


def _exists(tx: sa.Connection, condition: sa.ColumnElement[bool]) -> bool:
    return tx.scalar(sa.select(sa.literal(1)).where(condition).limit(1)) is not None
