"""The room rule: how much of an inventory may be used, and which amounts it hands out (api-ref/capacity.md).

Each function takes anything that has an inventory's fields, and amounts: numbers, vectors of numbers, or columns and
literals of SQL. The operators mean the same on all of them, so the rule is written once, for one number, for many and
for a WHERE clause.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

#: The largest total, amount or unit: what a signed 32-bit integer holds.
LARGEST = 2**31 - 1


class HasCapacity(Protocol):
    """The fields that say how much there is."""

    @property
    def total(self) -> Any: ...
    @property
    def reserved(self) -> Any: ...
    @property
    def allocation_ratio(self) -> Any: ...


class HasUnits(Protocol):
    """The fields that say which amounts are handed out."""

    @property
    def min_unit(self) -> Any: ...
    @property
    def max_unit(self) -> Any: ...
    @property
    def step_size(self) -> Any: ...


def limit(inventory: HasCapacity) -> Any:
    """How much may be used in all, as a double and not rounded: what is in use must not be above it."""
    return (inventory.total - inventory.reserved) * inventory.allocation_ratio


def capacity(inventory: HasCapacity) -> int:
    """The limit as the API shows it, truncated towards zero. Of numbers only."""
    return math.trunc(limit(inventory))


def obeys_units(inventory: HasUnits, smallest: Any, largest: Any, divisor: Any) -> Any:
    """Whether each of some amounts is at least ``min_unit``, at most ``max_unit``, and a multiple of ``step_size``.

    :param smallest: of the amounts.
    :param largest: of the amounts.
    :param divisor: their greatest common divisor, which is a multiple of the step exactly when all of them are.
    """
    return (inventory.min_unit <= smallest) & (largest <= inventory.max_unit) & (divisor % inventory.step_size == 0)
