"""Counts the inventories of one resource class that cannot allocate an amount, by the reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement import units
from placement.cache.inventory_columns import Flags, Integers, InventoryColumns
from placement.candidates.requirements import Reason

#: The reasons, in the order in which they apply, each with the words after a number of inventories.
KINDS = {
    'max_unit': 'limited by max_unit',
    'min_unit': 'limited by min_unit',
    'step_size': 'limited by step_size',
    'total_capacity': 'with too little total capacity',
    'free_capacity': 'full',
}
#: Maximum number of different values of max_unit, min_unit or step_size that are listed; otherwise the range is.
_MAX_VALUES = 3


@dataclass(frozen=True)
class Shortfall:
    """Providers that satisfy the other rules and have inventory of the class, but cannot allocate the amount.

    ``kind`` is the reason: ``max_unit``, ``min_unit`` or ``step_size`` (``value`` is that of all these ``providers``,
    or the smallest of theirs, with the largest in ``max_value``), ``total_capacity`` (``value`` is their largest
    capacity), ``free_capacity`` (``value`` is the largest free capacity of any of them), or ``combined``: they can
    allocate the amount, but not in addition to what other parts of the request need from them.
    """

    resource_class: str
    kind: str
    value: int
    requested: int
    providers: int
    max_value: int | None = None

    def __str__(self) -> str:
        largest = self.value if self.max_value is None else self.max_value
        requested, value, max_value = amounts(self.resource_class, self.requested, self.value, largest)
        count = f'{self.providers} provider{"s" if self.providers != 1 else ""}'
        if self.kind == 'total_capacity':
            return f'total capacity below {requested} (max {value}): {count}'
        if self.kind == 'free_capacity':
            return f'free capacity below {requested} (max {value}): {count}'
        if self.kind == 'combined':
            return f'sufficient, but not together with the rest of the request: {count}'
        values = value if self.max_value is None else f'{value} to {max_value}'
        return f'{self.kind} is {values}, requested {requested}: {count}'


def amounts(resource_class: str, *values: int) -> list[str]:
    """Return amounts of a class with their units, or as plain numbers if different ones would look the same."""
    positive = [max(value, 0) for value in values]
    texts = [units.amount(resource_class, value) for value in positive]
    return texts if len(set(texts)) == len(set(positive)) else [f'{value:,}' for value in positive]


def violations(inventories: InventoryColumns, amount: int) -> dict[str, Flags]:
    """Return for each of ``KINDS`` which inventories cannot allocate ``amount`` for that reason, which is the first."""
    found = inventories.violations(amount)
    too_small = inventories.capacity_limit < amount
    return {
        'max_unit': found[Reason.ABOVE_MAX_UNIT],
        'min_unit': found[Reason.BELOW_MIN_UNIT],
        'step_size': found[Reason.WRONG_STEP],
        'total_capacity': found[Reason.NO_CAPACITY] & too_small,
        'free_capacity': found[Reason.NO_CAPACITY] & ~too_small,
    }


def shortfalls(
    resource_class: str, amount: int, inventories: Sequence[tuple[InventoryColumns, Flags]]
) -> Iterator[Shortfall]:
    """Count the inventories of some providers by the first reason for which they cannot allocate an amount.

    :param inventories: columns, and which of their items are counted.
    """
    violated = [violations(columns, amount) for columns, _ in inventories]

    def values(kind: str, column: str) -> Integers:
        pairs = zip(inventories, violated, strict=True)
        return np.concatenate([getattr(columns, column)[counted & by[kind]] for (columns, counted), by in pairs])

    found = []
    for kind in ('max_unit', 'min_unit', 'step_size'):
        found += _by_value(resource_class, kind, values(kind, kind), amount)
    capacity = values('total_capacity', 'capacity_limit')
    if len(capacity):
        found.append(Shortfall(resource_class, 'total_capacity', int(capacity.max()), amount, len(capacity)))
    free = values('free_capacity', 'capacity_limit') - values('free_capacity', 'used')
    if len(free):
        found.append(Shortfall(resource_class, 'free_capacity', int(free.max()), amount, len(free)))
    sufficient = sum(int(counted.sum()) for _, counted in inventories) - sum(one.providers for one in found)
    if sufficient:
        yield Shortfall(resource_class, 'combined', amount, amount, sufficient)
    yield from found


def _by_value(resource_class: str, kind: str, values: Integers, amount: int) -> list[Shortfall]:
    """Return one shortfall for each value if there are few, else one with the range."""
    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) > _MAX_VALUES:
        smallest, largest = int(distinct[0]), int(distinct[-1])
        return [Shortfall(resource_class, kind, smallest, amount, len(values), max_value=largest)]
    pairs = zip(distinct.tolist(), counts.tolist(), strict=True)
    return [Shortfall(resource_class, kind, value, amount, count) for value, count in pairs]
