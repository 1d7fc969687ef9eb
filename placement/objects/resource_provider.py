"""Resource providers. They have inventories, traits and aggregates, and form trees.

A transaction that creates a provider below another one, or moves providers, locks the roots of the trees that it
changes. Then it checks that the providers are still in these trees. So such transactions run one at a time on a tree.
All locks are taken in order of id, as in claims.

On a Galera cluster a lock is valid on one node only. Such a transaction writes to the rows of the roots (``_locked``),
so its COMMIT fails if another node has changed one of the same roots.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import timeutils

from placement import exception
from placement.db import change_log, errors, sql, tables
from placement.db.batch import StatementBatch
from placement.objects import base
from placement.objects.base import Context

_providers = tables.resource_providers


@base.register
class ResourceProvider(base.Timestamped):
    """One resource provider, a node of a tree."""

    VERSION = '1.0'

    id: int
    uuid: str
    name: str | None
    generation: int
    parent_provider_uuid: str | None
    root_provider_uuid: str

    @classmethod
    def get_by_uuid(cls, context: Context, uuid: str) -> ResourceProvider:
        """Read a provider.

        :param uuid: a canonical uuid.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        # No provider has a uuid that cannot be stored.
        rows = context.db.fetch_all(BY_UUID, {'sought': uuid}) if sql.storable(uuid) else []
        if not rows:
            raise exception.ResourceProviderNotFound(uuid=uuid)
        return cls.from_row(context, rows[0])

    @classmethod
    def list_tree(cls, context: Context, uuid: str) -> list[ResourceProvider]:
        """Read the tree of a provider, in the order of searches; empty if there is no such provider.

        :param uuid: a canonical uuid.
        """
        return cls.from_rows(context, context.db.fetch_all(_TREE, {'sought': uuid}))

    @classmethod
    def create(
        cls, context: Context, *, name: str, uuid: str, parent_provider_uuid: str | None = None
    ) -> ResourceProvider:
        """Insert a provider, as a root unless a parent is given.

        :raises ParentProviderIsSelf: the parent is the provider itself.
        :raises ParentProviderNotFound: there is no such parent.
        :raises DuplicateProviderUuid: the uuid is taken (whether or not the name is).
        :raises DuplicateProviderName: only the name is taken.
        """
        if parent_provider_uuid == uuid:
            raise exception.ParentProviderIsSelf

        # Not every database stores fractions of a second.
        created_at = timeutils.utcnow().replace(microsecond=0)

        def work(tx: sa.Connection) -> ResourceProvider:
            row = {'name': name, 'uuid': uuid, 'generation': 0, 'created_at': created_at}
            if parent_provider_uuid is None:
                own_id, root_uuid = _insert_root(tx, row), uuid
            else:
                own_id, root_uuid = _insert_child(tx, row, parent_provider_uuid)
            links = {'parent_provider_uuid': parent_provider_uuid, 'root_provider_uuid': root_uuid}
            return cls(context, id=own_id, updated_at=None, **row, **links)

        try:
            return context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            # The uuid is a duplicate if it exists, otherwise the name. If neither exists any more, the error tells.
            holders = context.db.fetch_all(_HOLDERS, {'sought': uuid, 'name': name})
            if any(row.uuid == uuid for row in holders) or (not holders and 'uuid' in error.columns):
                raise exception.DuplicateProviderUuid(uuid=uuid) from error
            raise _duplicate_name(name, holders) from error

    @classmethod
    def destroy(cls, context: Context, uuid: str) -> None:
        """Delete a provider with its inventories and its associations with traits and aggregates.

        :raises ResourceProviderNotFound: there is no such provider.
        :raises CannotDeleteParentProvider: it has children.
        :raises ResourceProviderInUse: it has allocations.
        """
        context.db.write(lambda tx: _delete(tx, uuid))

    @classmethod
    def rename(cls, context: Context, uuid: str, name: str) -> ResourceProvider:
        """Rename a provider, and return it.

        :raises DuplicateProviderName: another provider has the name.
        :raises ResourceProviderNotFound: there is no such provider.
        """
        return cls._update(context, name, lambda tx: _rename(tx, uuid, name))

    @classmethod
    def rename_and_move(
        cls, context: Context, uuid: str, name: str, parent: str | None, *, reparenting: bool = False
    ) -> ResourceProvider:
        """Rename a provider, change its parent (api-ref/resource-providers.md#the-rules-of-parents), and return it.

        :param parent: uuid, or None for no parent.
        :param reparenting: whether a parent can be changed or removed. If false, only a root can get a parent.
        :raises ParentProviderNotFound: there is no such parent.
        :raises ReparentingNotAllowed: it has another parent.
        :raises UnparentingNotAllowed: it has a parent, and ``parent`` is None.
        :raises ProviderTreeLoop: the parent is the provider itself or in the tree below it.
        :raises DuplicateProviderName, ResourceProviderNotFound: as for ``rename``.
        """
        return cls._update(context, name, lambda tx: _rename_and_move(tx, uuid, name, parent, reparenting=reparenting))

    @classmethod
    def _update(cls, context: Context, name: str, work: Callable[[sa.Connection], dict[str, Any]]) -> ResourceProvider:
        try:
            columns = context.db.write(work)
        except db_exc.DBDuplicateEntry as error:
            holders = context.db.fetch_all(_HOLDERS, {'sought': None, 'name': name})
            raise _duplicate_name(name, holders) from error
        return cls(context, **{field: columns[field] for field in cls.fields})


