"""Inventories: the amount of each resource class that a provider has, and its usage."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.capacity import FIELDS, InventoryRecord
from placement.db import generation, inventory_rows, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderGeneration
from placement.objects import base
from placement.objects.base import Context

_inventories, _providers = tables.inventories, tables.resource_providers
_classes = tables.resource_classes

#: Providers, each with its inventories and their classes, for ``base.with_provider``.
JOINED = _providers.outerjoin(_inventories, _inventories.c.resource_provider_id == _providers.c.id).outerjoin(
    _classes, _classes.c.id == _inventories.c.resource_class_id
)


@base.register
class Inventory(base.Timestamped):
    """The inventory of one class on one provider. ``used`` is the sum of the allocations of all consumers."""

    VERSION = '1.1'
    #: In order of class id: standard classes first. The driver takes time for each column, so only the necessary ones
    #: are read.
    WITH_PROVIDER = base.with_provider(
        JOINED,
        _classes.c.id,
        *(_inventories.c[name] for name in (*FIELDS, 'used', 'created_at', 'updated_at')),
        _classes.c.name.label('resource_class'),
    )

    resource_class: str
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int

    @classmethod
    def get_with_provider(
        cls, context: Context, uuid: str, resource_class: str
    ) -> tuple[ProviderGeneration, Inventory]:
        """Read a provider and its inventory of ``resource_class``.

        :param uuid: a canonical uuid.
        :raises ResourceProviderNotFound: no such provider.
        :raises InventoryNotFound: it has no inventory of the class, or there is no such class.
        """
        # This reads all inventories: one statement that also shows whether the provider exists.
        provider, rows = base.read_with_provider(context, cls.WITH_PROVIDER, uuid)
        for row in rows:
            if row.resource_class == resource_class:
                return provider, cls.from_row(context, row)
        raise exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)

    # ``present`` has the inventories that ``read_inventories`` returned with ``provider``. Every change of inventories
    # and every claim that adds to ``used`` increments the generation. So as long as the generation is the same,
    # ``present`` is valid, except that ``used`` may have decreased. ``record`` has the values to write; its ``used`` is
    # ignored. Each write below returns the changed provider, and raises ConcurrentProviderUpdate if another write
    # incremented the generation.

    @classmethod
    def create(
        cls, context: Context, provider: ProviderGeneration, resource_class: str, record: InventoryRecord
    ) -> ProviderGeneration:
        """Insert an inventory.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryExists: the provider has an inventory of the class.
        """

        def insert(batch: StatementBatch, ids: Mapping[str, int]) -> None:
            inventory_rows.insert(batch, {(provider.id, ids[resource_class]): record})

        try:
            return _write(context, provider, [resource_class], insert)
        except db_exc.DBDuplicateEntry as error:
            raise exception.InventoryExists(resource_class=resource_class, uuid=provider.uuid) from error

    @classmethod
    def update(
        cls,
        context: Context,
        provider: ProviderGeneration,
        present: Mapping[str, sa.Row[Any]],
        resource_class: str,
        record: InventoryRecord,
    ) -> ProviderGeneration:
        """Overwrite the inventory of the class.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryRecordNotFound: the provider has no inventory of it.
        """

        def overwrite(batch: StatementBatch, ids: Mapping[str, int]) -> None:
            class_id = ids[resource_class]
            if class_id not in {row.resource_class_id for row in present.values()}:
                raise exception.InventoryRecordNotFound(resource_class=resource_class)
            inventory_rows.overwrite(batch, {class_id: record}, provider.id)

        changed = _write(context, provider, [resource_class], overwrite)
        used = {name: row.used for name, row in present.items()}
        inventory_rows.warn_of_overcommitment(provider.uuid, used, {resource_class: record})
        return changed

    @classmethod
    def delete(
        cls, context: Context, provider: ProviderGeneration, present: Mapping[str, sa.Row[Any]], resource_class: str
    ) -> ProviderGeneration:
        """Delete the inventory of ``resource_class``.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryNotFound: there is none.
        :raises InventoryInUse: it has allocations.
        """

        def delete(batch: StatementBatch, ids: Mapping[str, int]) -> None:
            removed = {name: row for name, row in present.items() if row.resource_class_id == ids[resource_class]}
            if not removed:
                raise exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)
            _delete(batch, provider, removed)

        return _write(context, provider, [resource_class], delete)

    @classmethod
    def replace_all(
        cls,
        context: Context,
        provider: ProviderGeneration,
        present: Mapping[str, sa.Row[Any]],
        inventories: Mapping[str, InventoryRecord],
    ) -> ProviderGeneration:
        """Replace all inventories of the provider by ``inventories``.

        :param inventories: by class name.
        :raises ResourceClassNotFound: no such class.
        :raises InventoryInUse: a class that is not in ``inventories`` has allocations.
        """
        stored = {(provider.id, row.resource_class_id) for row in present.values()}

        def replace(batch: StatementBatch, ids: Mapping[str, int]) -> None:
            desired = {(provider.id, ids[name]): record for name, record in inventories.items()}
            removed = {
                name: row for name, row in present.items() if (provider.id, row.resource_class_id) not in desired
            }
            _delete(batch, provider, removed)
            overwritten = {key[1]: record for key, record in desired.items() if key in stored}
            if removed and overwritten and desired.keys() - stored:
                # One statement inserts and overwrites. It is used only here, because on some databases it uses up an id
                # for each row, even for a row that exists.
                inventory_rows.insert(batch, desired, stored)
            else:
                inventory_rows.overwrite(batch, overwritten, provider.id)
                inventory_rows.insert(batch, {key: desired[key] for key in desired.keys() - stored})

        changed = _write(context, provider, list(inventories), replace)
        used = {name: row.used for name, row in present.items()}
        inventory_rows.warn_of_overcommitment(provider.uuid, used, inventories)
        return changed


def _write(
    context: Context,
    provider: ProviderGeneration,
    classes: Sequence[str],
    add_statements: Callable[[StatementBatch, Mapping[str, int]], None],
) -> ProviderGeneration:
    """Write inventories of ``provider`` in one transaction, and return the changed provider.

    First take a shared lock on the custom ones of ``classes``. Then increment the generation, which locks the row of
    the provider. From then on no claim can add to ``used``, because it would have to lock that row first. A claim that
    only releases does not always lock it.

    :param add_statements: gets the batch and the ids of ``classes``.
    """

    def work(tx: sa.Connection) -> None:
        ids = context.db.resource_classes.lock_ids(tx, classes)
        batch = StatementBatch(tx)
        generation.increment_one(batch, provider)
        add_statements(batch, ids)
        batch.execute_final()

    context.db.write(work)
    return provider.incremented()


def _delete(batch: StatementBatch, provider: ProviderGeneration, removed: Mapping[str, sa.Row[Any]]) -> None:
    """Add the DELETE of inventories of ``provider``.

    :raises InventoryInUse: some have allocations; the error names all these classes, in order of class id.
    """
    in_use = [name for name, row in removed.items() if row.used > 0]
    if in_use:
        raise exception.InventoryInUse(resource_classes=', '.join(in_use), uuid=provider.uuid)
    inventory_rows.delete_unused(batch, [row.id for row in removed.values()], exception.ConcurrentProviderUpdate)


def read_inventories(context: Context, uuid: str) -> tuple[ProviderGeneration, dict[str, sa.Row[Any]]]:
    """Read a provider and the ``id``, ``resource_class_id`` and ``used`` of its inventories.

    :returns: the provider, and the rows of the inventories by class name, in order of class id.
    """
    provider, rows = base.read_with_provider(context, _TO_CHANGE, uuid)
    return provider, {row.resource_class: row for row in rows}


_TO_CHANGE = base.with_provider(
    JOINED,
    _classes.c.id,
    _inventories.c.id,
    _inventories.c.resource_class_id,
    _inventories.c.used,
    _classes.c.name.label('resource_class'),
)
