"""The generation of a provider: a number that each write which changes something moves up by one.

A write of one provider compares it with the value that was read before (``increment_one``, ``increment_by_uuid``), a
reshape those of several (``increment``); a claim does not (``increment_all``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import sqlalchemy as sa

from placement import capacity, exception
from placement.db import api as db_api
from placement.db import change_log, sql
from placement.db.batch import StatementBatch


class KnownProvider(Protocol):
    """A provider as it was read. A write that relies on what was read checks that ``generation`` is still the same."""

    @property
    def id(self) -> int: ...

    @property
    def uuid(self) -> str: ...

    @property
    def generation(self) -> int: ...


def increment_one(batch: StatementBatch, provider: KnownProvider) -> None:
    """Add the UPDATE that moves the generation of ``provider`` if it is still the one that was read.

    It locks the provider's row until the transaction ends. If the generation is another one, or the provider was
    deleted, ``batch`` raises ``ConcurrentProviderUpdate`` when it is run. The change is noted for the log.
    """
    which = (provider.id, provider.generation)
    batch.add(f'{_MOVE} WHERE id = ? AND generation = ?', sql.now(batch.tx), *which, check=_expect_one)
    change_log.record_providers(batch.tx, [provider.id])


def _expect_one(count: int) -> None:
    if count != 1:
        raise exception.ConcurrentProviderUpdate


def increment_by_uuid(tx: sa.Connection, uuid: str, expected: int) -> int | None:
    """As ``increment_one``, at once, for a provider that was not read before.

    :param uuid: canonical.
    :param expected: the generation that the provider must have.
    :returns: its id; None if there is no such provider, or it has another generation.
    """
    # No provider has a uuid or a generation that cannot be stored, and some drivers refuse to send such a value.
    if not (sql.storable(uuid) and 0 <= expected <= capacity.MAX_INT32):
        return None
    values = (sql.now(tx), uuid, expected)
    if sql.is_mysql(tx.dialect):
        # These have no UPDATE ... RETURNING. LAST_INSERT_ID(id) makes the server report the id as lastrowid; compared
        # with 0 it adds 1 to the generation, as ids begin at 1.
        moved = sql.run(tx, _MOVE_BY_UUID_ON_MYSQL, *values)
        found = moved.lastrowid if moved.rowcount else None
    elif tx.dialect.update_returning:
        found = sql.run(tx, f'{_MOVE_BY_UUID} RETURNING id', *values).scalar_one_or_none()
    else:
        # SQLite before 3.35.
        moved = sql.run(tx, _MOVE_BY_UUID, *values)
        found = sql.run(tx, _ID, uuid).scalar_one() if moved.rowcount else None
    if found is not None:
        change_log.record_providers(tx, [found])
    return found


def increment_all(batch: StatementBatch, provider_ids: Iterable[int]) -> None:
    """Add the UPDATE that moves the generations of providers, whatever they are, locking the rows in order of id.

    Claims do not compare generations, so two claims that both fit both succeed. The caller notes the change for the
    log.
    """
    for chunk in sql.chunks(sorted(provider_ids)):
        batch.add(_all(batch.tx.dialect.name, len(chunk)), *_values(batch.tx, chunk))


class Increment(NamedTuple):
    """By how much a generation is incremented; if ``expected`` is given, only if it still has that value."""

    amount: int
    expected: int | None = None


def increment(batch: StatementBatch, increments: Mapping[int, Increment]) -> None:
    """Add the UPDATEs that increment generations by different amounts, locking the rows in order of id.

    When ``batch`` is run it raises ``RetryTransaction`` if a provider was deleted or has not the expected
    generation. The caller notes the change for the log.

    :param increments: by provider id.
    """
    ids = sorted(increments)
    for start in range(0, len(ids), _MOST):
        some = ids[start : start + _MOST]
        text = _incrementing(batch.tx.dialect, {id_: increments[id_] for id_ in some})
        batch.add(text, sql.now(batch.tx), check=functools.partial(_expect_all, len(some)))


#: How many rows one statement changes. SQLite refuses a chain of more than 1,000 conditions.
_MOST = 300


def _expect_all(expected: int, count: int) -> None:
    if count != expected:
        raise db_api.RetryTransaction


def _incrementing(dialect: sa.Dialect, increments: Mapping[int, Increment]) -> str:
    amounts = ' '.join(f'WHEN {id_:d} THEN {one.amount:d}' for id_, one in increments.items())
    which = ' OR '.join(
        f'id = {id_:d}' if one.expected is None else f'(id = {id_:d} AND generation = {one.expected:d})'
        for id_, one in increments.items()
    )
    changed = f'SET generation = generation + CASE id {amounts} END, updated_at = ?'
    if dialect.name == 'postgresql':
        ids = ', '.join(f'{id_:d}' for id_ in increments)
        held = f'SELECT id AS held_id FROM placement_resource_providers WHERE id IN ({ids}) ORDER BY id'  # noqa: S608
        return (
            f'WITH held AS ({held} FOR NO KEY UPDATE) UPDATE placement_resource_providers {changed}'
            f' FROM held WHERE id = held_id AND ({which})'
        )
    index = ' FORCE INDEX (PRIMARY)' if sql.is_mysql(dialect) else ''
    return f'UPDATE placement_resource_providers{index} {changed} WHERE {which}'


@functools.lru_cache(maxsize=128)
def _all(dialect: str, count: int) -> str:
    """The statement that moves ``count`` generations, and locks the rows in order of id."""
    which = f'id IN ({sql.placeholders(count)})'
    if dialect != 'postgresql' or count == 1:
        return f'{_MOVE} WHERE {which}'
    held = f'SELECT id AS held_id FROM placement_resource_providers WHERE {which} ORDER BY id FOR NO KEY UPDATE'  # noqa: S608
    return f'WITH held AS ({held}) {_MOVE} FROM held WHERE id = held_id'


def _values(tx: sa.Connection, provider_ids: Sequence[int]) -> list[Any]:
    moment = sql.now(tx)
    first = tx.dialect.name == 'postgresql' and len(provider_ids) > 1
    return [*provider_ids, moment] if first else [moment, *provider_ids]


_MOVE = 'UPDATE placement_resource_providers SET generation = generation + 1, updated_at = ?'
_MOVE_BY_UUID = f'{_MOVE} WHERE uuid = ? AND generation = ?'
_MOVE_BY_UUID_ON_MYSQL = _MOVE_BY_UUID.replace('+ 1', '+ (LAST_INSERT_ID(id) > 0)')
_ID = 'SELECT id FROM placement_resource_providers WHERE uuid = ?'