def _duplicate_name(name: str, holders: Sequence[sa.Row[Any]]) -> exception.DuplicateProviderName:
    """Return the error for a name that a provider has. ``holders`` is empty if that was deleted meanwhile."""
    return exception.DuplicateProviderName(name=name, holder=holders[0].uuid if holders else 'deleted meanwhile')


# Trees -------------------------------------------------------------------------------------------------------


def _insert_root(tx: sa.Connection, row: dict[str, Any]) -> int:
    own_id = sql.new_id(tx.execute(_INSERT, row))
    change_log.record_providers(tx, [own_id])
    batch = StatementBatch(tx)
    # This does not set updated_at, because it is a part of the creation.
    batch.add_statement(_SET_OWN_ROOT, own_id)
    batch.defer()
    return own_id


def _insert_child(tx: sa.Connection, row: dict[str, Any], parent_uuid: str) -> tuple[int, str]:
    parent = tx.execute(_PARENT, {'sought': parent_uuid}).first()
    if parent is None:
        raise exception.ParentProviderNotFound
    is_still_there = f'root_provider_id = {parent.root_id:d}'
    with _locked(tx, {parent.id, parent.root_id}, [parent.root_id], is_still_there), _parent_may_vanish():
        links = {'parent_provider_id': parent.id, 'root_provider_id': parent.root_id}
        own_id = sql.new_id(tx.execute(_INSERT, row | links))
        change_log.record_providers(tx, [own_id])
    return own_id, parent.root_provider_uuid


def _rename(tx: sa.Connection, uuid: str, name: str) -> dict[str, Any]:
    """Rename a provider. Its generation stays the same.

    :returns: the columns of ``BY_UUID`` of the renamed provider.
    """
    # Without the count, a provider that is created between the two statements would be returned with its own name.
    count = tx.execute(_RENAME, {'sought': uuid, 'new': name}).rowcount
    renamed = tx.execute(BY_UUID, {'sought': uuid}).first()
    if not count or renamed is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    change_log.record_providers(tx, [renamed.id])
    return renamed._asdict()


def _rename_and_move(
    tx: sa.Connection, uuid: str, name: str, parent_uuid: str | None, *, reparenting: bool
) -> dict[str, Any]:
    """Rename a provider, and change its parent. See ``ResourceProvider.rename_and_move``.

    :returns: as for ``_rename``.
    :raises RetryTransaction: one of the providers was deleted or moved meanwhile.
    """
    providers = {row.uuid: row for row in tx.execute(_OWN_AND_PARENT, {'own': uuid, 'parent': parent_uuid})}
    provider = providers.get(uuid)
    if provider is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    if parent_uuid == provider.parent_provider_uuid:
        renamed = _rename(tx, uuid, name)
        if renamed['parent_provider_uuid'] != parent_uuid:
            raise errors.RetryTransaction
        return renamed
    if parent_uuid is None and not reparenting:
        raise exception.UnparentingNotAllowed
    if parent_uuid is not None and parent_uuid not in providers:
        raise exception.ParentProviderNotFound
    if provider.parent_provider_uuid is not None and not reparenting:
        raise exception.ReparentingNotAllowed
    return _move(tx, uuid, name, parent_uuid)


def _delete(tx: sa.Connection, uuid: str) -> None:
    """Delete a provider. See ``ResourceProvider.destroy``.

    :raises RetryTransaction: it got a child, an allocation or another related row meanwhile.
    """
    provider = tx.execute(_TO_DELETE, {'sought': uuid}).first()
    if provider is None:
        raise exception.ResourceProviderNotFound(uuid=uuid)
    if provider.has_children:
        raise exception.CannotDeleteParentProvider(uuid=uuid)
    if provider.has_allocations:
        raise exception.ResourceProviderInUse(uuid=uuid)
    for table in _RELATED_TABLES:
        if getattr(provider, table.name):
            tx.execute(table.delete().where(table.c.resource_provider_id == provider.id))
    try:
        if provider.root_provider_id == provider.id:
            # Some databases do not delete a row that refers to itself.
            sql.execute_text(tx, _UNSET_ROOT, provider.id)
        tx.execute(_providers.delete().where(_providers.c.id == provider.id))
        change_log.record_providers(tx, [provider.id])
    except db_exc.DBReferenceError as error:
        # A child, an allocation or another related row was inserted since the query above.
        raise errors.RetryTransaction from error


