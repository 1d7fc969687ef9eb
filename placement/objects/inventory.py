"""Inventories: how much of each resource class a provider has, and how much of it is taken."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_log import log
from oslo_utils import timeutils

from placement import exception, room
from placement.db import statements, tables
from placement.objects import base, generation, provider_parts
from placement.objects.base import fields

LOG = log.getLogger(__name__)

_inventories = tables.inventories
_classes = tables.resource_classes

#: What a request may leave out, and what it then means. A write replaces the whole record.
_DEFAULTS = {'reserved': 0, 'min_unit': 1, 'max_unit': room.LARGEST, 'step_size': 1, 'allocation_ratio': 1.0}
_WRITABLE = ('total', *_DEFAULTS)

#: How many inventories one statement overwrites.
_TOGETHER = 100


@base.register
class Inventory(base.Timestamped):
    """What one provider has of one class. ``used`` is the sum of all allocations of it."""

    id: int
    resource_class: str
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int
    fields = {
        'id': fields.IntegerField(),
        'resource_class': fields.StringField(),
        'total': fields.IntegerField(),
        'reserved': fields.IntegerField(),
        'min_unit': fields.IntegerField(),
        'max_unit': fields.IntegerField(),
        'step_size': fields.IntegerField(),
        'allocation_ratio': fields.FloatField(),
        'used': fields.IntegerField(),
    }

    @classmethod
    def from_request(cls, resource_class: str, record: Mapping[str, Any]) -> Inventory:
        """The inventory that a validated request describes, with defaults filled in."""
        values = {name: record.get(name, default) for name, default in _DEFAULTS.items()}
        # Not every database keeps the sign of -0.0, and 0.0 is what is meant.
        values['allocation_ratio'] += 0.0
        return cls(
            resource_class=resource_class,
            total=record['total'],
            used=0,
            created_at=timeutils.utcnow(),
            updated_at=None,
            **values,
        )

    @classmethod
    def get_with_provider(
        cls, context: Any, uuid: str, resource_class: str
    ) -> tuple[provider_parts.Provider, Inventory]:
        """A provider and what it has of ``resource_class``.

        :raises ResourceProviderNotFound: no such provider.
        :raises InventoryNotFound: it has nothing of it, or there is no such class.
        """
        # All of them: one statement that says both whether there is such a provider and whether it has this.
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
        for row in rows:
            if row.resource_class == resource_class:
                return provider, cls.from_row(context, row)
        raise exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)

    @property
    def capacity(self) -> int:
        """How much may be used in all: truncated towards zero."""
        return room.capacity(self)


@base.register
class InventoryList(base.ObjectList):
    """The inventories of one provider, in order of class id: standard classes first."""

    fields = {'objects': fields.ListOfObjectsField('Inventory')}

    @classmethod
    def get_with_provider(cls, context: Any, uuid: str) -> tuple[provider_parts.Provider, InventoryList]:
        """A provider and all its inventories.

        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_parts.read(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, Inventory, rows)


def read(context: Any, uuid: str) -> tuple[provider_parts.Provider, list[sa.Row[Any]]]:
    """A provider and the rows of its inventories; see ``provider_parts.read``."""
    return provider_parts.read(context, _WITH_PROVIDER, uuid)


# What a provider does to its inventories. Each of these holds the classes that it names, then moves the provider's
# generation and so holds its row: no claim can add to `used` at the same time, though some may be taking away.
#
# `present` is what `read` gave along with the generation. As every change of inventories and every claim that adds to
# `used` moves the generation, it is still right once the generation has been moved; only `used` may have become less.


def add(db: Any, tx: sa.Connection, provider: Any, record: Inventory) -> None:
    """Store a new inventory; see ``ResourceProvider.add_inventory``."""
    class_id = _hold_classes(db, tx, [record.resource_class])[record.resource_class]
    generation.bump(tx, provider)
    try:
        tx.execute(_inventories.insert(), [_new_row(provider.id, class_id, record)])
    except db_exc.DBDuplicateEntry as error:
        raise exception.InventoryExists(resource_class=record.resource_class, uuid=provider.uuid) from error


def replace_all(
    db: Any, tx: sa.Connection, provider: Any, present_rows: Sequence[sa.Row[Any]], records: Sequence[Inventory]
) -> None:
    """Make ``records`` the whole inventory; see ``ResourceProvider.set_inventories``."""
    ids = _hold_classes(db, tx, [record.resource_class for record in records])
    generation.bump(tx, provider)
    wanted = {ids[record.resource_class]: record for record in records}
    present = {row.resource_class_id: row for row in present_rows}
    _remove(tx, provider, [row for class_id, row in present.items() if class_id not in wanted])
    # In the order in which claims take them: one that only gives back does not wait for the provider.
    kept = sorted(wanted.keys() & present.keys())
    for start in range(0, len(kept), _TOGETHER):
        batch = kept[start : start + _TOGETHER]
        _overwrite(tx, provider, [(id_, wanted[id_]) for id_ in batch])
    added = [_new_row(provider.id, id_, record) for id_, record in wanted.items() if id_ not in present]
    if added:
        tx.execute(_inventories.insert(), added)
    _warn_of_overcommitment(provider, [(record, present[id_].used) for id_, record in wanted.items() if id_ in present])


