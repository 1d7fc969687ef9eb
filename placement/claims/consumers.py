"""Writes the rows of consumers, and of the projects, users and types that they refer to: steps 3 and 4 of a claim.

The API identifies projects and users by an external id and types by a name: texts of 1 to 255 characters.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc
from oslo_utils import timeutils

from placement.claims.current import ConsumerRow, CurrentState, concurrent_update
from placement.claims.requested import UNSET, ConsumerClaim, Unset
from placement.db import errors, sql, tables
from placement.db.batch import StatementBatch


class ConsumerAttributes(NamedTuple):
    """The columns of a consumer that a claim writes. ``UNSET`` keeps the value; in a new consumer it is NULL."""

    project_id: int
    user_id: int
    consumer_type_id: int | Unset


# Projects, users and types -------------------------------------------------------------------------------


def ensure_owners_and_types(
    tx: sa.Connection, claims: Sequence[ConsumerClaim], current: CurrentState
) -> dict[str, ConsumerAttributes]:
    """Return the columns of each consumer with requested allocations, by uuid.

    Insert the projects, users and types that do not exist.

    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    project_ids = _insert_missing(tx, tables.projects.c.external_id, current.projects)
    user_ids = _insert_missing(tx, tables.users.c.external_id, current.users)
    type_ids = _insert_missing(tx, tables.consumer_types.c.name, current.consumer_types)
    desired: dict[str, ConsumerAttributes] = {}
    for claim in claims:
        if claim.allocations:
            type_id = UNSET if isinstance(claim.consumer_type, Unset) else type_ids[claim.consumer_type]
            attributes = ConsumerAttributes(project_ids[claim.project_id], user_ids[claim.user_id], type_id)
            desired[claim.consumer_uuid] = attributes
    return desired


def _insert_missing(tx: sa.Connection, column: sa.Column[str], ids: Mapping[str, int | None]) -> Mapping[str, int]:
    """Insert the projects, users or types without an id.

    :param column: the column of the texts: ``external_id`` of projects or users, or ``name`` of consumer types.
    :param ids: by text, in ascending order.
    :returns: all ids by text.
    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    try:
        return {
            text: sql.new_id(tx.execute(column.table.insert().values({column.name: text}))) if id_ is None else id_
            for text, id_ in ids.items()
        }
    except db_exc.DBDuplicateEntry as error:
        raise errors.RetryTransaction from error


# Consumers -----------------------------------------------------------------------------------------------


_consumers = tables.consumers


def add_statements(
    batch: StatementBatch, desired: Mapping[str, ConsumerAttributes], existing: Mapping[str, ConsumerRow]
) -> None:
    """Add the statements that update, delete and insert consumers.

    ``batch.execute`` raises ``RetryTransaction`` if the generation of a consumer has changed.

    :param desired: the columns to write by consumer uuid.
    :param existing: the consumers of the claims that exist, by uuid, with the generation that was read together with
        the allocations. Those that are not in ``desired`` are deleted.
    """
    rows = sorted(existing.values(), key=operator.attrgetter('id'))
    deleted = [row for row in rows if row.uuid not in desired]
    if len(deleted) < len(rows):
        # Also those that are deleted next, because a statement locks only its own rows in order of id.
        _add_updates(batch, desired, rows)
        batch.add_for_ids('DELETE FROM {table} WHERE id IN ({ids})', [row.id for row in deleted], table=_consumers)
    else:
        for chunk in sql.chunks(deleted, sql.MAX_ROWS_PER_STATEMENT):
            text = sql.delete_in_id_order(batch.tx.dialect, _consumers, _unchanged(chunk), [row.id for row in chunk])
            batch.add_statement(text, rows=len(chunk), error=concurrent_update)
    columns = ', '.join(('uuid', 'generation', *ConsumerAttributes._fields))
    inserted = [
        (uuid, 1, *[None if value is UNSET else value for value in desired[uuid]])
        for uuid in sorted(desired.keys() - existing)
    ]
    batch.add_insert(_consumers, columns, inserted)


def _add_updates(
    batch: StatementBatch, desired: Mapping[str, ConsumerAttributes], existing: Sequence[ConsumerRow]
) -> None:
    for rows in sql.chunks(existing, sql.MAX_ROWS_PER_STATEMENT):
        assignments, assigned = 'generation = generation + 1, updated_at = ?', [timeutils.utcnow()]
        for column in ConsumerAttributes._fields:
            written = [
                (row.id, value)
                for row in rows
                if row.uuid in desired and (value := getattr(desired[row.uuid], column)) is not UNSET
            ]
            if written:
                cases = ' '.join(f'WHEN {id_:d} THEN ?' for id_, _ in written)
                # ELSE keeps the value. It also gives the expression a type, even if all new values are None.
                assignments += f', {column} = CASE id {cases} ELSE {column} END'
                assigned += [value for _, value in written]
        text, values = sql.update_in_order(
            batch.tx.dialect,
            _consumers,
            assignments,
            assigned,
            f'id IN ({", ".join(str(row.id) for row in rows)})',
            count=len(rows),
            condition=_unchanged(rows),
        )
        batch.add_statement(text, *values, rows=len(rows), error=concurrent_update)


def _unchanged(rows: Sequence[ConsumerRow]) -> str:
    return ' OR '.join(f'(id = {row.id:d} AND generation = {row.generation:d})' for row in rows)
