"""An inventory, and the capacity rule: how much of it may be used, in which amounts (api-ref/capacity.md).

The fields and amounts can be numbers, numpy columns, or SQLAlchemy columns and literals. The operators have the same
meaning for all of them, so each part of the rule is written once. tests/property/test_capacity_rule.py compares the
three. ``max_increase`` and ``max_allocatable`` are for numbers and numpy columns only.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from placement.exception import InvalidInventoryCapacity

#: The largest total, amount or unit: the maximum of a signed 32-bit integer.
MAX_INT32 = 2**31 - 1


class InventoryRecord(NamedTuple):
    """One inventory. ``used`` is the sum of the allocations of all consumers."""

    total: int
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = MAX_INT32
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0

    @property
    def capacity(self) -> int:
        """The maximum usage, as the API shows it: truncated toward zero."""
        return math.trunc(capacity_limit(self))

    @property
    def max_increase(self) -> int:
        """The largest amount that all groups of one candidate together may add to the usage."""
        return max_increase(self, math.floor(capacity_limit(self)))

    def fits(self, amount: int) -> bool:
        """Return whether a new allocation may have this amount, which is 1 or more."""
        return amount <= self.max_increase and self.allows_amount(amount)

    def allows_amount(self, amount: int) -> bool:
        """Return whether an amount satisfies the unit constraints."""
        # Only another program can have stored a step_size below 1. No amount is a multiple of it.
        return self.step_size >= 1 and bool(satisfies_unit_constraints(self, amount, amount, amount))

    def violated_limit(self, amount: int) -> str | None:
        """Return the first limit, in the order of reports, that a new allocation of this amount violates, if any."""
        if amount > self.max_unit:
            return 'max_unit'
        if amount < self.min_unit:
            return 'min_unit'
        if self.step_size < 1 or amount % self.step_size:
            return 'step_size'
        return 'capacity' if self.used + amount > capacity_limit(self) else None

    def raise_unless_capacity_valid(self, resource_class: str, uuid: str, *, zero_allowed: bool) -> None:
        """Make sure that the capacity of an inventory may be stored (api-ref/capacity.md#capacity-that-may-be-stored).

        :param uuid: the uuid of its provider.
        :param zero_allowed: whether the capacity may be 0, as since microversion 1.26.
        :raises InvalidInventoryCapacity: it may not be stored.
        """
        if self.allocation_ratio < 0:
            rule = f'Bad inventory {resource_class} for resource provider {uuid}: allocation_ratio is below 0.'
        elif zero_allowed and self.capacity < 0:
            rule = 'The reserved value is greater than total.'
        elif not zero_allowed and self.capacity <= 0:
            rule = 'The reserved value is greater than or equal to total.'
        else:
            return
        raise InvalidInventoryCapacity(resource_class=resource_class, uuid=uuid, rule=rule)

    def with_used(self, used: int) -> InventoryRecord:
        """Return the inventory with another usage."""
        # This takes a third of the time of ``_replace`` and half of the time of unpacking.
        return tuple.__new__(InventoryRecord, self[:-1] + (used,))  # noqa: RUF005


#: The smallest value of each field that a request can store. The maximum of integers is ``MAX_INT32``.
MINIMUMS = {'total': 1, 'reserved': 0, 'min_unit': 1, 'max_unit': 1, 'step_size': 1, 'allocation_ratio': 0}

#: The fields that a request sets.
FIELDS = InventoryRecord._fields[:-1]


#: An ``InventoryRecord``, or an object with the same attributes whose values are columns.
InventoryOrColumns = Any


def capacity_limit(inventory: InventoryOrColumns) -> Any:
    """Return the maximum of the sum of all allocations, as a double, not rounded."""
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio


def satisfies_unit_constraints(inventory: InventoryOrColumns, smallest: Any, largest: Any, divisor: Any) -> Any:
    """Return whether amounts are all at least ``min_unit``, at most ``max_unit``, and multiples of ``step_size``.

    :param smallest: the smallest of the amounts.
    :param largest: the largest of the amounts.
    :param inventory: its ``step_size`` is at least 1.
    :param divisor: their greatest common divisor, which is a multiple of ``step_size`` exactly when all of them are.
    """
    return (inventory.min_unit <= smallest) & (largest <= inventory.max_unit) & (divisor % inventory.step_size == 0)


def max_increase(inventory: InventoryOrColumns, limit: Any, minimum: Callable[[Any, Any], Any] = min) -> Any:
    """Return how much one candidate or allocation may add: the free capacity, but at most ``max_unit``.

    :param limit: ``capacity_limit``, rounded down.
    :param minimum: ``numpy.minimum`` for columns.
    """
    return minimum(limit - inventory.used, inventory.max_unit)


def max_allocatable(inventory: InventoryOrColumns, max_increase: Any) -> Any:
    """Return the largest amount of one new allocation; 0 if none is possible.

    :param max_increase: as ``max_increase``, but at least 0.
    """
    amount = max_increase - max_increase % inventory.step_size
    return amount * (amount >= inventory.min_unit)
