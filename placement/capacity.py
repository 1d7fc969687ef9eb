"""The capacity rule: how much of an inventory may be used, and in which amounts (api-ref/capacity.md).

The fields and amounts can be numbers, numpy columns, or SQLAlchemy columns and literals. The operators have the same
meaning for all of them, so each part of the rule is written once. tests/property/test_capacity_rule.py compares the
three. ``headroom`` and ``max_allocatable`` are for numbers and numpy columns only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

#: The largest total, amount or unit: the maximum of a signed 32-bit integer.
MAX_INT32 = 2**31 - 1


class HasCapacity(Protocol):
    """An object with the fields that define the capacity of an inventory."""

    @property
    def total(self) -> Any: ...
    @property
    def reserved(self) -> Any: ...
    @property
    def allocation_ratio(self) -> Any: ...


class HasUnits(Protocol):
    """An object with the fields that define which amounts one allocation may have."""

    @property
    def min_unit(self) -> Any: ...
    @property
    def max_unit(self) -> Any: ...
    @property
    def step_size(self) -> Any: ...


class HasUsage(HasUnits, Protocol):
    """An object with the unit constraints and the usage of an inventory."""

    @property
    def used(self) -> Any: ...


def capacity_limit(inventory: HasCapacity) -> Any:
    """Return the maximum of the sum of all allocations, as a double, not rounded."""
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio


def capacity(inventory: HasCapacity) -> int:
    """Return the limit as the API shows it, truncated towards zero. For plain numbers only."""
    return math.trunc(capacity_limit(inventory))


def satisfies_unit_constraints(inventory: HasUnits, smallest: Any, largest: Any, divisor: Any) -> Any:
    """Return whether amounts are all at least ``min_unit``, at most ``max_unit``, and multiples of the step.

    :param smallest: the smallest of the amounts.
    :param largest: the largest of the amounts.
    :param divisor: their greatest common divisor, which is a multiple of the step exactly when all of them are.
    """
    return (inventory.min_unit <= smallest) & (largest <= inventory.max_unit) & (divisor % inventory.step_size == 0)


def violations(inventory: HasUsage, limit: Any, amount: Any) -> tuple[Any, Any, Any, Any]:
    """Return which parts of the rule an amount violates, in the order in which they are reported.

    :param limit: ``capacity_limit``; may be rounded down.
    :returns: whether the amount is above ``max_unit``, below ``min_unit``, no multiple of ``step_size``, and above the
        free capacity.
    """
    return (
        amount > inventory.max_unit,
        amount < inventory.min_unit,
        amount % inventory.step_size != 0,
        inventory.used + amount > limit,
    )


def headroom(inventory: HasUsage, limit: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
    """Return how much one candidate or allocation may add: the free capacity, and at most ``max_unit``.

    :param limit: ``capacity_limit``, rounded down.
    :param minimum: ``numpy.minimum`` for columns.
    """
    return minimum(limit - inventory.used, inventory.max_unit)


def max_allocatable(inventory: HasUnits, headroom: Any) -> Any:
    """Return the largest amount of one new allocation; 0 if none is possible.

    :param headroom: that of the inventory, at least 0.
    """
    amount = headroom - headroom % inventory.step_size
    return amount * (amount >= inventory.min_unit)
