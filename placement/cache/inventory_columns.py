"""The inventories of one resource class in one partition, as numpy columns."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray

from placement import capacity
from placement.candidates.providers import InventoryRecord
from placement.candidates.requirements import CAPACITY_REASONS, Reason

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

#: Larger capacity limits and amounts are replaced by this one, far above all that fits the database.
_MAX_CAPACITY = 2**61

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)

#: A position in a partition, and the inventory of the provider there.
Entry = tuple[int, InventoryRecord]


@dataclass(frozen=True, eq=False)
class InventoryColumns:
    """Columns with one item for each provider of the partition that has inventory of the class, in order of position.

    ``positions`` are those in the partition. ``total`` and ``reserved`` are for reports. ``capacity_limit`` is that of
    ``placement.capacity``, rounded down, which changes nothing, as only integers are compared with it. ``headroom`` is
    the maximum that one candidate may allocate. ``trivial_units`` is true if every amount of at least 1 satisfies every
    ``min_unit`` and ``step_size``.
    """

    positions: Integers
    total: Integers
    reserved: Integers
    capacity_limit: Integers
    used: Integers
    min_unit: Integers
    max_unit: Integers
    step_size: Integers
    headroom: Integers
    trivial_units: bool

    @classmethod
    def of(cls, entries: Sequence[Entry]) -> InventoryColumns:
        """Make the columns of ``entries``, which are in order of position."""
        positions = _integers(position for position, _ in entries)
        have = [one for _, one in entries]
        sizes = SimpleNamespace(
            total=_integers(one.total for one in have),
            reserved=_integers(one.reserved for one in have),
            allocation_ratio=np.array([one.allocation_ratio for one in have], dtype=np.float64),
        )
        limits = np.floor(capacity.capacity_limit(sizes))
        return cls._complete(
            positions=positions,
            total=sizes.total,
            reserved=sizes.reserved,
            capacity_limit=np.clip(limits, -_MAX_CAPACITY, _MAX_CAPACITY).astype(np.int64),
            used=_integers(one.used for one in have),
            min_unit=_integers(one.min_unit for one in have),
            max_unit=_integers(one.max_unit for one in have),
            step_size=_integers(one.step_size for one in have),
        )

    @classmethod
    def _complete(cls, **columns: Integers) -> InventoryColumns:
        trivial_units = bool((columns['min_unit'] <= 1).all() and (columns['step_size'] == 1).all())
        inventory = SimpleNamespace(**columns)
        return cls(
            **columns,
            headroom=capacity.headroom(inventory, inventory.capacity_limit, np.minimum),
            trivial_units=trivial_units,
        )

    @property
    def max_allocatable(self) -> Integers:
        """The largest amount of one new allocation from each inventory; 0 if none is possible."""
        # A database that was not repaired may have steps of 0.
        units = SimpleNamespace(min_unit=self.min_unit, step_size=np.maximum(self.step_size, 1))
        amounts: Integers = capacity.max_allocatable(units, np.maximum(self.headroom, 0))
        return amounts

    def positions_with_capacity(self, amount: int) -> Integers:
        """Return the positions of the providers that can allocate ``amount`` (1 or more, also beyond 64 bits)."""
        if amount >= _MAX_CAPACITY:
            return self.positions[:0]
        fits = self.headroom >= amount
        if not self.trivial_units:
            fits &= capacity.satisfies_unit_constraints(self, amount, amount, amount)
        positions: Integers = self.positions[fits]
        return positions

    def violations(self, amount: int) -> dict[Reason, Flags]:
        """Return which inventories cannot allocate ``amount``, by the first part of the capacity rule that it violates.

        :param amount: 1 or more, also beyond 64 bits.
        :returns: for each reason, a flag for each item.
        """
        amount = min(amount, _MAX_CAPACITY)
        violated = dict(zip(CAPACITY_REASONS, capacity.violations(self, self.capacity_limit, amount), strict=True))
        remaining = np.ones(len(self.positions), np.bool_)
        for reason, broken in violated.items():
            violated[reason] = remaining & broken
            remaining &= ~broken
        return violated

    def with_used(self, positions: Integers, used: Integers) -> InventoryColumns:
        """Return the columns with other usage.

        :param positions: of the inventories that change.
        :param used: an item for each of these.
        :raises KeyError: there is no inventory at one of ``positions``.
        """
        at = find_sorted(self.positions, positions)
        column = self.used.copy()
        column[at] = used
        changed = replace(self, used=column)
        return replace(changed, headroom=capacity.headroom(changed, self.capacity_limit, np.minimum))

    def rearranged(self, new_positions: Integers, added: Sequence[Entry]) -> InventoryColumns | None:
        """Return the columns of a partition in which providers were moved, added or removed; None if nothing is left.

        :param new_positions: for each old position the new one, -1 if the provider was removed or read again.
        :param added: the entries at new positions that no old one moves to, in order of position.
        """
        to = new_positions[self.positions]
        kept = to >= 0
        if not added and not kept.any():
            return None
        new = InventoryColumns.of(added)
        positions = np.concatenate([to[kept], new.positions])
        order = np.argsort(positions, kind='stable')
        columns = {
            name: np.concatenate([getattr(self, name)[kept], getattr(new, name)])[order]
            for name in ('total', 'reserved', 'capacity_limit', 'used', 'min_unit', 'max_unit', 'step_size')
        }
        return self._complete(positions=positions[order], **columns)


@dataclass(frozen=True, eq=False)
class UsageColumns:
    """The changes that claims made to providers: generation, ``modified`` of ``Provider`` and usage, as columns.

    ``ids``, ``generations`` and ``modified`` have an item for each provider; ``modified`` is in microseconds since
    1970, below 0 if no time is recorded. ``used`` has for each class name the indexes of its providers in ``ids``, and
    as many amounts.
    """

    ids: Integers
    generations: Integers
    modified: Integers
    used: Mapping[str, tuple[Integers, Integers]]

    @classmethod
    def build(cls, providers: Integers, inventories: Integers, classes: Mapping[int, str]) -> UsageColumns:
        """Make the columns.

        :param providers: a row for each provider, in any order: id, generation, time of the last update.
        :param inventories: a row for each inventory, in any order: the ids of its provider and class, usage.
        :param classes: the names of the classes by id.
        :raises KeyError: the provider of an inventory is not in ``providers``, or its class not in ``classes``.
        """
        ids, generations, modified = providers[np.argsort(providers[:, 0])].T
        owners = find_sorted(ids, inventories[:, 0])
        used = {}
        for class_id in np.unique(inventories[:, 1]).tolist():
            own = inventories[:, 1] == class_id
            used[classes[class_id]] = owners[own], inventories[own, 2]
        return cls(ids, generations, modified, used)

    @property
    def modified_times(self) -> list[dt.datetime | None]:
        """The items of ``modified`` as aware times."""
        # Many are equal, as one transaction or second changes many providers.
        times, indexes = np.unique(self.modified, return_inverse=True)
        known = [_EPOCH + dt.timedelta(microseconds=one) if one >= 0 else None for one in times.tolist()]
        return [known[index] for index in indexes.tolist()]

    def select(self, which: Flags) -> UsageColumns:
        """Return the columns of some of the providers.

        :param which: a flag for each provider.
        """
        indexes = np.cumsum(which) - 1
        used = {}
        for name, (owners, amounts) in self.used.items():
            own = which[owners]
            if own.any():
                used[name] = indexes[owners[own]], amounts[own]
        return UsageColumns(self.ids[which], self.generations[which], self.modified[which], used)


def find_sorted(values: Integers, wanted: Integers) -> Integers:
    """Return the indexes of ``wanted`` in ``values``, which are ascending.

    :raises KeyError: one of ``wanted`` is not there.
    """
    at = np.searchsorted(values, wanted)
    if len(at) and (at.max() == len(values) or (values[at] != wanted).any()):
        raise KeyError(sorted(set(wanted.tolist()) - set(values.tolist())))
    return at


def _integers(values: Iterable[int]) -> Integers:
    return np.fromiter(values, dtype=np.int64)
