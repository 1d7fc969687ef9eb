"""Counts the inventories of one resource class that cannot allocate an amount, by reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.cache.partition import Partition

#: The inventories of one class in one partition, and which of them are counted.
Entry = tuple[Partition, InventoryColumns, Flags]
#: Maximum number of different values of max_unit, min_unit or step_size to list. For more values the range is given.
_MAX_VALUES = 3


@dataclass(frozen=True)
class Shortfall:
    """Providers that satisfy the other rules and have inventory of the class, but cannot allocate the amount.

    ``providers`` counts them, and ``kind`` is the reason. For ``max_unit``, ``min_unit`` and ``step_size`` all have
    this ``value``, or if ``max_value`` is set, values from ``value`` to ``max_value``. For ``total_capacity`` and
    ``free_capacity``, ``value`` is the largest capacity or free capacity of any of them. ``combined`` means that they
    can allocate the amount, but not in addition to what other parts of the request need from them.
    """

    resource_class: str
    kind: str
    value: int
    requested: int
    providers: int
    max_value: int | None = None


def violations(inventories: InventoryColumns, amount: int) -> dict[str, Flags]:
    """Return which inventories have each kind of ``Shortfall`` except ``combined``. Only the first kind counts."""
    violated = inventories.first_violations(amount)
    too_small = inventories.capacity_limit < amount
    return {
        'max_unit': violated.above_max_unit,
        'min_unit': violated.below_min_unit,
        'step_size': violated.wrong_step,
        'total_capacity': violated.no_capacity & too_small,
        'free_capacity': violated.no_capacity & ~too_small,
    }


def shortfalls(resource_class: str, amount: int, entries: Sequence[Entry]) -> list[Shortfall]:
    """Count inventories of a class by the first reason for which they cannot allocate an amount."""
    limits_by_kind: defaultdict[str, list[Integers]] = defaultdict(list)
    sufficient = 0
    for _, columns, counted in entries:
        limits = {
            'max_unit': columns.max_unit,
            'min_unit': columns.min_unit,
            'step_size': columns.step_size,
            'total_capacity': columns.capacity_limit,
            'free_capacity': columns.capacity_limit - columns.used,
        }
        sufficient += int(counted.sum())
        for kind, violated in violations(columns, amount).items():
            limits_by_kind[kind].append(limits[kind][counted & violated])
            sufficient -= len(limits_by_kind[kind][-1])
    counts = [Shortfall(resource_class, 'combined', amount, amount, sufficient)] if sufficient else []
    for kind, parts in limits_by_kind.items():
        values, numbers = (column.tolist() for column in np.unique(np.concatenate(parts), return_counts=True))
        if kind in {'total_capacity', 'free_capacity'} and values:
            counts.append(Shortfall(resource_class, kind, values[-1], amount, sum(numbers)))
        elif len(values) > _MAX_VALUES:
            counts.append(Shortfall(resource_class, kind, values[0], amount, sum(numbers), max_value=values[-1]))
        else:
            counts += [
                Shortfall(resource_class, kind, value, amount, number)
                for value, number in zip(values, numbers, strict=True)
            ]
    return counts