def _read_position(
    tx: sa.Connection, uuid: str, parent_uuid: str | None
) -> tuple[sa.Row[Any], sa.Row[Any] | None, set[int], set[tuple[int, int | None, int]]]:
    """Read a provider and its new parent in one statement.

    :returns: the provider; the parent; the ids of the subtree, which is the provider and all providers below it; and,
        because a move relies on them, the id of each provider that was read, with the ids of its parent and root.
    :raises RetryTransaction: one of the two providers was deleted.
    """
    rows = tx.execute(_PLACE, {'own': uuid, 'parent': parent_uuid}).all()
    below = {row.uuid: row for row in rows if row.is_below}
    parent = next((row for row in rows if row.uuid == parent_uuid), None)
    if uuid not in below or (parent is None and parent_uuid is not None):
        raise errors.RetryTransaction
    links = {(row.id, row.parent_provider_id, row.root_id) for row in rows}
    return below[uuid], parent, {row.id for row in below.values()}, links


def _move(tx: sa.Connection, uuid: str, name: str, parent_uuid: str | None) -> dict[str, Any]:
    """Move a provider and all providers below it to another parent, or make it a root, and rename it.

    :raises ProviderTreeLoop: the parent is the provider itself or below it.
    """
    provider, parent, subtree, links = _read_position(tx, uuid, parent_uuid)
    if parent is not None and parent.id in subtree:
        raise exception.ProviderTreeLoop
    root_id = provider.id if parent is None else parent.root_id
    moved = subtree if root_id != provider.root_id else {provider.id}
    parent_id = parent and parent.id
    with _locked(
        tx, {provider.root_id, root_id, parent_id or provider.id} | moved, {provider.root_id, root_id} - {provider.id}
    ):
        # While the roots are locked, no other transaction can move providers of the trees or add any.
        provider, _, _, links_now = _read_position(tx, uuid, parent_uuid)
        if links_now != links:
            raise errors.RetryTransaction
        change_log.record_providers(tx, moved)
        moment = timeutils.utcnow()
        values = {'own': provider.id, 'parent': parent_id, 'root': root_id, 'new': name, 'moment': moment}
        with _parent_may_vanish():
            for chunk in sql.chunks(sorted(moved)):
                tx.execute(_MOVE, {'moved': chunk, **values})
    root_uuid = uuid if parent is None else parent.root_provider_uuid
    changed = {'parent_provider_uuid': parent_uuid, 'root_provider_uuid': root_uuid, 'updated_at': moment}
    return {**provider._asdict(), **changed, 'name': name}


@contextlib.contextmanager
def _parent_may_vanish() -> Iterator[None]:
    """Raise ``RetryTransaction`` if the parent was deleted since it was read."""
    try:
        yield
    except db_exc.DBReferenceError as error:
        raise errors.RetryTransaction(exception.ParentProviderNotFound()) from error


@contextlib.contextmanager
def _locked(tx: sa.Connection, ids: Iterable[int], root_ids: Iterable[int], condition: str = '') -> Iterator[None]:
    """Lock providers until the transaction ends, in order of id, so that transactions do not deadlock.

    This is an UPDATE that changes nothing, instead of SELECT ... FOR UPDATE: it takes the same locks on all databases,
    and its row count tells whether the rows are still as expected.

    On MySQL and MariaDB it changes the generations of the roots, and changes them back at the end, because Galera does
    not replicate an UPDATE that changes nothing. So only one of two transactions on two nodes can be committed. Foreign
    keys alone would not suffice. Two moves that together make a loop may have no row in common. And Galera may commit a
    reference to a row together with a change of this row.

    :param root_ids: the ``ids`` that are roots of the changed trees.
    :param condition: SQL that has to be true for each provider.
    :raises RetryTransaction: the condition is not true, or a provider was deleted.
    """
    is_mysql = sql.is_mysql(tx.dialect)
    # No provider has the id 0.
    roots = ', '.join(f'{id_:d}' for id_ in (0, *root_ids))
    lock = f'generation = generation + (id IN ({roots}))' if is_mysql else 'generation = generation'
    for chunk in sql.chunks(sorted(ids)):
        rows = f'id IN ({sql.placeholders(len(chunk))})'
        if condition:
            rows = f'{rows} AND {condition}'
        text, values = sql.update_in_order(tx.dialect, _providers, lock, [], rows, chunk, count=len(chunk))
        if sql.execute_text(tx, text, *values).rowcount != len(chunk):
            raise errors.RetryTransaction
    yield
    if is_mysql:
        text = 'UPDATE {table} SET generation = generation - 1 WHERE id IN ({roots})'
        sql.execute_text(tx, sql.statement(text, table=_providers, roots=roots))


