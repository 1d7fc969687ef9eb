"""Inventories: the amount of each resource class that a provider has, and its usage; reshapes of several providers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_log import log
from oslo_utils import timeutils

from placement import capacity, exception
from placement.claims import claim
from placement.claims.request import ConsumerClaim, NewInventories
from placement.db import generation, inventory_rows, sql, tables
from placement.db.batch import StatementBatch
from placement.db.generation import ProviderVersion
from placement.db.name_cache import NameCache
from placement.objects import base, provider_query
from placement.objects.base import Context

LOG = log.getLogger(__name__)

_inventories, _providers = tables.inventories, tables.resource_providers
_classes = tables.resource_classes

#: Defaults of the fields that a request may leave out. A write replaces all fields.
_DEFAULTS = {'reserved': 0, 'min_unit': 1, 'max_unit': capacity.MAX_INT32, 'step_size': 1, 'allocation_ratio': 1.0}


@base.register
class Inventory(base.Timestamped):
    """The inventory of one class on one provider. ``used`` is the sum of the allocations of all consumers."""

    VERSION = '1.1'

    resource_class: str
    total: int
    reserved: int
    min_unit: int
    max_unit: int
    step_size: int
    allocation_ratio: float
    used: int

    @classmethod
    def from_request(cls, resource_class: str, record: Mapping[str, Any]) -> Inventory:
        """Make an inventory of one in the body of a request, with defaults for fields that are missing.

        :param record: field name to value, valid by the JSON schema; ``total`` is required.
        """
        values = {name: record.get(name, default) for name, default in _DEFAULTS.items()}
        # Makes 0.0 of -0.0, whose sign not every database keeps.
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
    def get_with_provider(cls, context: Context, uuid: str, resource_class: str) -> tuple[ProviderVersion, Inventory]:
        """Read a provider and its inventory of ``resource_class``.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: no such provider.
        :raises InventoryNotFound: it has no inventory of the class, or there is no such class.
        """
        # This reads all inventories: one statement that also shows whether the provider exists.
        provider, rows = provider_query.read_with_parts(context, _WITH_PROVIDER, uuid)
        for row in rows:
            if row.resource_class == resource_class:
                return provider, cls.from_row(context, row)
        raise exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)

    @property
    def capacity(self) -> int:
        """The capacity, truncated towards zero (api-ref/capacity.md#capacity-that-is-shown)."""
        return capacity.capacity(self)

    def capacity_error(self, uuid: str, zero_allowed: bool) -> exception.InvalidInventoryCapacity | None:
        """Return why this inventory may not be stored (api-ref/capacity.md#capacity-that-may-be-stored), if so.

        :param uuid: of its provider, for the message.
        :param zero_allowed: whether the capacity may be 0, as it may since microversion 1.26.
        """
        if self.allocation_ratio < 0:
            rule = f'Bad inventory {self.resource_class} for resource provider {uuid}: allocation_ratio is below 0.'
        elif zero_allowed and self.capacity < 0:
            rule = 'The reserved value is greater than total.'
        elif not zero_allowed and self.capacity <= 0:
            rule = 'The reserved value is greater than or equal to total.'
        else:
            return None
        return exception.InvalidInventoryCapacity(resource_class=self.resource_class, uuid=uuid, rule=rule)


@base.register
class InventoryList(base.ObjectList[Inventory]):
    """The inventories of one provider, in order of class id: standard classes first."""

    VERSION = '1.1'

    @classmethod
    def get_with_provider(cls, context: Context, uuid: str) -> tuple[ProviderVersion, InventoryList]:
        """Read a provider and all its inventories.

        :param uuid: canonical.
        :raises ResourceProviderNotFound: no such provider.
        """
        provider, rows = provider_query.read_with_parts(context, _WITH_PROVIDER, uuid)
        return provider, cls.from_rows(context, rows)


def read_inventories(context: Context, uuid: str) -> tuple[ProviderVersion, list[sa.Row[Any]]]:
    """Read a provider and the columns of its inventories that a change needs: id, class, class id and ``used``."""
    return provider_query.read_with_parts(context, _TO_CHANGE, uuid)


# Each of the functions that follow locks the custom classes that it names, shared, and adds to `batch` the increment of
# the generation of the provider, which locks its row, and after that the changes. From then on no claim can add to
# `used`, as it would lock that row before; claims that only release do not lock it.
#
# `present` is what `read_inventories` returned along with the generation. Every change of inventories and every claim
# that adds to `used` increments the generation. So if the generation is still the same, `present` is still valid,
# except that `used` may be less by now.


def add(batch: StatementBatch, classes: NameCache, provider: ProviderVersion, record: Inventory) -> None:
    """Insert an inventory; see ``ResourceProvider.add_inventory``. If there is one it fails with DBDuplicateEntry."""
    class_id = classes.lock_ids(batch.tx, [record.resource_class])[record.resource_class]
    generation.increment_one(batch, provider)
    inventory_rows.insert(batch, {(provider.id, class_id): record})


def replace_all(
    batch: StatementBatch,
    classes: NameCache,
    provider: ProviderVersion,
    present_rows: Sequence[sa.Row[Any]],
    records: Sequence[Inventory],
) -> None:
    """Make ``records`` all inventories of the provider; see ``ResourceProvider.set_inventories``."""
    ids = classes.lock_ids(batch.tx, [record.resource_class for record in records])
    wanted = {ids[record.resource_class]: record for record in records}
    present = {row.resource_class_id: row for row in present_rows}
    removed = [row for class_id, row in present.items() if class_id not in wanted]
    kept = {class_id: record for class_id, record in wanted.items() if class_id in present}
    added = {class_id: record for class_id, record in wanted.items() if class_id not in present}
    generation.increment_one(batch, provider)
    _remove(batch, provider, removed)
    if removed and kept and added:
        # Inserts and overwrites in one statement. Only here, because on some databases each row takes a new id in it,
        # also a row that exists.
        otherwise = sql.upsert_clause(batch.tx, inventory_rows.KEY, _OVERWRITTEN)
        inventory_rows.insert(batch, _by_key(provider, wanted), otherwise)
    else:
        inventory_rows.overwrite(batch, kept, provider.id)
        inventory_rows.insert(batch, _by_key(provider, added))


def update(
    batch: StatementBatch,
    classes: NameCache,
    provider: ProviderVersion,
    present: Sequence[sa.Row[Any]],
    record: Inventory,
) -> None:
    """Overwrite one inventory; see ``ResourceProvider.update_inventory``."""
    class_id = classes.lock_ids(batch.tx, [record.resource_class])[record.resource_class]
    if _of_class(present, class_id) is None:
        raise exception.InventoryRecordNotFound(resource_class=record.resource_class)
    generation.increment_one(batch, provider)
    inventory_rows.overwrite(batch, {class_id: record}, provider.id)


def delete(
    batch: StatementBatch,
    classes: NameCache,
    provider: ProviderVersion,
    present: Sequence[sa.Row[Any]],
    resource_class: str,
) -> None:
    """Delete one inventory; see ``ResourceProvider.delete_inventory``."""
    class_id = classes.lock_ids(batch.tx, [resource_class])[resource_class]
    row = _of_class(present, class_id)
    if row is None:
        raise exception.InventoryNotFound(resource_class=resource_class, uuid=provider.uuid)
    generation.increment_one(batch, provider)
    _remove(batch, provider, [row])


def _remove(batch: StatementBatch, provider: ProviderVersion, rows: Sequence[sa.Row[Any]]) -> None:
    """Add the DELETE of the inventories ``rows`` of ``provider``.

    :raises InventoryInUse: some have allocations; names all these classes, in order of class id.
    """
    in_use = [row.resource_class for row in rows if row.used > 0]
    if in_use:
        raise exception.InventoryInUse(resource_classes=', '.join(in_use), uuid=provider.uuid)
    for chunk in sql.chunks([row.id for row in rows]):
        inventory_rows.delete_unused(batch, chunk, exception.ConcurrentProviderUpdate)


def _by_key(provider: ProviderVersion, records: Mapping[int, Inventory]) -> dict[tuple[int, int], Inventory]:
    return {(provider.id, class_id): record for class_id, record in records.items()}


def _of_class(rows: Iterable[sa.Row[Any]], class_id: int) -> sa.Row[Any] | None:
    return next((row for row in rows if row.resource_class_id == class_id), None)


#: The columns of the table to which an upsert gives a new value, each with the column of the row that it would insert.
_OVERWRITTEN = {**{name: name for name in inventory_rows.FIELDS}, 'updated_at': 'created_at'}

#: Providers, each with its inventories and their classes, for ``provider_query.statement``.
JOINED = _providers.outerjoin(_inventories, _inventories.c.resource_provider_id == _providers.c.id).outerjoin(
    _classes, _classes.c.id == _inventories.c.resource_class_id
)
# Only the columns that are needed, because the driver takes time for each.
_WITH_PROVIDER = provider_query.statement(
    JOINED,
    _classes.c.id,
    *(_inventories.c[name] for name in (*inventory_rows.FIELDS, 'used', 'created_at', 'updated_at')),
    _classes.c.name.label('resource_class'),
)
_TO_CHANGE = provider_query.statement(
    JOINED,
    _classes.c.id,
    _inventories.c.id,
    _inventories.c.resource_class_id,
    _inventories.c.used,
    _classes.c.name.label('resource_class'),
)


def warn_of_overcommitment(uuid: str, used: Mapping[str, int], records: Iterable[Inventory]) -> None:
    """Log which of ``records``, that were just written, have less capacity than is used.

    :param uuid: of their provider.
    :param used: by class name, 0 for those that are not there.
    """
    over = [
        f'{record.resource_class} ({used[record.resource_class]} used of {record.capacity})'
        for record in records
        if used.get(record.resource_class, 0) > max(record.capacity, 0)
    ]
    if over:
        LOG.warning('Resource provider %s is now over-committed: %s', uuid, ', '.join(over))


# Reshapes ------------------------------------------------------------------------------------------------


class ReshapedProvider(NamedTuple):
    """A provider, the generation that the caller sent for it, and all inventories that it is to have."""

    uuid: str
    generation: int
    inventories: Sequence[Inventory]


def reshape(context: Context, providers: Sequence[ReshapedProvider], claims: Sequence[ConsumerClaim]) -> None:
    """Replace the inventories of ``providers`` and the allocations of the consumers of ``claims``.

    Only the resulting state has to be valid (api-ref/reshaper.md#meaning). On any failure nothing changes.

    :param providers: at least one; each provider once, in the order of the request, as are ``claims``.
    :raises PlacementError: as for ``claims.claim.reshape``.
    """
    used = claim.reshape(context.db, [_new_inventories(provider) for provider in providers], claims)
    for provider in providers:
        warn_of_overcommitment(provider.uuid, used[provider.uuid], provider.inventories)


def _new_inventories(provider: ReshapedProvider) -> NewInventories:
    # A reshape came after microversion 1.26, which allowed a capacity of 0.
    errors = (record.capacity_error(provider.uuid, zero_allowed=True) for record in provider.inventories)
    records = {record.resource_class: record for record in provider.inventories}
    return NewInventories(provider.uuid, provider.generation, records, next(filter(None, errors), None))
