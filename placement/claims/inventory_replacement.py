"""Replaces the inventories of several providers within the transaction of a claim: the other half of a reshape."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.claims.request import NewInventories
from placement.claims.usage import InventoryKey, UsageDelta
from placement.db import change_log, generation, inventory_rows, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderVersion

_inventories, _classes = tables.inventories, tables.resource_classes

_INDEX = 'FORCE INDEX (uniq_inventories0resource_provider_resource_class)'
#: Locks rows in the order in which claims lock them.
_LOCK: sa.Select[Any] = (
    sa.select(
        _inventories.c.id, _inventories.c.resource_provider_id, _inventories.c.resource_class_id, _inventories.c.used
    )
    .where(_inventories.c.resource_provider_id.in_(sa.bindparam('providers', expanding=True)))
    .order_by(_inventories.c.resource_provider_id, _inventories.c.resource_class_id)
    .with_hint(_inventories, _INDEX, 'mysql')
    .with_hint(_inventories, _INDEX, 'mariadb')
    .with_for_update(key_share=True)
)
_IN_USE: sa.Select[Any] = (
    sa.select(
        _inventories.c.resource_provider_id, _inventories.c.resource_class_id, _inventories.c.used, _classes.c.name
    )
    .join(_classes, _classes.c.id == _inventories.c.resource_class_id)
    .where(_inventories.c.resource_provider_id.in_(sa.bindparam('providers', expanding=True)))
    .order_by(_inventories.c.resource_class_id)
)


class _JudgedInventory(NamedTuple):
    """A new inventory against which an allocation of a reshape is checked, with its usage so far."""

    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int


class InventoryReplacement:
    """The new inventories of the providers of one reshape, in one attempt of its transaction. Made by ``begin``.

    :param requested: in the order of the request.
    :param providers: the providers of ``requested``, by uuid, each at the generation that was sent for it.
    """

    def __init__(self, requested: Sequence[NewInventories], providers: Mapping[str, ProviderVersion]) -> None:
        self._requested = requested
        self._providers = providers
        #: The ids of the providers whose inventories are replaced.
        self.provider_ids = {provider.id for provider in providers.values()}
        #: The classes of the new inventories, in the order of the request.
        self.class_names = list(dict.fromkeys(name for one in requested for name in one.records))
        self._class_ids: Mapping[str, int] = {}
        self._records: dict[InventoryKey, inventory_rows.Record] = {}
        self._stored: dict[InventoryKey, sa.Row[Any]] = {}
        self._used: dict[InventoryKey, int] = {}

    @classmethod
    def begin(cls, tx: sa.Connection, requested: Sequence[NewInventories]) -> InventoryReplacement:
        """Read the providers, and check one after the other.

        :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: for the first provider
            that does not exist, has another generation, or has a record that may not be stored.
        """
        providers = _read_providers(tx, requested)
        for one in requested:
            found = providers.get(one.provider_uuid)
            if found is None:
                raise exception.ResourceProviderNotFound(uuid=one.provider_uuid)
            if found.generation != one.generation:
                raise exception.ReshapeGenerationConflict(
                    uuid=found.uuid, actual=found.generation, given=one.generation
                )
            if one.invalid is not None:
                raise one.invalid
        return cls(requested, providers)

    def resolve(self, class_ids: Mapping[str, int]) -> None:
        """Set the ids of ``class_names``. To be called before the methods that follow."""
        self._class_ids = class_ids
        self._records = {
            self._key_of(one, name): record for one in self._requested for name, record in one.records.items()
        }

    def _key_of(self, one: NewInventories, class_name: str) -> InventoryKey:
        return self._providers[one.provider_uuid].id, self._class_ids[class_name]

    def increments(self, changed: Set[int]) -> dict[int, generation.Increment]:
        """Return the changes of generations, by provider id (api-ref/reshaper.md#generations).

        :param changed: the ids of the providers whose generation the allocations of the request increment, which may
            be others than those of the inventories.
        """
        increments = {id_: generation.Increment(1) for id_ in changed}
        for one in self._requested:
            id_ = self._providers[one.provider_uuid].id
            amount = (2 if one.records else 1) + (id_ in changed)
            increments[id_] = generation.Increment(amount, one.generation)
        return increments

    def lock(self, tx: sa.Connection, changes: Sequence[UsageDelta]) -> None:
        """Lock, and read, all inventories of the providers, and of those whose usage is among ``changes``."""
        provider_ids = self.provider_ids.union(change.inventory[0] for change in changes)
        for chunk in sql.chunks(sorted(provider_ids)):
            rows = tx.execute(_LOCK, {'providers': chunk})
            self._stored.update((_key(row), row) for row in rows if row.resource_provider_id in self.provider_ids)
        delta = {change.inventory: change.delta for change in changes}
        self._used = {key: row.used + delta.get(key, 0) for key, row in self._stored.items()}

    def write(self, batch: StatementBatch) -> None:
        """Add the statements that overwrite the inventories that are kept, and insert the new ones."""
        kept = self._records.keys() & self._stored
        inventory_rows.overwrite(batch, {self._stored[key].id: self._records[key] for key in kept})
        inventory_rows.insert(batch, {key: self._records[key] for key in self._records.keys() - kept})
        change_log.record_providers(batch.tx, self.provider_ids)

    def delete_rest(self, batch: StatementBatch, rejection: Callable[[], Exception]) -> None:
        """Add the statements that delete the inventories which the request removes.

        :param rejection: makes the exception to raise when some are in use.
        """
        removed = [row.id for key, row in self._stored.items() if key not in self._records]
        for chunk in sql.chunks(removed):
            inventory_rows.delete_unused(batch, chunk, rejection)

    @property
    def used(self) -> dict[str, dict[str, int]]:
        """The usage of the new inventories after the reshape, by provider uuid and class name."""
        return {
            one.provider_uuid: {name: self._used.get(self._key_of(one, name), 0) for name in one.records}
            for one in self._requested
        }

    # For ``diagnosis``, in a transaction that only reads, after the rollback -------------------------------------

    def is_current(self, tx: sa.Connection) -> bool:
        """Return whether the providers still exist and have the generations that were sent."""
        return _read_providers(tx, self._requested) == self._providers

    def applied_to(self, stored: Mapping[InventoryKey, Any]) -> dict[InventoryKey, Any]:
        """Return the inventories against which allocations are checked: ``stored`` ones, overwritten by the new ones.

        These include the inventories that the request removes.
        """
        new = {
            key: _JudgedInventory._make([*inventory_rows.values(record), stored[key].used if key in stored else 0])
            for key, record in self._records.items()
        }
        return {**stored, **new}

    def in_use(self, tx: sa.Connection, changes: Sequence[UsageDelta]) -> exception.InventoryInUse | None:
        """Return the error for the first provider with a removed class that would have allocations."""
        delta = {change.inventory: change.delta for change in changes}
        classes: dict[int, list[str]] = {}
        for chunk in sql.chunks(sorted(self.provider_ids)):
            for row in tx.execute(_IN_USE, {'providers': chunk}):
                if _key(row) not in self._records and row.used + delta.get(_key(row), 0) > 0:
                    classes.setdefault(row.resource_provider_id, []).append(row.name)
        for one in self._requested:
            if names := classes.get(self._providers[one.provider_uuid].id):
                return exception.InventoryInUse(resource_classes=', '.join(names), uuid=one.provider_uuid)
        return None


def _read_providers(tx: sa.Connection, requested: Sequence[NewInventories]) -> dict[str, ProviderVersion]:
    rows: list[Any] = []
    for chunk in sql.chunks([one.provider_uuid for one in requested]):
        which = f'uuid IN ({sql.placeholders(len(chunk))})'
        text = f'SELECT id, uuid, generation FROM placement_resource_providers WHERE {which}'  # noqa: S608
        rows += sql.run(tx, text, *chunk)
    return {row.uuid: ProviderVersion(*row) for row in rows}


def _key(row: sa.Row[Any]) -> InventoryKey:
    return row.resource_provider_id, row.resource_class_id
