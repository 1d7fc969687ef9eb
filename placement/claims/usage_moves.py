"""Moves ``inventories.used``: all that a claim takes and gives back, in one statement whose row count is the verdict.

Whether there is room is decided by the UPDATE that takes it, on what is committed at that moment, at every isolation
level. It locks the records in the order of provider and class, which is that of the unique index.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement import room
from placement.db import tables
from placement.db.together import Together

_inventories = tables.inventories

#: A provider's id and a class's id: what one inventory record is about.
InventoryKey = tuple[int, int]


class _Move(NamedTuple):
    """What happens to one record: ``delta`` is added to its usage, of which ``amounts`` are asked for."""

    key: InventoryKey
    delta: int
    amounts: Sequence[int]


def add(
    together: Together,
    old: Mapping[InventoryKey, int],
    new: Mapping[InventoryKey, Sequence[int]],
    refuse: Callable[[], None],
) -> None:
    """Change ``inventories.used`` from what the consumers held (``old``) to what they are to hold (``new``).

    A sum that does not grow is allowed on an over-committed inventory; what is only taken away is not checked at all,
    not even for being there (api-ref/allocations.md#room-when-writing).

    :param together: nothing behind this in it may remove inventories: the verdict counts those that are given back, and
        on MariaDB and MySQL that is after all of it has run.
    :param refuse: called when not all of it fits, to raise; some of it may have been done then.
    """
    if any(amount > room.LARGEST for amounts in new.values() for amount in amounts):
        refuse()
    moves = list(_moves(old, new))
    for start in range(0, len(moves), _MOST):
        some = moves[start : start + _MOST]
        together.add(_statement(together.tx.dialect, some), judge=functools.partial(_judge, together.tx, some, refuse))


def _moves(old: Mapping[InventoryKey, int], new: Mapping[InventoryKey, Sequence[int]]) -> Iterator[_Move]:
    for key in sorted(old.keys() | new.keys()):
        amounts = new.get(key, ())
        delta = sum(amounts) - old.get(key, 0)
        if amounts or delta:
            yield _Move(key, delta, amounts)


def _judge(tx: sa.Connection, moves: Sequence[_Move], refuse: Callable[[], None], moved: int) -> None:
    if moved == len(moves):
        return
    given_back = [move for move in moves if not move.amounts]
    # Records that are given back are locked by now if they are there at all.
    if not given_back or moved != len(moves) - len(given_back) + _count(tx, given_back):
        refuse()


def _count(tx: sa.Connection, moves: Sequence[_Move]) -> int:
    which = ' OR '.join(_WHICH.format(*move.key) for move in moves)
    return int(tx.exec_driver_sql(f'SELECT count(*) FROM placement_inventories WHERE {which}').scalar_one())  # noqa: S608


# The statement is put together as text, of integers and a rule that is compiled once for each database: as a tree of
# expressions it would cost more than the database takes to run it.

#: How many records one statement changes. SQLite refuses a chain of more than 1,000 conditions.
_MOST = 300

_WHICH = '(resource_provider_id = {:d} AND resource_class_id = {:d})'
_DELTA = 'WHEN resource_provider_id = {:d} AND resource_class_id = {:d} THEN {:d}'


def _statement(dialect: sa.Dialect, moves: Sequence[_Move]) -> str:
    rule = _rule(dialect)
    deltas = ' '.join(_DELTA.format(*move.key, move.delta) for move in moves)
    allowed = ' OR '.join(_allowed(rule, move) for move in moves)
    # A claim is no modification of the inventory, so updated_at stays what it is.
    changed = f'SET used = used + CASE {deltas} END'
    if dialect.name == 'postgresql' and len(moves) > 1:
        which = ' OR '.join(_WHICH.format(*move.key) for move in moves)
        return (
            f'WITH held AS (SELECT id AS held_id FROM placement_inventories WHERE {which}'  # noqa: S608
            ' ORDER BY resource_provider_id, resource_class_id FOR NO KEY UPDATE)'
            f' UPDATE placement_inventories {changed} FROM held WHERE id = held_id AND ({allowed})'
        )
    if dialect.name in ('mysql', 'mariadb'):
        return f'UPDATE placement_inventories FORCE INDEX ({_INDEX}) {changed} WHERE {allowed}'
    return f'UPDATE placement_inventories {changed} WHERE {allowed}'


_INDEX = 'uniq_inventories0resource_provider_resource_class'


def _allowed(rule: str, move: _Move) -> str:
    if not move.amounts:
        return _WHICH.format(*move.key)
    return rule.format(
        provider=move.key[0],
        resource_class=move.key[1],
        delta=move.delta,
        smallest=min(move.amounts),
        largest=max(move.amounts),
        divisor=math.gcd(*move.amounts),
    )


#: By name of the database and style of parameters: some drivers want a percent sign twice.
_rules: dict[tuple[str, str], str] = {}


def _rule(dialect: sa.Dialect) -> str:
    """Which record, and the room rule (api-ref/capacity.md#room), as text for ``str.format``.

    ``smallest`` and ``largest`` are those of the amounts, ``divisor`` is their greatest common divisor: every amount is
    a multiple of the step exactly when that is.
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
        sa.or_(delta <= 0, inv.used + delta <= room.limit(inv)),
        room.obeys_units(inv, _to_fill_in('smallest'), _to_fill_in('largest'), _to_fill_in('divisor')),
    ).self_group()


def _to_fill_in(name: str) -> sa.ColumnElement[int]:
    """What ``str.format`` replaces by an integer, and by nothing else."""
    return sa.literal_column(f'{{{name}:d}}', sa.BigInteger)
