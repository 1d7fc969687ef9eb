"""Replaces the inventories of several providers within the transaction of a claim: the other half of a reshape."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import sqlalchemy as sa

from placement import exception
from placement.claims.request import NewInventories
from placement.claims.usage import InventoryKey
from placement.db import change_log, generation, inventory_rows, sql, tables
from placement.db.batch import StatementBatch

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


class _Judged(NamedTuple):
    """An inventory by which an allocation of a reshape is judged: the new record, and what is used of it so far."""

    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int


class _Provider(NamedTuple):
    uuid: str
    id: int
    generation: int


class InventoryReplacement:
    """The new inventories of the providers of one reshape, in one attempt of its transaction. Made by ``read``.

    :param wanted: in the order of the request.
    :param providers: the providers of ``wanted``, by uuid, each at the generation that was sent for it.
    """

    def __init__(self, wanted: Sequence[NewInventories], providers: Mapping[str, _Provider]) -> None:
        self._wanted = wanted
        self._providers = providers
        self._class_ids: Mapping[str, int] = {}
        self._records: dict[InventoryKey, inventory_rows.Record] = {}
        self._present: dict[InventoryKey, sa.Row[Any]] = {}
        self._used: dict[InventoryKey, int] = {}

    @classmethod
    def read(cls, tx: sa.Connection, wanted: Sequence[NewInventories]) -> InventoryReplacement:
        """Read the providers, and judge one after the other.

        :raises ResourceProviderNotFound, ReshapeGenerationConflict, InvalidInventoryCapacity: for the first provider
            that does not exist, has another generation, or has a record that may not be stored.
        """
        providers = _read(tx, wanted)
        for one in wanted:
            found = providers.get(one.provider_uuid)
            if found is None:
                raise exception.ResourceProviderNotFound(uuid=one.provider_uuid)
            if found.generation != one.generation:
                raise exception.ReshapeGenerationConflict(
                    uuid=found.uuid, actual=found.generation, given=one.generation
                )
            if one.invalid is not None:
                raise one.invalid
        return cls(wanted, providers)

    @property
    def class_names(self) -> list[str]:
        """The classes of the new inventories, in the order of the request."""
        return list(dict.fromkeys(name for one in self._wanted for name in one.records))

    @property
    def provider_ids(self) -> set[int]:
        """The ids of the providers whose inventories are replaced."""
        return {provider.id for provider in self._providers.values()}

    def resolve(self, class_ids: Mapping[str, int]) -> None:
        """Set the ids of ``class_names``. To be called before the methods that follow."""
        self._class_ids = class_ids
        self._records = {
            self._key_of(one, name): record for one in self._wanted for name, record in one.records.items()
        }

    def _key_of(self, one: NewInventories, class_name: str) -> InventoryKey:
        return self._providers[one.provider_uuid].id, self._class_ids[class_name]

    def increments(self, moved: set[int]) -> dict[int, generation.Increment]:
        """The changes of generations, by provider id (api-ref/reshaper.md#generations).

        :param moved: the ids of the providers whose generation the allocations of the request move, which may be
            others than those of the inventories.
        """
        increments = {id_: generation.Increment(1) for id_ in moved}
        for one in self._wanted:
            id_ = self._providers[one.provider_uuid].id
            amount = (2 if one.records else 1) + (id_ in moved)
            increments[id_] = generation.Increment(amount, one.generation)
        return increments

    def write(self, batch: StatementBatch, delta: Mapping[InventoryKey, int]) -> None:
        """Lock the inventories, then add the statements that overwrite those that are kept and insert new ones.

        :param batch: is run before, so that the generations are compared and the providers locked.
        :param delta: by how much the request changes the usage of inventories, which may be of other providers, too.
        """
        batch.execute()
        mine = self.provider_ids
        touched = sorted(mine.union(provider_id for provider_id, _class_id in delta))
        for chunk in sql.chunks(touched):
            rows = batch.tx.execute(_LOCK, {'providers': chunk})
            self._present.update((_key(row), row) for row in rows if row.resource_provider_id in mine)
        kept = self._records.keys() & self._present
        inventory_rows.overwrite(batch, {self._present[key].id: self._records[key] for key in kept})
        inventory_rows.insert(batch, {key: self._records[key] for key in self._records.keys() - kept})
        self._used = {key: row.used + delta.get(key, 0) for key, row in self._present.items()}
        change_log.record_providers(batch.tx, mine)

    def remove(self, batch: StatementBatch, refuse: Callable[[], NoReturn]) -> None:
        """Add the statements that delete the inventories that are not wanted any more.

        :param batch: is run before, when the usage has been updated: on MySQL the row counts are checked after all
            statements have run.
        :param refuse: called when some are in use.
        """
        batch.execute()
        removed = [row.id for key, row in self._present.items() if key not in self._records]

        def check(expected: int, count: int) -> None:
            if count != expected:
                refuse()

        for chunk in sql.chunks(removed):
            unused = f'id IN ({sql.placeholders(len(chunk))}) AND used = 0'
            text = f'DELETE FROM placement_inventories WHERE {unused}'  # noqa: S608
            batch.add(text, *chunk, check=functools.partial(check, len(chunk)))

    @property
    def used(self) -> dict[str, dict[str, int]]:
        """What is used after the reshape of the new inventories, by provider uuid and class name."""
        return {
            one.provider_uuid: {name: self._used.get(self._key_of(one, name), 0) for name in one.records}
            for one in self._wanted
        }

    # Why it was rejected: in a transaction that only reads, after the rollback -----------------------------------

    def is_current(self, tx: sa.Connection) -> bool:
        """Whether the providers still exist and have the generations that were sent."""
        return _read(tx, self._wanted) == self._providers

    def union(self, stored: Mapping[InventoryKey, Any]) -> dict[InventoryKey, Any]:
        """The inventories by which the allocations are judged: new ones, and the ``stored`` ones that are not replaced.

        The latter include those that the request removes.
        """
        new = {
            key: _Judged._make([*inventory_rows.values(record), stored[key].used if key in stored else 0])
            for key, record in self._records.items()
        }
        return {**stored, **new}

    def in_use(self, tx: sa.Connection, delta: Mapping[InventoryKey, int]) -> exception.InventoryInUse | None:
        """The error for the first provider with a removed class of which something would be allocated.

        :param delta: by how much the request changes the usage.
        """
        classes: dict[int, list[str]] = {}
        for provider_id, name in self._removed_in_use(tx, delta):
            classes.setdefault(provider_id, []).append(name)
        for one in self._wanted:
            if names := classes.get(self._providers[one.provider_uuid].id):
                return exception.InventoryInUse(resource_classes=', '.join(names), uuid=one.provider_uuid)
        return None

    def _removed_in_use(self, tx: sa.Connection, delta: Mapping[InventoryKey, int]) -> Iterator[tuple[int, str]]:
        for chunk in sql.chunks(sorted(self.provider_ids)):
            for row in tx.execute(_IN_USE, {'providers': chunk}):
                if _key(row) not in self._records and row.used + delta.get(_key(row), 0) > 0:
                    yield row.resource_provider_id, row.name


def _read(tx: sa.Connection, wanted: Sequence[NewInventories]) -> dict[str, _Provider]:
    rows: list[Any] = []
    for chunk in sql.chunks([one.provider_uuid for one in wanted]):
        which = f'uuid IN ({sql.placeholders(len(chunk))})'
        text = f'SELECT uuid, id, generation FROM placement_resource_providers WHERE {which}'  # noqa: S608
        rows += sql.run(tx, text, *chunk)
    return {row.uuid: _Provider(*row) for row in rows}


def _key(row: sa.Row[Any]) -> InventoryKey:
    return row.resource_provider_id, row.resource_class_id