_INSERT = _providers.insert()
_SET_OWN_ROOT = sql.statement('UPDATE {table} SET root_provider_id = id WHERE id = ?', table=_providers)
_UNSET_ROOT = sql.statement('UPDATE {table} SET root_provider_id = NULL WHERE id = ?', table=_providers)
_RENAME = _providers.update().where(_providers.c.uuid == sa.bindparam('sought')).values(name=sa.bindparam('new'))

_parents = _providers.alias('parent')
_roots = _providers.alias('root')
_root_id = _providers.c.root_provider_id
_ALL = (
    sa.select(
        _providers.c.id,
        _providers.c.uuid,
        _providers.c.name,
        _providers.c.generation,
        _providers.c.created_at,
        _providers.c.updated_at,
        _parents.c.uuid.label('parent_provider_uuid'),
        _roots.c.uuid.label('root_provider_uuid'),
    )
    .select_from(_providers)
    .join(_roots, _roots.c.id == _root_id)
    .outerjoin(_parents, _parents.c.id == _providers.c.parent_provider_id)
)
#: Selects the fields of the ``ResourceProvider`` whose uuid is the parameter ``sought``.
BY_UUID = _ALL.where(_providers.c.uuid == sa.bindparam('sought'))
#: Selects the tree of the provider with the uuid ``sought``: the root, and then the others in the order of their ids.
_member = _providers.alias('member')
_TREE = _ALL.where(
    _root_id.in_(sa.select(_member.c.root_provider_id).where(_member.c.uuid == sa.bindparam('sought')))
).order_by(_providers.c.id != _root_id, _providers.c.id)
#: Selects the providers that prevent the creation of one with the uuid ``sought`` and the ``name``.
_HOLDERS = sa.select(_providers.c.uuid).where(
    sa.or_(_providers.c.uuid == sa.bindparam('sought'), _providers.c.name == sa.bindparam('name'))
)
_PARENT = BY_UUID.add_columns(_root_id.label('root_id'))
_OWN_AND_PARENT = _ALL.add_columns(_root_id.label('root_id')).where(
    _providers.c.uuid.in_([sa.bindparam('own'), sa.bindparam('parent')])
)
_is_own = _providers.c.id == sa.bindparam('own')
_MOVE = (
    _providers.update()
    .where(_providers.c.id.in_(sa.bindparam('moved', expanding=True)))
    .values(
        parent_provider_id=sa.case((_is_own, sa.bindparam('parent')), else_=_providers.c.parent_provider_id),
        name=sa.case((_is_own, sa.bindparam('new', type_=_providers.c.name.type)), else_=_providers.c.name),
        root_provider_id=sa.bindparam('root'),
        updated_at=sa.bindparam('moment'),
    )
)
_top = sa.select(_providers.c.id, sa.true().label('is_below')).where(_providers.c.uuid == sa.bindparam('own'))
_below = _top.cte('below', recursive=True)
# UNION instead of UNION ALL, so that the query ends even if damaged tables have a loop.
_below = _below.union(
    sa.select(_providers.c.id, sa.true()).join(_below, _providers.c.parent_provider_id == _below.c.id)
)
_found = sa.union_all(
    sa.select(_below.c.id, _below.c.is_below),
    sa.select(_providers.c.id, sa.false()).where(_providers.c.uuid == sa.bindparam('parent')),
).subquery('found')
#: Selects the providers of ``_read_position``. A parent within the subtree has two rows.
_PLACE = _ALL.join(_found, _found.c.id == _providers.c.id).add_columns(
    _providers.c.parent_provider_id, _root_id.label('root_id'), _found.c.is_below
)

_RELATED_TABLES = (tables.inventories, tables.resource_provider_traits, tables.resource_provider_aggregates)
_children = _providers.alias('child')
#: Locks the provider with the uuid ``sought``, and selects whether it has children, allocations and other related rows.
_TO_DELETE = (
    sa.select(
        _providers.c.id,
        _providers.c.root_provider_id,
        sa.exists().where(_children.c.parent_provider_id == _providers.c.id).label('has_children'),
        sa.exists().where(tables.allocations.c.resource_provider_id == _providers.c.id).label('has_allocations'),
        *(
            sa.exists().where(table.c.resource_provider_id == _providers.c.id).label(table.name)
            for table in _RELATED_TABLES
        ),
    )
    .where(_providers.c.uuid == sa.bindparam('sought'))
    .with_for_update(of=_providers)
)
