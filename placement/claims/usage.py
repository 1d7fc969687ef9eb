"""Updates ``inventories.used`` by all that a claim takes and gives back: step 6 of ``claims.claim``.

One UPDATE, whose WHERE clause has the rule of room. It locks the rows in order of provider and class, which is the
order of the unique index.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement import capacity
from placement.db import tables
from placement.db.batch import StatementBatch

_inventories = tables.inventories

#: Identifies one inventory: the ids of its provider and of its class.
InventoryKey = tuple[int, int]


class UsageDelta(NamedTuple):
    """A change of one inventory: ``delta`` is added to ``used``.

    ``amounts`` are those of the requested allocations, each of which has to obey the units. There are none where
    something is only given back.
    """

    inventory: InventoryKey
    delta: int
    amounts: Sequence[int]


def add(
    batch: StatementBatch,
    old: Mapping[InventoryKey, int],
    new: Mapping[InventoryKey, Sequence[int]],
    refuse: Callable[[], None],
) -> None:
    """Add to ``batch`` what changes ``inventories.used`` by the difference between ``old`` and ``new``.

    The rule is api-ref/allocations.md#room-when-writing. Where something is only given back, nothing is checked, and
    the inventory need not even exist.

    :param batch: what is added after this must not delete inventories: on MySQL it has run when the row count is
        checked, which counts the inventories to which something is given back.
    :param old: what the consumers hold so far, by inventory.
    :param new: the amounts of the allocations that they are to hold, by inventory.
    :param refuse: called when not everything fits. It has to raise, so that the transaction is rolled back: some of the
        rows may have been updated.
    """
    if any(amount > capacity.MAX_INT32 for amounts in new.values() for amount in amounts):
        refuse()
    moves = list(_moves(old, new))
    for start in range(0, len(moves), _MOST):
        some = moves[start : start + _MOST]
        check = functools.partial(_check_count, batch.tx, some, refuse)
        batch.add(_statement(batch.tx.dialect, some), check=check)


def deltas(old: Mapping[InventoryKey, int], new: Mapping[InventoryKey, Sequence[int]]) -> dict[InventoryKey, int]:
    """By how much the usage of each inventory changes; parameters as for ``add``."""
    return {key: sum(new.get(key, ())) - old.get(key, 0) for key in old.keys() | new.keys()}


def _moves(old: Mapping[InventoryKey, int], new: Mapping[InventoryKey, Sequence[int]]) -> Iterator[UsageDelta]:
    for inventory, delta in sorted(deltas(old, new).items()):
        amounts = new.get(inventory, ())
        if amounts or delta:
            yield UsageDelta(inventory, delta, amounts)


def _check_count(tx: sa.Connection, moves: Sequence[UsageDelta], refuse: Callable[[], None], updated: int) -> None:
    if updated == len(moves):
        return
    given_back = [move for move in moves if not move.amounts]
    # Something may be given back to an inventory that does not exist. Those that do are locked by the UPDATE, so that
    # their number cannot change.
    if not given_back or updated != len(moves) - len(given_back) + _count(tx, given_back):
        refuse()


def _count(tx: sa.Connection, moves: Sequence[UsageDelta]) -> int:
    which = ' OR '.join(_WHICH.format(*move.inventory) for move in moves)
    return int(tx.exec_driver_sql(f'SELECT count(*) FROM placement_inventories WHERE {which}').scalar_one())  # noqa: S608


# The statement is put together as text, from integers and a rule that is compiled once for each database. Building and
# compiling it with SQLAlchemy each time would take longer than running it.

#: How many rows one statement changes. SQLite refuses a chain of more than 1,000 conditions.
_MOST = 300

_WHICH = '(resource_provider_id = {:d} AND resource_class_id = {:d})'
_DELTA = 'WHEN resource_provider_id = {:d} AND resource_class_id = {:d} THEN {:d}'


def _statement(dialect: sa.Dialect, moves: Sequence[UsageDelta]) -> str:
    rule = _rule(dialect)
    deltas = ' '.join(_DELTA.format(*move.inventory, move.delta) for move in moves)
    allowed = ' OR '.join(_allowed(rule, move) for move in moves)
    # A claim does not modify the inventory itself, so updated_at is not set.
    changed = f'SET used = used + CASE {deltas} END'
    if dialect.name == 'postgresql' and len(moves) > 1:
        which = ' OR '.join(_WHICH.format(*move.inventory) for move in moves)
        return (
            f'WITH held AS (SELECT id AS held_id FROM placement_inventories WHERE {which}'  # noqa: S608
            ' ORDER BY resource_provider_id, resource_class_id FOR NO KEY UPDATE)'
            f' UPDATE placement_inventories {changed} FROM held WHERE id = held_id AND ({allowed})'
        )
    if dialect.name in ('mysql', 'mariadb'):
        return f'UPDATE placement_inventories FORCE INDEX ({_INDEX}) {changed} WHERE {allowed}'
    return f'UPDATE placement_inventories {changed} WHERE {allowed}'


_INDEX = 'uniq_inventories0resource_provider_resource_class'


def _allowed(rule: str, move: UsageDelta) -> str:
    if not move.amounts:
        return _WHICH.format(*move.inventory)
    return rule.format(
        provider=move.inventory[0],
        resource_class=move.inventory[1],
        delta=move.delta,
        smallest=min(move.amounts),
        largest=max(move.amounts),
        divisor=math.gcd(*move.amounts),
    )


#: By name of the database and style of parameters, which decides whether a percent sign is written twice.
_rules: dict[tuple[str, str], str] = {}


def _rule(dialect: sa.Dialect) -> str:
    """The condition on one inventory, with the rule of room (api-ref/capacity.md#room), as text for ``str.format``.

    Its fields are those of ``room.satisfies_unit_constraints``, ``delta``, and the ids ``provider`` and
    ``resource_class``.
    """
    key = (dialect.name, dialect.paramstyle)
    found = _rules.get(key)
    if found is None:
        found = _rules[key] = str(_room().compile(dialect=dialect, compile_kwargs={'literal_binds': True}))
    return found


def _room() -> sa.ColumnElement[bool]:
    inv = _inventories.c
    delta = _to_fill_in('delta')
    return sa.and_(
        inv.resource_provider_id == _to_fill_in('provider'),
        inv.resource_class_id == _to_fill_in('resource_class'),
        sa.or_(delta <= 0, inv.used + delta <= capacity.capacity_limit(inv)),
        capacity.satisfies_unit_constraints(
            inv, _to_fill_in('smallest'), _to_fill_in('largest'), _to_fill_in('divisor')
        ),
    ).self_group()


def _to_fill_in(name: str) -> sa.ColumnElement[int]:
    """A field that ``str.format`` replaces by an integer; it refuses anything else."""
    return sa.literal_column(f'{{{name}:d}}', sa.BigInteger)
