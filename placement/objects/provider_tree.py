"""Creates, renames, moves and deletes providers, which form trees.

A transaction that adds a provider below another, or joins two trees, locks the roots first, so that two such
transactions follow one another. On a Galera cluster a lock holds on one node only; there the foreign keys on parent and
root protect the trees.
"""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import timeutils

from placement import exception
from placement.db import api as db_api
from placement.db import changes, statements, tables
from placement.db.together import Together

_providers = tables.resource_providers


def insert(
    tx: sa.Connection, *, name: str, uuid: str, parent_uuid: str | None, created_at: dt.datetime
) -> tuple[int, str]:
    """Insert a provider below the parent, or as a root.

    :returns: its id, and the uuid of its root.
    :raises ParentProviderNotFound: no such parent.
    :raises DBDuplicateEntry: the name or the uuid is taken.
    :raises TryAgain: the parent, or its root, was deleted or moved meanwhile.
    """
    parent_id = root_id = None
    root_uuid = uuid
    if parent_uuid is not None:
        parent = tx.execute(_PARENT, {'sought': parent_uuid}).first()
        if parent is None:
            raise exception.ParentProviderNotFound
        parent_id, root_id, root_uuid = parent.id, parent.root_id, parent.root_provider_uuid
        _lock_roots(tx, [parent.root_id])
    with _parent_may_vanish():
        own_id = statements.insert_one(
            tx, 'placement_resource_providers', _COLUMNS, (name, uuid, 0, parent_id, root_id), created_at
        )
    changes.providers(tx, [own_id])
    if root_id is None:
        together = Together(tx)
        # Does not set updated_at, as it is part of the creation.
        together.add('UPDATE placement_resource_providers SET root_provider_id = id WHERE id = ?', own_id)
        together.run_last()
    return own_id, root_uuid


def rename(tx: sa.Connection, uuid: str, name: str) -> dict[str, Any]:
    """Rename a provider. Its generation stays.

    :returns: the provider after that: the columns of ``BY_UUID``.
    :raises ResourceProviderNotFound: there is no such provider.
    :raises DBDuplicateEntry: another provider has the name.
    """
    statements.run(tx, _RENAME, name, statements.now(tx), uuid)
    renamed = tx.execute(BY_UUID, {'sought': uuid}).first()
    if renamed is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    changes.providers(tx, [renamed.id])
    return renamed._asdict()


def rename_and_move(tx: sa.Connection, uuid: str, name: str, parent_uuid: str | None) -> dict[str, Any]:
    """Rename a provider, and give it a parent (api-ref/resource-providers.md#the-rules-of-parents).

    :param parent_uuid: None for none, which is allowed only if it has none.
    :returns: as for ``rename``.
    :raises ParentProviderNotFound: no such parent.
    :raises ReparentingNotAllowed: it has another parent.
    :raises UnparentingNotAllowed: it has a parent, and ``parent_uuid`` is None.
    :raises ProviderTreeLoop: the parent is the provider itself or in the tree below it.
    :raises ResourceProviderNotFound: there is no such provider.
    :raises DBDuplicateEntry: another provider has the name.
    :raises TryAgain: the parent or one of the roots was deleted or moved meanwhile.
    """
    both = {row.uuid: row for row in tx.execute(_OWN_AND_PARENT, {'own': uuid, 'parent': parent_uuid})}
    own = both.get(uuid)
    if own is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    if parent_uuid == own.parent_provider_uuid:
        return rename(tx, uuid, name)
    if parent_uuid is None:
        raise exception.UnparentingNotAllowed
    parent = both.get(parent_uuid)
    if parent is None:
        raise exception.ParentProviderNotFound
    if own.parent_provider_uuid is not None:
        raise exception.ReparentingNotAllowed
    if parent.root_id == own.id:
        raise exception.ProviderTreeLoop
    return _join(tx, own, parent, name)


