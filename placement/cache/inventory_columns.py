"""The inventories of one resource class in one partition, as numpy columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from placement import capacity
from placement.capacity import InventoryRecord

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: The maximum of capacity limits and amounts, far above every number in the database. Larger ones are cut to it.
_MAX_CAPACITY = 2**61

#: Inventories as an array, with the fields of ``InventoryRecord``.
_RECORDS = np.dtype([(name, 'f8' if name == 'allocation_ratio' else 'i8') for name in InventoryRecord._fields])

#: A position in a partition, and the inventory of the provider there.
PositionedInventory = tuple[int, InventoryRecord]


@dataclass(frozen=True, eq=False)
class InventoryColumns:
    """Columns with one item for each provider of the partition that has inventory of the class, by position."""

    #: The positions of these providers in the partition.
    positions: Integers
    # These two are for reports.
    total: Integers
    reserved: Integers
    #: As in ``placement.capacity``, but rounded down, because it is compared only with integers.
    capacity_limit: Integers
    used: Integers
    min_unit: Integers
    max_unit: Integers
    #: ``_MAX_CAPACITY`` for one below 1, because no amount is a multiple of it.
    step_size: Integers

    @classmethod
    def build(cls, entries: Sequence[PositionedInventory]) -> InventoryColumns:
        """Make the columns of ``entries``, which are in order of position."""
        records = np.array([record for _, record in entries], _RECORDS)
        records['step_size'][records['step_size'] < 1] = _MAX_CAPACITY
        columns = InventoryRecord._make(records[name].copy() for name in InventoryRecord._fields)
        limits = np.clip(np.floor(capacity.capacity_limit(columns)), -_MAX_CAPACITY, _MAX_CAPACITY)
        return cls(
            positions=np.array([position for position, _ in entries], np.int64),
            capacity_limit=limits.astype(np.int64),
            **{name: column for name, column in columns._asdict().items() if name != 'allocation_ratio'},
        )

    @classmethod
    def concatenated(cls, parts: Sequence[InventoryColumns]) -> InventoryColumns:
        """Return the items of several columns, in this order."""
        return cls(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)))

    @property
    def unused(self) -> InventoryColumns:
        """The same inventories without usage."""
        return replace(self, used=np.zeros_like(self.used))

    @functools.cached_property
    def max_increase(self) -> Integers:
        """The largest amount of each inventory that one candidate may use."""
        return capacity.max_increase(self, self.capacity_limit, np.minimum)

    @functools.cached_property
    def trivial_units(self) -> bool:
        """Whether every amount of at least 1 satisfies every ``min_unit`` and ``step_size``."""
        return bool((self.min_unit <= 1).all() and (self.step_size == 1).all())

    @property
    def max_allocatable(self) -> Integers:
        """The largest amount of each inventory that one new allocation may have; 0 if none is possible."""
        return capacity.max_allocatable(self, np.maximum(self.max_increase, 0))

    def positions_with_capacity(self, amount: int) -> Integers:
        """Return the positions of the providers that can allocate ``amount``, an integer of 1 or more and any size."""
        if amount >= _MAX_CAPACITY:
            return self.positions[:0]
        fits = self.max_increase >= amount
        if not self.trivial_units:
            fits &= capacity.satisfies_unit_constraints(self, amount, amount, amount)
        return self.positions[fits]

    def selected(self, items: Flags | Integers) -> InventoryColumns:
        """Return only the items that are flagged, or at these indexes in their order."""
        return InventoryColumns(*(getattr(self, field.name)[items] for field in fields(self)))

    def with_used(self, used: Mapping[int, int]) -> InventoryColumns:
        """Return the columns with other usage.

        :param used: the new usage by position. There is an inventory at each.
        """
        column = self.used.copy()
        column[self.positions.searchsorted(list(used))] = list(used.values())
        return replace(self, used=column)

    def rearranged(self, new_positions: Integers, added: Sequence[PositionedInventory]) -> InventoryColumns | None:
        """Return the columns after providers were moved, added or removed; None if no inventory is left.

        :param new_positions: for each old position the new one, or -1 if the provider was removed or read again.
        :param added: the entries of providers that were added or read again, in order of position.
        """
        moved = replace(self, positions=new_positions[self.positions])
        stays = moved.positions >= 0
        if not added and not stays.any():
            return None
        new = InventoryColumns.build(added)
        together = InventoryColumns.concatenated([moved.selected(stays), new])
        return together.selected(np.argsort(together.positions, kind='stable'))
