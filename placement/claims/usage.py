"""Updates ``inventories.used``: step 6 of ``claims.claim``.

The WHERE clause of each UPDATE has the capacity rule. The rows are locked in order of provider and class, which is the
order of the unique index.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement import capacity
from placement.db import sql, tables
from placement.db.batch import StatementBatch
from placement.db.inventories import InventoryKey

_inventories = tables.inventories


class UsageDelta(NamedTuple):
    """A change of one inventory: ``delta`` is added to ``used``.

    ``amounts`` are the requested allocations. Each has to satisfy the unit constraints. There are none if the claim
    only releases.
    """

    inventory: InventoryKey
    delta: int
    amounts: Sequence[int] = ()


def add_usage_statements(
    batch: StatementBatch, changes: Sequence[UsageDelta], rejection: Callable[[], Exception]
) -> None:
    """Add the statements that apply ``changes``. The database checks each change unless it only releases.

    The rule is api-ref/allocations.md#the-capacity-check-of-a-write.

    :param changes: in order of provider and class.
    :param rejection: makes the exception to raise if something does not fit or an inventory does not exist.
    """
    # No double can have 1e308 + 1e308. PostgreSQL fails at such a sum, unless it compares amounts with max_unit first.
    if any(amount > capacity.MAX_INT32 for change in changes for amount in change.amounts):
        raise rejection()
    for chunk in sql.chunks(changes, sql.MAX_ROWS_PER_STATEMENT):
        batch.add_statement(_statement(batch.tx.dialect, chunk), rows=len(chunk), error=rejection)


def add_release_statements(batch: StatementBatch, released: Mapping[InventoryKey, int]) -> None:
    """Add the statements that subtract ``released`` amounts. Inventories need not exist."""
    changes = [UsageDelta(inventory, -amount) for inventory, amount in sorted(released.items())]
    for chunk in sql.chunks(changes, sql.MAX_ROWS_PER_STATEMENT):
        batch.add_statement(_statement(batch.tx.dialect, chunk))


# The statement is text, made of integers and of a rule that is compiled once for each database. Building and compiling
# it with SQLAlchemy each time would take longer than executing it.

_KEY = '(resource_provider_id = {:d} AND resource_class_id = {:d})'


def _statement(dialect: sa.Dialect, changes: Sequence[UsageDelta]) -> str:
    rule = _rule(dialect)
    keys, cases, conditions = [], [], []
    for inventory, delta, amounts in changes:
        condition = _KEY.format(*inventory)
        keys.append(condition)
        cases.append(f'WHEN {condition} THEN {delta:d}')
        if amounts:
            provider, resource_class = inventory
            condition = rule.format(
                provider=provider,
                resource_class=resource_class,
                delta=delta,
                smallest=min(amounts),
                largest=max(amounts),
                divisor=math.gcd(*amounts),
            )
        conditions.append(condition)
    text, _ = sql.update_in_order(
        dialect,
        _inventories,
        # A claim does not modify the inventory itself, so updated_at is not set.
        f'used = used + CASE {" ".join(cases)} END',
        (),
        ' OR '.join(keys),
        count=len(changes),
        condition=' OR '.join(conditions),
        order='resource_provider_id, resource_class_id',
        index='uniq_inventories0resource_provider_resource_class',
    )
    return text


@functools.lru_cache(maxsize=16)
def _rule(dialect: sa.Dialect) -> str:
    """Return the condition on one inventory (api-ref/capacity.md#the-capacity-rule), for ``str.format``."""
    inv = _inventories.c
    delta = _placeholder('delta')
    units = capacity.satisfies_unit_constraints(
        inv, _placeholder('smallest'), _placeholder('largest'), _placeholder('divisor')
    )
    rule = sa.and_(
        inv.resource_provider_id == _placeholder('provider'),
        inv.resource_class_id == _placeholder('resource_class'),
        sa.or_(delta <= 0, inv.used + delta <= tables.CAPACITY_LIMIT),
        # PostgreSQL fails on a division by 0, and only CASE guarantees the order of evaluation.
        sa.case((inv.step_size < 1, sa.false()), else_=units),
    ).self_group()
    return str(rule.compile(dialect=dialect, compile_kwargs={'literal_binds': True}))


def _placeholder(name: str) -> sa.ColumnElement[int]:
    """Return a field for ``str.format``, which replaces it by an integer and rejects anything else."""
    return sa.literal_column(f'{{{name}:d}}', sa.BigInteger)