def delete(tx: sa.Connection, uuid: str) -> None:
    """Delete a provider with its inventories and its associations with traits and aggregates.

    :raises ResourceProviderNotFound: there is no such provider.
    :raises CannotDeleteParentProvider: it has children.
    :raises ResourceProviderInUse: it has allocations.
    :raises TryAgain: it got a child, an allocation or another part meanwhile.
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
            # Not every database deletes a row that refers to itself.
            tx.execute(_update_without_time(_providers.c.id == found.id).values(root_provider_id=None))
        tx.execute(_providers.delete().where(_providers.c.id == found.id))
        changes.providers(tx, [found.id])
    except db_exc.DBReferenceError as error:
        # A child, an allocation or another part was inserted since the query above.
        raise db_api.TryAgain from error


def _join(tx: sa.Connection, own: sa.Row[Any], parent: sa.Row[Any], name: str) -> dict[str, Any]:
    """Make the root ``own`` a child of ``parent``, which is in another tree, and rename it."""
    _lock_roots(tx, [own.id, parent.root_id])
    # While the root is locked nobody can add a provider to its tree.
    members = {row.id: row for row in tx.execute(_MEMBERS, {'root': own.id})}
    changes.providers(tx, members)
    moment = timeutils.utcnow()
    with _parent_may_vanish():
        tx.execute(
            _MOVE, {'root': own.id, 'parent': parent.id, 'new_root': parent.root_id, 'new': name, 'moment': moment}
        )
    joined = {'name': name, 'parent_provider_uuid': parent.uuid, 'root_provider_uuid': parent.root_provider_uuid}
    return {**members[own.id]._asdict(), **joined, 'updated_at': moment}


@contextlib.contextmanager
def _parent_may_vanish() -> Iterator[None]:
    """Raise ``TryAgain`` if the parent was deleted since it was read."""
    try:
        yield
    except db_exc.DBReferenceError as error:
        raise db_api.TryAgain(exception.ParentProviderNotFound()) from error


def _lock_roots(tx: sa.Connection, root_ids: Sequence[int]) -> None:
    """Lock roots until the transaction ends, so that no other one moves them below a parent or extends their trees.

    In order of id, so that two transactions that join the same two trees do not deadlock. An UPDATE that changes
    nothing instead of SELECT ... FOR UPDATE: at REPEATABLE READ on PostgreSQL it makes a transaction fail that has an
    older snapshot and waited for it.

    :raises TryAgain: one of them is no longer a root.
    """
    which = _ROOTS if len(root_ids) == 1 else statements.locked_in_order(tx, _providers, _ROOTS)
    locked = tx.execute(_update_without_time(which).values(root_provider_id=_providers.c.id), {'roots': root_ids})
    if locked.rowcount != len(root_ids):
        raise db_api.TryAgain


def _update_without_time(*conditions: sa.ColumnElement[bool]) -> sa.Update:
    """An UPDATE of providers that leaves ``updated_at`` as it is."""
    return _providers.update().where(*conditions).values(updated_at=_providers.c.updated_at)


_RENAME = 'UPDATE placement_resource_providers SET name = ?, updated_at = ? WHERE uuid = ?'
_COLUMNS = 'name, uuid, generation, parent_provider_id, root_provider_id'
_ROOTS = sa.and_(_providers.c.id.in_(sa.bindparam('roots', expanding=True)), _providers.c.parent_provider_id.is_(None))

_parents = _providers.alias('parent')
_roots = _providers.alias('root')
# In an adopted database root_provider_id of a root may be NULL.
_root_id = sa.func.coalesce(_providers.c.root_provider_id, _providers.c.id)
_ALL = (
    sa.select(
        _providers.c.id,
        _providers.c.uuid,
        _providers.c.name,
        _providers.c.generation,
        _providers.c.created_at,
        _providers.c.updated_at,
        _parents.c.uuid.label('parent_provider_uuid'),
        sa.func.coalesce(_roots.c.uuid, _providers.c.uuid).label('root_provider_uuid'),
    )
    .select_from(_providers)
    .outerjoin(_parents, _parents.c.id == _providers.c.parent_provider_id)
    .outerjoin(_roots, _roots.c.id == _providers.c.root_provider_id)
)
#: Selects the fields of the ``ResourceProvider`` whose uuid is the parameter ``sought``.
BY_UUID = _ALL.where(_providers.c.uuid == sa.bindparam('sought'))
_PARENT = BY_UUID.add_columns(_root_id.label('root_id'))
_OWN_AND_PARENT = _ALL.add_columns(_root_id.label('root_id')).where(
    _providers.c.uuid.in_([sa.bindparam('own'), sa.bindparam('parent')])
)
_MEMBERS = _ALL.where(
    sa.or_(_providers.c.root_provider_id == sa.bindparam('root'), _providers.c.id == sa.bindparam('root'))
)
_is_own = _providers.c.id == sa.bindparam('root')
_MOVE = (
    _providers.update()
    .where(sa.or_(_providers.c.root_provider_id == sa.bindparam('root'), _is_own))
    .values(
        parent_provider_id=sa.case((_is_own, sa.bindparam('parent')), else_=_providers.c.parent_provider_id),
        name=sa.case((_is_own, sa.bindparam('new', type_=_providers.c.name.type)), else_=_providers.c.name),
        root_provider_id=sa.bindparam('new_root'),
        updated_at=sa.bindparam('moment'),
    )
)

_PARTS = (tables.inventories, tables.resource_provider_traits, tables.resource_provider_aggregates)
_children = _providers.alias('child')
#: Locks the provider whose uuid is ``sought``, and tells whether it has children, allocations and other parts.
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
