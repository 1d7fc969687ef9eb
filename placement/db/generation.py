"""The generation of a provider: a number that most writes of the provider and its allocations increment.

A write of one provider compares its generation with the expected one (``increment_one``, ``increment_by_uuid``). A
reshape compares the generations of several providers (``increment``). A claim compares none (``increment_all``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import sqlalchemy as sa
from oslo_utils import timeutils

from placement import capacity, exception
from placement.db import change_log, sql, tables
from placement.db.batch import StatementBatch


class ProviderGeneration(NamedTuple):
    """A provider as it was read. Writes that rely on it check that the generation is still the same."""

    id: int
    uuid: str
    generation: int

    def raise_unless_equal(self, sent: int) -> None:
        """Compare the generation that the caller ``sent`` with this one.

        :raises ProviderGenerationMismatch: they differ.
        """
        if sent != self.generation:
            raise exception.ProviderGenerationMismatch(uuid=self.uuid, actual=self.generation, sent=sent)

    def incremented(self) -> ProviderGeneration:
        """Return the provider as it is after ``increment_one``."""
        return self._replace(generation=self.generation + 1)


def increment_one(batch: StatementBatch, provider: ProviderGeneration) -> None:
    """Add the UPDATE that increments the generation of ``provider`` if it is unchanged, and record this in the log.

    The UPDATE locks the provider's row until the transaction ends. If the generation has changed, or the provider was
    deleted, ``batch.execute`` raises ``ConcurrentProviderUpdate``.
    """

    values = (timeutils.utcnow(), provider.id, provider.generation)
    text = f'{_INCREMENT} WHERE id = ? AND generation = ?'
    batch.add_statement(text, *values, rows=1, error=exception.ConcurrentProviderUpdate)
    change_log.record_providers(batch.tx, [provider.id])


def increment_by_uuid(tx: sa.Connection, uuid: str, expected: int) -> int | None:
    """Execute the UPDATE of ``increment_one`` for a provider that was not read before.

    :param uuid: a canonical uuid.
    :param expected: the generation that the provider must have.
    :returns: the id; None if there is no such provider, or it has another generation.
    """
    # Values that cannot be stored match no provider, and some drivers reject them.
    if not (sql.storable(uuid) and 0 <= expected <= capacity.MAX_INT32):
        return None
    values = (timeutils.utcnow(), uuid, expected)
    if sql.is_mysql(tx.dialect):
        # MySQL and MariaDB have no UPDATE ... RETURNING. LAST_INSERT_ID(id) makes the server report the id as
        # lastrowid. Ids begin at 1, so comparing the id with 0 gives the 1 to add to the generation.
        updated = sql.execute_text(tx, _INCREMENT_BY_UUID_ON_MYSQL, *values)
        provider_id = updated.lastrowid if updated.rowcount else None
    elif tx.dialect.update_returning:
        provider_id = sql.execute_text(tx, f'{_INCREMENT_BY_UUID} RETURNING id', *values).scalar_one_or_none()
    else:
        # SQLite before 3.35.
        updated = sql.execute_text(tx, _INCREMENT_BY_UUID, *values)
        provider_id = sql.execute_text(tx, _ID, uuid).scalar_one() if updated.rowcount else None
    if provider_id is not None:
        change_log.record_providers(tx, [provider_id])
    return provider_id


def increment_all(batch: StatementBatch, provider_ids: Iterable[int]) -> None:
    """Add the UPDATE that increments the generations of providers without comparing them. Lock rows in order of id.

    Claims do not compare generations, so two concurrent claims succeed if both fit. The caller records the change in
    the log.
    """
    moment = timeutils.utcnow()
    for chunk in sql.chunks(sorted(provider_ids)):
        rows = f'id IN ({sql.placeholders(len(chunk))})'
        text, values = sql.update_in_order(
            batch.tx.dialect, _providers, _INCREMENTED, [moment], rows, chunk, count=len(chunk)
        )
        batch.add_statement(text, *values)


def increment(batch: StatementBatch, amounts: Mapping[int, int], expected: Mapping[int, int]) -> None:
    """Add the UPDATEs that increment generations by different amounts. Lock the rows in order of id.

    ``batch.execute`` raises ``RetryTransaction`` if a provider was deleted or does not have the expected generation.
    The caller records the change in the log.

    :param amounts: the amount to add, by provider id.
    :param expected: the generation that a provider must still have, by the ids of some of the providers.
    """
    for chunk in sql.chunks(sorted(amounts), sql.MAX_ROWS_PER_STATEMENT):
        cases = ' '.join(f'WHEN {id_:d} THEN {amounts[id_]:d}' for id_ in chunk)
        condition = ' OR '.join(
            f'(id = {id_:d} AND generation = {expected[id_]:d})' if id_ in expected else f'id = {id_:d}'
            for id_ in chunk
        )
        text, values = sql.update_in_order(
            batch.tx.dialect,
            _providers,
            f'generation = generation + CASE id {cases} END, updated_at = ?',
            [timeutils.utcnow()],
            f'id IN ({", ".join(map(str, chunk))})',
            count=len(chunk),
            condition=condition,
        )
        batch.add_statement(text, *values, rows=len(chunk))


_providers = tables.resource_providers
_INCREMENTED = 'generation = generation + 1, updated_at = ?'
_INCREMENT = sql.statement('UPDATE {table} SET {set}', table=_providers, set=_INCREMENTED)
_INCREMENT_BY_UUID = f'{_INCREMENT} WHERE uuid = ? AND generation = ?'
_INCREMENT_BY_UUID_ON_MYSQL = _INCREMENT_BY_UUID.replace('+ 1', '+ (LAST_INSERT_ID(id) > 0)')
_ID = sql.statement('SELECT id FROM {table} WHERE uuid = ?', table=_providers)
