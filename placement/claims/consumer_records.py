"""Writes the records of consumers: created, moved by a generation, or forgotten, as a claim says.

The order of statements is the order of locks: the records that are there, by id, then new ones, by uuid.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.claims.holding import Present
from placement.db import api as db_api
from placement.db import statements, tables
from placement.db.together import Together

_consumers = tables.consumers

#: How many records one statement changes. SQLite refuses a chain of more than 1,000 conditions.
_MOST = 300

_MOVE_ONE = (
    'UPDATE placement_consumers SET generation = generation + 1, project_id = ?, user_id = ?, updated_at = ?'
    ' WHERE id = ? AND generation = ?'
)
_FORGET_ONE = 'DELETE FROM placement_consumers WHERE id = ? AND generation = ?'
_HOLD = (
    sa.select(_consumers.c.id)
    .where(_consumers.c.id.in_(sa.bindparam('ids', expanding=True)))
    .order_by(_consumers.c.id)
    .with_for_update()
)


class Wanted(NamedTuple):
    """A consumer as it is to be: ``owner`` is the ids of its project and user, None if it is to hold nothing."""

    uuid: str
    owner: tuple[int, int] | None


class _Moved(NamedTuple):
    present: Present
    owner: tuple[int, int]


def write(together: Together, wanted: Sequence[Wanted], present: Mapping[str, Present]) -> None:
    """Create, move or forget the consumers. A consumer exists as long as it holds something.

    Several that are moved or forgotten are so at once; else it is done when ``together`` is run, before anything else.

    :param present: those that exist, as they were read together with what they hold: whoever changed since is noticed.
    :raises TryAgain: one did.
    """
    moved, forgotten, new = [], [], []
    for consumer in wanted:
        record = present.get(consumer.uuid)
        if record is None and consumer.owner is not None:
            new.append((consumer.uuid, consumer.owner))
        elif record is not None and consumer.owner is not None:
            moved.append(_Moved(record, consumer.owner))
        elif record is not None:
            forgotten.append(record)
    if moved and forgotten:
        # Two statements are going to lock them.
        _hold(together.tx, [*(one.present for one in moved), *forgotten])
    _move(together, sorted(moved, key=lambda one: one.present.id))
    _forget(together, sorted(forgotten, key=lambda one: one.id))
    if new:
        _insert(together, sorted(new))


def _hold(tx: sa.Connection, present: Sequence[Present]) -> None:
    for batch in statements.batches(sorted(one.id for one in present)):
        tx.execute(_HOLD, {'ids': batch})


def _move(together: Together, moved: Sequence[_Moved]) -> None:
    """Compare-and-swap the generations under which the holdings were read."""
    tx = together.tx
    if len(moved) == 1:
        ((present, owner),) = moved
        values = (*owner, statements.now(tx), present.id, present.generation)
        together.add(_MOVE_ONE, *values, judge=functools.partial(_expect, 1))
        return
    for start in range(0, len(moved), _MOST):
        some = moved[start : start + _MOST]
        projects = {one.present.id: one.owner[0] for one in some}
        users = {one.present.id: one.owner[1] for one in some}
        which = statements.held_in_order(tx, _consumers, _unchanged([one.present for one in some]))
        update = _consumers.update().where(which)
        id_ = _consumers.c.id
        moving = update.values(
            generation=_consumers.c.generation + 1,
            project_id=sa.case(projects, value=id_),
            user_id=sa.case(users, value=id_),
        )
        _expect(len(some), tx.execute(moving).rowcount)


def _forget(together: Together, forgotten: Sequence[Present]) -> None:
    """Delete consumers unless they changed since their holdings were read."""
    tx = together.tx
    if len(forgotten) == 1:
        seen = (forgotten[0].id, forgotten[0].generation)
        together.add(_FORGET_ONE, *seen, judge=functools.partial(_expect, 1))
        return
    for start in range(0, len(forgotten), _MOST):
        some = forgotten[start : start + _MOST]
        which = statements.held_in_order(tx, _consumers, _unchanged(some))
        _expect(len(some), tx.execute(_consumers.delete().where(which)).rowcount)


def _unchanged(present: Sequence[Present]) -> sa.ColumnElement[bool]:
    return sa.or_(*(sa.and_(_consumers.c.id == one.id, _consumers.c.generation == one.generation) for one in present))


def _expect(expected: int, count: int) -> None:
    if count != expected:
        raise db_api.TryAgain(exception.ConcurrentUpdate())


def _insert(together: Together, new: Sequence[tuple[str, tuple[int, int]]]) -> None:
    rows = [(uuid, 1, *owner) for uuid, owner in new]
    columns = 'uuid, generation, project_id, user_id'
    for text, values in statements.insertions(together.tx, 'placement_consumers', columns, rows):
        together.add(text, *values)
