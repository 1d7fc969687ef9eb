"""Inventories: the amount of each resource class that a provider has, and its usage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_log import log

from placement import exception
from placement.capacity import FIELDS, InventoryRecord
from placement.db import generation, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderGeneration
from placement.db.inventories import InventoryReplacement
from placement.objects import base
from placement.objects.base import Context

LOG = log.getLogger(__name__)

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
        try:
            return cls.replace(context, provider, [], {resource_class: record})
        except db_exc.DBDuplicateEntry as error:
            raise exception.InventoryExists(resource_class=resource_class, uuid=provider.uuid) from error

    @classmethod
    def update(
        cls,
        context: Context,
        provider: ProviderGeneration,
        present: Sequence[sa.Row[Any]],
        resource_class: str,
        record: InventoryRecord,
    ) -> ProviderGeneration:
        """Overwrite the inventory of the class.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryRecordNotFound: the provider has no inventory of it.
        """
        missing = exception.InventoryRecordNotFound(resource_class=resource_class)
        return cls.replace(context, provider, present, {resource_class: record}, resource_class, missing)

    @classmethod
    def delete(
        cls, context: Context, provider: ProviderGeneration, present: Sequence[sa.Row[Any]], resource_class: str
    ) -> ProviderGeneration:
        """Delete the inventory of ``resource_class``.

        :raises ResourceClassNotFound: no such class.
        :raises InventoryNotFound: there is none.
        :raises InventoryInUse: it has allocations.
        """
        missing = exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)
        return cls.replace(context, provider, present, {}, resource_class, missing)

    @classmethod
    def replace(
        cls,
        context: Context,
        provider: ProviderGeneration,
        present: Sequence[sa.Row[Any]],
        inventories: Mapping[str, InventoryRecord],
        resource_class: str | None = None,
        missing: exception.PlacementError | None = None,
    ) -> ProviderGeneration:
        """Replace all inventories of the provider, or only the one of ``resource_class``, by ``inventories``.

        First take a shared lock on custom classes. Then increment the generation, which locks the row of the provider.
        From then on no claim can add to ``used``, because it would have to lock that row first. A claim that only
        releases does not always lock it.

        :param inventories: by class name.
        :param missing: the exception to raise if there is no inventory of ``resource_class``.
        :raises ResourceClassNotFound: no such class.
        :raises InventoryInUse: some of those to be deleted have allocations; the error names all their classes, in
            order of class id.
        """

        def work(tx: sa.Connection) -> None:
            names = list(inventories) if resource_class is None else [resource_class]
            ids = context.db.resource_classes.lock_ids(tx, names)
            replacement = InventoryReplacement(
                {
                    (provider.id, row.resource_class_id): row
                    for row in present
                    if resource_class is None or row.resource_class_id == ids[resource_class]
                },
                {(provider.id, ids[name]): record for name, record in inventories.items()},
            )
            if missing and not replacement.present:
                raise missing
            in_use = [row.resource_class for row in replacement.removed if row.used > 0]
            if in_use:
                raise exception.InventoryInUse(resource_classes=', '.join(in_use), uuid=provider.uuid)
            batch = StatementBatch(tx)
            generation.increment_one(batch, provider)
            replacement.add_deletions(batch, exception.ConcurrentProviderUpdate)
            replacement.add_writes(batch)
            batch.defer()

        context.db.write(work)
        _warn_of_overcommitment(provider.uuid, present, inventories)
        return provider.incremented()


def _warn_of_overcommitment(
    uuid: str, present: Sequence[sa.Row[Any]], inventories: Mapping[str, InventoryRecord]
) -> None:
    """Log which of the inventories that were written have less capacity than usage."""
    over = []
    for row in present:
        record = inventories.get(row.resource_class)
        if record is not None and row.used > max(record.capacity, 0):
            over.append(f'{row.resource_class} ({row.used} used of {record.capacity})')
    if over:
        LOG.warning('Resource provider %s is now over-committed: %s', uuid, ', '.join(over))


def read_inventories(context: Context, uuid: str) -> tuple[ProviderGeneration, list[sa.Row[Any]]]:
    """Read a provider and its inventories, in order of class id, with the columns of ``_TO_CHANGE``."""
    return base.read_with_provider(context, _TO_CHANGE, uuid)


_TO_CHANGE = base.with_provider(
    JOINED,
    _classes.c.id,
    _inventories.c.id,
    _inventories.c.resource_class_id,
    _inventories.c.used,
    _classes.c.name.label('resource_class'),
)