def update(db: Any, tx: sa.Connection, provider: Any, present: Sequence[sa.Row[Any]], record: Inventory) -> None:
    """Overwrite one inventory; see ``ResourceProvider.update_inventory``."""
    class_id = _hold_classes(db, tx, [record.resource_class])[record.resource_class]
    generation.bump(tx, provider)
    row = _of_class(present, class_id)
    if row is None:
        raise exception.InventoryRecordNotFound(resource_class=record.resource_class)
    _overwrite(tx, provider, [(class_id, record)])
    _warn_of_overcommitment(provider, [(record, row.used)])


def delete(db: Any, tx: sa.Connection, provider: Any, present: Sequence[sa.Row[Any]], resource_class: str) -> None:
    """Remove one inventory; see ``ResourceProvider.delete_inventory``."""
    class_id = _hold_classes(db, tx, [resource_class])[resource_class]
    generation.bump(tx, provider)
    row = _of_class(present, class_id)
    if row is None:
        raise exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)
    _remove(tx, provider, [row])


def _remove(tx: sa.Connection, provider: Any, rows: Sequence[sa.Row[Any]]) -> None:
    """Delete the inventories ``rows`` of ``provider``.

    :raises InventoryInUse: some have allocations; names them all, in order of class id.
    :raises ConcurrentProviderUpdate: they are no longer what they were read as.
    """
    in_use = [row.resource_class for row in rows if row.used > 0]
    if in_use:
        raise exception.InventoryInUse(resource_classes=', '.join(in_use), uuid=provider.uuid)
    for batch in statements.batches([row.id for row in rows]):
        if tx.execute(_REMOVE, {'rows': batch}).rowcount != len(batch):
            raise exception.ConcurrentProviderUpdate


def _of_class(rows: Iterable[sa.Row[Any]], class_id: int) -> sa.Row[Any] | None:
    return next((row for row in rows if row.resource_class_id == class_id), None)


def _overwrite(tx: sa.Connection, provider: Any, records: Sequence[tuple[int, Inventory]]) -> None:
    """Write records, each with its class id, over those that are there, in one statement."""
    parameters: dict[str, Any] = {'provider': provider.id, 'classes': [class_id for class_id, _ in records]}
    for number, (class_id, record) in enumerate(records):
        parameters[f'class_{number}'] = class_id
        parameters |= {f'{name}_{number}': value for name, value in _changes(record).items()}
    tx.execute(_overwriting(len(records)), parameters)


@functools.lru_cache(maxsize=_TOGETHER)
def _overwriting(count: int) -> sa.Update:
    """The statement that writes ``count`` records."""
    mine = sa.and_(
        _inventories.c.resource_provider_id == sa.bindparam('provider'),
        _inventories.c.resource_class_id.in_(sa.bindparam('classes', expanding=True)),
    )
    return _inventories.update().where(mine).values({name: _by_class(name, count) for name in _WRITABLE})


def _by_class(name: str, count: int) -> sa.ColumnElement[Any]:
    """What the column ``name`` becomes: the parameter that goes with the class of the row."""
    column = _inventories.c[name]
    of_class = _inventories.c.resource_class_id
    return sa.case(
        *(
            (of_class == sa.bindparam(f'class_{number}'), sa.bindparam(f'{name}_{number}', type_=column.type))
            for number in range(count)
        ),
        else_=column,
    )


_REMOVE = _inventories.delete().where(
    _inventories.c.id.in_(sa.bindparam('rows', expanding=True)), _inventories.c.used == 0
)


_WITH_PROVIDER = provider_parts.statement(
    _inventories.join(_classes, _classes.c.id == _inventories.c.resource_class_id),
    _inventories.c.resource_provider_id,
    _inventories.c.resource_class_id,
    *(_inventories.c[name] for name in Inventory.fields if name in _inventories.c),
    _inventories.c.resource_class_id,
    _classes.c.name.label('resource_class'),
)


def _hold_classes(db: Any, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
    ids: dict[str, int] = db.resource_classes.ids(tx, names, hold=True)
    for name in names:
        if name not in ids:
            raise exception.ResourceClassNotFound(resource_class=name)
    return ids


def _changes(record: Inventory) -> dict[str, Any]:
    return {name: getattr(record, name) for name in _WRITABLE}


def _new_row(provider_id: int, class_id: int, record: Inventory) -> dict[str, Any]:
    return _changes(record) | {'resource_provider_id': provider_id, 'resource_class_id': class_id, 'used': 0}


def _warn_of_overcommitment(provider: Any, pairs: Iterable[tuple[Inventory, int]]) -> None:
    over = [
        f'{record.resource_class} ({used} used of {record.capacity})'
        for record, used in pairs
        if used > max(record.capacity, 0)
    ]
    if over:
        LOG.warning('Resource provider %s is now over-committed: %s', provider.uuid, ', '.join(over))
