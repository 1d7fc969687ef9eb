"""Writes the rows of consumers: inserts, updates or deletes them, as a claim says (step 4 of ``claims.claim``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement import exception
from placement.claims.current import ConsumerRow
from placement.db import api as db_api
from placement.db import sql, tables
from placement.db.batch import StatementBatch

_consumers = tables.consumers

#: How many rows one statement changes. SQLite refuses a chain of more than 1,000 conditions.
_MOST = 300

_UPDATE_ONE = (
    'UPDATE placement_consumers SET generation = generation + 1, project_id = ?, user_id = ?,'
    ' consumer_type_id = coalesce(?, consumer_type_id), updated_at = ? WHERE id = ? AND generation = ?'
)
_DELETE_ONE = 'DELETE FROM placement_consumers WHERE id = ? AND generation = ?'
_LOCK = (
    sa.select(_consumers.c.id)
    .where(_consumers.c.id.in_(sa.bindparam('ids', expanding=True)))
    .order_by(_consumers.c.id)
    .with_for_update()
)


class Attributes(NamedTuple):
    """What a claim writes about a consumer. Without ``consumer_type_id`` a consumer that exists keeps its type."""

    project_id: int
    user_id: int
    consumer_type_id: int | None


class DesiredConsumer(NamedTuple):
    """A consumer as it is to be: ``attributes`` is None if it is to hold nothing."""

    uuid: str
    attributes: Attributes | None


class _Updated(NamedTuple):
    present: ConsumerRow
    attributes: Attributes


def expect(expected: int, count: int) -> None:
    """Compare the number of rows that a statement was to change with the ``count`` that it changed.

    :raises RetryTransaction: they differ, because another transaction was committed meanwhile.
    """
    if count != expected:
        raise db_api.RetryTransaction(exception.ConcurrentUpdate())


def write(batch: StatementBatch, wanted: Sequence[DesiredConsumer], present: Mapping[str, ConsumerRow]) -> None:
    """Insert the consumers that begin to hold something, update those that go on, delete those that stop.

    A single update, a single deletion and the insertions are added to ``batch``. Several updates or deletions are
    run at once.

    :param batch: has nothing in it yet.
    :param present: the consumers that exist, by uuid, with the generation that was read along with their allocations.
    :raises RetryTransaction: the generation of a consumer is another one by now; perhaps only when ``batch`` is run.
    """
    updated, deleted, new = [], [], []
    for consumer in wanted:
        record = present.get(consumer.uuid)
        if record is None and consumer.attributes is not None:
            new.append((consumer.uuid, consumer.attributes))
        elif record is not None and consumer.attributes is not None:
            updated.append(_Updated(record, consumer.attributes))
        elif record is not None:
            deleted.append(record)
    if updated and deleted:
        # Each of the two statements that follow locks only its own rows in order.
        _lock(batch.tx, [*(one.present for one in updated), *deleted])
    _update(batch, sorted(updated, key=lambda one: one.present.id))
    _delete(batch, sorted(deleted, key=lambda one: one.id))
    if new:
        _insert(batch, sorted(new))


def _lock(tx: sa.Connection, present: Sequence[ConsumerRow]) -> None:
    for chunk in sql.chunks(sorted(one.id for one in present)):
        tx.execute(_LOCK, {'ids': chunk})


def _update(batch: StatementBatch, updated: Sequence[_Updated]) -> None:
    """Set the attributes and move the generation of consumers that still have the generation which was read."""
    tx = batch.tx
    if len(updated) == 1:
        ((present, attributes),) = updated
        values = (*attributes, sql.now(tx), present.id, present.generation)
        batch.add(_UPDATE_ONE, *values, check=functools.partial(expect, 1))
        return
    for start in range(0, len(updated), _MOST):
        some = updated[start : start + _MOST]
        projects = {one.present.id: one.attributes.project_id for one in some}
        users = {one.present.id: one.attributes.user_id for one in some}
        types = {
            one.present.id: one.attributes.consumer_type_id
            for one in some
            if one.attributes.consumer_type_id is not None
        }
        which = sql.lock_rows_in_id_order(tx, _consumers, _unchanged([one.present for one in some]))
        id_ = _consumers.c.id
        values_ = {
            'generation': _consumers.c.generation + 1,
            'project_id': sa.case(projects, value=id_),
            'user_id': sa.case(users, value=id_),
        }
        if types:
            values_['consumer_type_id'] = sa.case(types, value=id_, else_=_consumers.c.consumer_type_id)
        update = _consumers.update().where(which).values(values_)
        expect(len(some), tx.execute(update).rowcount)


def _delete(batch: StatementBatch, deleted: Sequence[ConsumerRow]) -> None:
    """Delete consumers that still have the generation which was read."""
    tx = batch.tx
    if len(deleted) == 1:
        seen = (deleted[0].id, deleted[0].generation)
        batch.add(_DELETE_ONE, *seen, check=functools.partial(expect, 1))
        return
    for start in range(0, len(deleted), _MOST):
        some = deleted[start : start + _MOST]
        which = sql.lock_rows_in_id_order(tx, _consumers, _unchanged(some))
        expect(len(some), tx.execute(_consumers.delete().where(which)).rowcount)


def _unchanged(present: Sequence[ConsumerRow]) -> sa.ColumnElement[bool]:
    return sa.or_(*(sa.and_(_consumers.c.id == one.id, _consumers.c.generation == one.generation) for one in present))


def _insert(batch: StatementBatch, new: Sequence[tuple[str, Attributes]]) -> None:
    rows = [(uuid, 1, *attributes) for uuid, attributes in new]
    columns = 'uuid, generation, project_id, user_id, consumer_type_id'
    for text, values in sql.bulk_insert(batch.tx, 'placement_consumers', columns, rows):
        batch.add(text, *values)
