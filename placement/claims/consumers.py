"""Writes the rows of consumers, and of the projects, users and types that they refer to: steps 3 and 4 of a claim.

The API knows projects and users by an external id and types by a name, texts of 1 to 255 characters.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.claims.current import ConsumerRow, CurrentAllocations
from placement.claims.request import ConsumerClaim, Unset
from placement.db import api as db_api
from placement.db import sql, tables
from placement.db.batch import StatementBatch, expect_rows


class ConsumerAttributes(NamedTuple):
    """The columns that a claim writes. Without ``consumer_type_id`` a consumer that exists keeps its type."""

    project_id: int
    user_id: int
    consumer_type_id: int | None


class DesiredConsumer(NamedTuple):
    """The desired state of a consumer: ``attributes`` is None if it shall have no allocations."""

    uuid: str
    attributes: ConsumerAttributes | None


# Projects, users and types -------------------------------------------------------------------------------


def with_ids(tx: sa.Connection, claims: Sequence[ConsumerClaim], current: CurrentAllocations) -> list[DesiredConsumer]:
    """Return each consumer with the ids of its project, user and type. Insert those that do not exist yet.

    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    kept = [claim for claim in claims if claim.allocations]
    types = {claim.consumer_type for claim in kept if not isinstance(claim.consumer_type, Unset)}
    project_ids = _insert_missing(
        tx, tables.projects.c.external_id, {claim.project_id for claim in kept}, current.projects
    )
    user_ids = _insert_missing(tx, tables.users.c.external_id, {claim.user_id for claim in kept}, current.users)
    type_ids = _insert_missing(tx, tables.consumer_types.c.name, types, current.consumer_types)

    def attributes(claim: ConsumerClaim) -> ConsumerAttributes | None:
        if not claim.allocations:
            return None
        type_id = None if isinstance(claim.consumer_type, Unset) else type_ids[claim.consumer_type]
        return ConsumerAttributes(project_ids[claim.project_id], user_ids[claim.user_id], type_id)

    return [DesiredConsumer(claim.consumer_uuid, attributes(claim)) for claim in claims]


def ensure_owners(
    tx: sa.Connection, projects: Set[str], users: Set[str]
) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Find projects and users, and insert those that do not exist.

    :param projects: external ids, as are ``users``.
    :returns: the ids of the projects, and those of the users, by external id.
    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    columns = (tables.projects.c.external_id, tables.users.c.external_id)
    found = []
    for column, texts in zip(columns, (projects, users), strict=True):
        query = sa.select(column, column.table.c.id).where(column.in_(sa.bindparam('texts', expanding=True)))
        rows = itertools.chain.from_iterable(tx.execute(query, {'texts': chunk}) for chunk in sql.chunks(sorted(texts)))
        known = {row.external_id: row.id for row in rows}
        found.append(_insert_missing(tx, column, texts, known))
    return found[0], found[1]


def _insert_missing(
    tx: sa.Connection, column: sa.Column[str], texts: Set[str], known: Mapping[str, int]
) -> Mapping[str, int]:
    """Insert the projects, users or types that are not ``known``, in order of their texts.

    :param column: the column of the texts: ``external_id`` of projects or users, or ``name`` of consumer types.
    :param known: the ids of those that exist, by text.
    :returns: all ids by text.
    :raises RetryTransaction: another transaction inserted one of them at the same time.
    """
    missing = sorted(texts - known.keys())
    insert = column.table.insert()
    try:
        inserted = {text: sql.new_id(tx.execute(insert.values({column.name: text}))) for text in missing}
    except db_exc.DBDuplicateEntry as error:
        raise db_api.RetryTransaction from error
    return {**known, **inserted}


# Consumers -----------------------------------------------------------------------------------------------


class _Update(NamedTuple):
    row: ConsumerRow
    attributes: ConsumerAttributes


_TABLE = 'placement_consumers'
_UPDATE_ONE = (
    f'UPDATE {_TABLE} SET generation = generation + 1, project_id = ?, user_id = ?,'  # noqa: S608
    ' consumer_type_id = coalesce(?, consumer_type_id), updated_at = ? WHERE id = ? AND generation = ?'
)
_DELETE_ONE = f'DELETE FROM {_TABLE} WHERE id = ? AND generation = ?'  # noqa: S608


