"""The capacity rule has the same result for one number, for arrays, and in SQL."""

from __future__ import annotations

import math

import sqlalchemy as sa
from hypothesis import example, given
from hypothesis import strategies as st

from placement import capacity
from placement.cache.inventory_columns import InventoryColumns
from placement.capacity import InventoryRecord
from placement.db import tables

_small = st.integers(0, 12)
_large = st.integers(0, capacity.MAX_INT32)
_whole = _small | _large
_inventories = st.builds(
    InventoryRecord,
    total=_whole,
    reserved=_whole,
    min_unit=st.integers(1, 4) | _large,
    max_unit=st.integers(1, 12) | _large,
    step_size=st.integers(1, 4) | st.integers(1, capacity.MAX_INT32),
    allocation_ratio=st.sampled_from([0.0, 0.1, 0.5, 1.0, 1.1, 1.5, 16.0, 1e-30, 3e38])
    | st.floats(-10, 100, allow_nan=False),
    used=_whole,
)


_engine = sa.create_engine('sqlite://')


def _fits_in_sql(inventory: InventoryRecord, amount: int) -> bool:
    """Evaluate the rule in a WHERE clause, on a row with ``inventory``."""
    columns = (column for column in tables.inventories.c if column.name in InventoryRecord._fields)
    row = (sa.literal(getattr(inventory, column.name), column.type).label(column.name) for column in columns)
    inv = sa.select(*row).subquery().c
    literal = sa.literal(amount, sa.BigInteger)
    rule = sa.and_(
        inv.used + literal <= capacity.capacity_limit(inv),
        inv.step_size >= 1,
        capacity.satisfies_unit_constraints(inv, literal, literal, literal),
    )
    with _engine.connect() as connection:
        return connection.scalar(sa.select(inv.total).where(rule)) is not None


def _amounts(inventory: InventoryRecord) -> st.SearchStrategy[int]:
    """Small amounts, arbitrary ones, and those near what is left."""
    free = min(max(inventory.capacity - inventory.used, 1), capacity.MAX_INT32 - 1)
    return st.integers(1, 14) | st.integers(1, capacity.MAX_INT32) | st.integers(max(free - 1, 1), free + 1)


@given(case=_inventories.flatmap(lambda inventory: st.tuples(st.just(inventory), _amounts(inventory))))
@example(case=(InventoryRecord(total=4, used=1), 3))
@example(case=(InventoryRecord(total=3, allocation_ratio=1.1), 4))
@example(case=(InventoryRecord(total=10, reserved=12), 1))
@example(case=(InventoryRecord(total=4, step_size=0), 2))
@example(case=(InventoryRecord(total=4, step_size=-1), 2))
@example(case=(InventoryRecord(total=1, step_size=capacity.MAX_INT32, max_unit=capacity.MAX_INT32), capacity.MAX_INT32))
def test_all_implementations_of_the_rule_agree(case: tuple[InventoryRecord, int]) -> None:
    inventory, amount = case
    stock = InventoryColumns.build([(0, inventory)])
    assert (
        inventory.fits(amount)
        == (list(stock.positions_with_capacity(amount)) == [0])
        == _fits_in_sql(inventory, amount)
    )
    assert inventory.fits(amount) == (inventory.violated_limit(amount) is None)


@given(inventory=_inventories, amounts=st.lists(st.integers(1, 24), min_size=1, max_size=4))
def test_smallest_largest_and_divisor_decide_for_many_amounts(inventory: InventoryRecord, amounts: list[int]) -> None:
    combined = capacity.satisfies_unit_constraints(inventory, min(amounts), max(amounts), math.gcd(*amounts))
    assert combined == all(capacity.satisfies_unit_constraints(inventory, amount, amount, amount) for amount in amounts)


@given(inventory=_inventories)
def test_capacity_is_the_limit_without_its_fraction(inventory: InventoryRecord) -> None:
    assert inventory.capacity == int((inventory.total - inventory.reserved) * inventory.allocation_ratio)
    assert abs(inventory.capacity) <= abs(capacity.capacity_limit(inventory))


@given(inventory=_inventories)
@example(inventory=InventoryRecord(total=2, min_unit=2))
def test_max_allocatable_is_the_largest_amount_that_fits(inventory: InventoryRecord) -> None:
    largest = capacity.max_allocatable(inventory, max(inventory.max_increase, 0))
    assert InventoryColumns.build([(0, inventory)]).max_allocatable.tolist() == [min(largest, inventory.max_unit)]
    assert largest == 0 or inventory.fits(largest)
    following = max(largest + inventory.step_size, -(-inventory.min_unit // inventory.step_size) * inventory.step_size)
    assert not inventory.fits(following)


@given(inventory=_inventories)
def test_max_increase_of_columns_is_that_of_numbers(inventory: InventoryRecord) -> None:
    [of_column] = InventoryColumns.build([(0, inventory)]).max_increase.tolist()
    assert of_column == max(min(inventory.max_increase, inventory.max_unit), -(2**61) - inventory.used)
