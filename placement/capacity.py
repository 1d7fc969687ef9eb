"""The rule of room: how much of an inventory may be used, and in which amounts (api-ref/capacity.md).

The fields and amounts can be numbers, numpy vectors, or SQLAlchemy columns and literals. The operators have the same
meaning for all of them, so the rule is written once for Python, for vectors and for WHERE clauses.

``InventoryRecord.rejection`` and ``mirror.stock.Stock.refused`` compare an amount with the units themselves, because
they tell which part of the rule is broken. tests/property/test_capacity_rule.py holds all of them equal.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

#: The largest total, amount or unit: what a signed 32-bit integer holds.
MAX_INT32 = 2**31 - 1


class HasCapacity(Protocol):
    """An object with the fields that say how much an inventory has."""

    @property
    def total(self) -> Any: ...
    @property
    def reserved(self) -> Any: ...
    @property
    def allocation_ratio(self) -> Any: ...


class HasUnits(Protocol):
    """An object with the fields that say which amounts one allocation may take."""

    @property
    def min_unit(self) -> Any: ...
    @property
    def max_unit(self) -> Any: ...
    @property
    def step_size(self) -> Any: ...


def capacity_limit(inventory: HasCapacity) -> Any:
    """The upper bound of what all allocations together may use, as a double, not rounded."""
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio


def capacity(inventory: HasCapacity) -> int:
    """The limit as the API shows it, truncated towards zero. For plain numbers only."""
    return math.trunc(capacity_limit(inventory))


def satisfies_unit_constraints(inventory: HasUnits, smallest: Any, largest: Any, divisor: Any) -> Any:
    """Whether all of some amounts are at least ``min_unit``, at most ``max_unit``, and multiples of ``step_size``.

    :param smallest: the smallest of the amounts.
    :param largest: the largest of the amounts.
    :param divisor: their greatest common divisor, which is a multiple of the step exactly when all of them are.
    """
    return (inventory.min_unit <= smallest) & (largest <= inventory.max_unit) & (divisor % inventory.step_size == 0)
