"""The room rule (contract B 1.3) as SQL on a row of ``inventories``: one rule for lists, searches and claims."""

from __future__ import annotations

import sqlalchemy as sa

from placement.candidates.reasons import Reason
from placement.db import tables

_inv = tables.inventories.c

#: How much may be used in all, as a double and not truncated.
CAPACITY = (_inv.total - _inv.reserved) * _inv.allocation_ratio


def rule(amount: int) -> sa.ColumnElement[bool]:
    """Whether an inventory has room for ``amount``, of any size."""
    return sa.and_(*parts(amount).values())


def parts(amount: int) -> dict[Reason, sa.ColumnElement[bool]]:
    """The parts of the rule for ``amount``, by what breaks them."""
    below_max = _inv.max_unit >= amount if amount <= tables.LARGEST_INTEGER else sa.false()
    amount = min(amount, tables.LARGEST_INTEGER)
    return {
        Reason.ABOVE_MAX_UNIT: below_max,
        Reason.BELOW_MIN_UNIT: _inv.min_unit <= amount,
        Reason.WRONG_STEP: sa.literal(amount) % _inv.step_size == 0,
        Reason.NO_CAPACITY: fits(amount),
    }


def fits(amount: int) -> sa.ColumnElement[bool]:
    """Whether ``amount`` is left, whatever the unit rules say."""
    return _inv.used + min(amount, tables.LARGEST_INTEGER) <= CAPACITY