def retry() -> db_api.RetryTransaction:
    """Return the exception for a consumer that was changed, created or deleted since it was read."""
    return db_api.RetryTransaction(exception.ConcurrentUpdate())


def write(batch: StatementBatch, desired: Sequence[DesiredConsumer], existing: Mapping[str, ConsumerRow]) -> None:
    """Add the statements that update consumers, delete those that are to have no allocations, and insert new ones.

    When ``batch`` is executed it raises ``RetryTransaction`` if the generation of a consumer has changed.

    :param existing: the consumers that exist, by uuid, with the generation that was read along with their allocations.
    """
    inserts, updates, deletes = [], [], []
    for consumer in desired:
        row = existing.get(consumer.uuid)
        if consumer.attributes is None:
            deletes += [row] if row is not None else []
        elif row is not None:
            updates.append(_Update(row, consumer.attributes))
        else:
            inserts.append((consumer.uuid, 1, *consumer.attributes))
    if updates and deletes:
        # Each of the two statements that follow locks only its own rows in order of id.
        _add_lock(batch, sorted(row.id for row in (*(update.row for update in updates), *deletes)))
    _add_updates(batch, sorted(updates, key=lambda update: update.row.id))
    _add_deletes(batch, sorted(deletes, key=lambda row: row.id))
    columns = 'uuid, generation, project_id, user_id, consumer_type_id'
    for text, values in sql.bulk_insert(batch.tx, _TABLE, columns, sorted(inserts)):
        batch.add(text, *values)


def _add_lock(batch: StatementBatch, ids: Sequence[int]) -> None:
    for chunk in sql.chunks(ids):
        which = f'id IN ({sql.placeholders(len(chunk))})'
        batch.add(f'SELECT id FROM {_TABLE} WHERE {which} ORDER BY id{sql.for_update(batch.tx.dialect)}', *chunk)  # noqa: S608


def _add_updates(batch: StatementBatch, updates: Sequence[_Update]) -> None:
    moment = sql.now(batch.tx)
    if len(updates) == 1:
        ((row, attributes),) = updates
        values: Sequence[Any] = (*attributes, moment, row.id, row.generation)
        batch.add(_UPDATE_ONE, *values, check=expect_rows(1, retry))
        return
    for chunk in sql.chunks(updates, sql.MAX_ROWS_PER_STATEMENT):
        projects = _cases((row.id, attributes.project_id) for row, attributes in chunk)
        users = _cases((row.id, attributes.user_id) for row, attributes in chunk)
        types = [(row.id, attributes.consumer_type_id) for row, attributes in chunk if attributes.consumer_type_id]
        assignments = f'generation = generation + 1, project_id = {projects}, user_id = {users}, updated_at = ?'
        if types:
            assignments += f', consumer_type_id = coalesce({_cases(types)}, consumer_type_id)'
        rows = [row for row, _ in chunk]
        text, values = sql.update_in_order(
            batch.tx.dialect,
            _TABLE,
            assignments,
            [moment],
            f'id IN ({", ".join(str(row.id) for row in rows)})',
            count=len(rows),
            condition=_unchanged(rows),
        )
        batch.add(text, *values, check=expect_rows(len(rows), retry))


def _add_deletes(batch: StatementBatch, rows: Sequence[ConsumerRow]) -> None:
    if len(rows) == 1:
        batch.add(_DELETE_ONE, rows[0].id, rows[0].generation, check=expect_rows(1, retry))
        return
    for chunk in sql.chunks(rows, sql.MAX_ROWS_PER_STATEMENT):
        text = sql.delete_in_id_order(batch.tx.dialect, _TABLE, _unchanged(chunk), [row.id for row in chunk])
        batch.add(text, check=expect_rows(len(chunk), retry))


def _cases(values: Iterable[tuple[int, int]]) -> str:
    return f'CASE id {" ".join(f"WHEN {id_:d} THEN {value:d}" for id_, value in values)} END'


def _unchanged(rows: Sequence[ConsumerRow]) -> str:
    return ' OR '.join(f'(id = {row.id:d} AND generation = {row.generation:d})' for row in rows)
