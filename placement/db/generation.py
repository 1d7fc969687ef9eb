"""The generation of a provider: moved by one with each effective write, never taken for granted."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import sqlalchemy as sa

from placement import exception, room
from placement.db import changes, statements
from placement.db.together import Together


class KnownProvider(Protocol):
    """A provider as somebody read it: what is written relies on its generation."""

    @property
    def id(self) -> int: ...

    @property
    def uuid(self) -> str: ...

    @property
    def generation(self) -> int: ...


def bump(together: Together, provider: KnownProvider) -> None:
    """Move ``provider``'s generation from the value it was read with; locks its row until the transaction ends.

    Notes that the provider changes, as that is what its generation says. If it is no longer that value, or the provider
    is gone, ``together`` raises ``ConcurrentProviderUpdate``.
    """
    which = (provider.id, provider.generation)
    together.add(f'{_MOVE} WHERE id = ? AND generation = ?', statements.now(together.tx), *which, check=_expect_one)
    changes.providers(together.tx, [provider.id])


def _expect_one(count: int) -> None:
    if count != 1:
        raise exception.ConcurrentProviderUpdate


def bump_unread(tx: sa.Connection, uuid: str, seen: int) -> int | None:
    """As ``bump``, of a provider that nobody has looked for.

    :param uuid: canonical.
    :param seen: the generation that it is to have.
    :returns: its id; None if there is no such provider, or it has another generation.
    """
    # Nobody has what no database holds, and some refuse to look for it.
    if not (statements.storable(uuid) and 0 <= seen <= room.LARGEST):
        return None
    which = (statements.now(tx), uuid, seen)
    if statements.is_mysql(tx.dialect):
        # They return no rows of an UPDATE, but the last value of this function; and an id is not below 1.
        moved = statements.run(tx, _MOVE_SEEN_ON_MYSQL, *which)
        found = moved.lastrowid if moved.rowcount else None
    elif tx.dialect.update_returning:
        found = statements.run(tx, f'{_MOVE_SEEN} RETURNING id', *which).scalar_one_or_none()
    else:
        # SQLite before 3.35.
        moved = statements.run(tx, _MOVE_SEEN, *which)
        found = statements.run(tx, _ID, uuid).scalar_one() if moved.rowcount else None
    if found is not None:
        changes.providers(tx, [found])
    return found


def bump_all(together: Together, provider_ids: Iterable[int]) -> None:
    """Move the generations of providers by one from whatever they are now, in the order of their ids.

    For claims: two that both fit need not refuse each other. Who calls it notes what changes.
    """
    for batch in statements.batches(sorted(provider_ids)):
        together.add(_all(together.tx.dialect.name, len(batch)), *_values(together.tx, batch))


@functools.lru_cache(maxsize=128)
def _all(dialect: str, count: int) -> str:
    """The statement that moves ``count`` generations, in the order of their ids."""
    which = f'id IN ({statements.marks(count)})'
    if dialect != 'postgresql' or count == 1:
        return f'{_MOVE} WHERE {which}'
    held = f'SELECT id AS held_id FROM placement_resource_providers WHERE {which} ORDER BY id FOR NO KEY UPDATE'  # noqa: S608
    return f'WITH held AS ({held}) {_MOVE} FROM held WHERE id = held_id'


def _values(tx: sa.Connection, provider_ids: Sequence[int]) -> list[Any]:
    moment = statements.now(tx)
    first = tx.dialect.name == 'postgresql' and len(provider_ids) > 1
    return [*provider_ids, moment] if first else [moment, *provider_ids]


_MOVE = 'UPDATE placement_resource_providers SET generation = generation + 1, updated_at = ?'
_MOVE_SEEN = f'{_MOVE} WHERE uuid = ? AND generation = ?'
_MOVE_SEEN_ON_MYSQL = _MOVE_SEEN.replace('+ 1', '+ (LAST_INSERT_ID(id) > 0)')
_ID = 'SELECT id FROM placement_resource_providers WHERE uuid = ?'
