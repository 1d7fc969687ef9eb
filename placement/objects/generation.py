"""The generation of a provider: moved by one with each effective write, never taken for granted."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement import exception, room
from placement.db import changes, names, statements
from placement.db.together import Together


def bump(together: Together, provider: Any) -> None:
    """Move ``provider``'s generation from the value it was read with; locks its row until the transaction ends.

    Notes that the provider changes, as that is what its generation says. If it is no longer that value, or the provider
    is gone, ``together`` raises ``ConcurrentProviderUpdate``.

    :param provider: a ``ResourceProvider``.
    """
    which = (provider.id, provider.generation)
    together.add(f'{_BUMP} id = ? AND generation = ?', statements.now(together.tx), *which, judge=judge)
    changes.providers(together.tx, [provider.id])


def judge(count: int) -> None:
    """What it means when not one row was changed."""
    if count != 1:
        raise exception.ConcurrentProviderUpdate


def bump_unread(tx: sa.Connection, uuid: str, seen: int) -> int | None:
    """As ``bump``, of a provider that nobody has looked for.

    :param uuid: canonical.
    :param seen: the generation that it is to have.
    :returns: its id; None if there is no such provider, or it has another generation.
    """
    # Nobody has what no database holds, and some refuse to look for it.
    if not (names.storable(uuid) and 0 <= seen <= room.LARGEST):
        return None
    which = (statements.now(tx), uuid, seen)
    if statements.is_mysql(tx.dialect):
        # They return no rows of an UPDATE, but the last value of this function; and an id is not below 1.
        moved = statements.run(tx, _BUMP_ON_MYSQL, *which)
        found = moved.lastrowid if moved.rowcount else None
    else:
        found = statements.run(tx, f'{_BUMP} uuid = ? AND generation = ? RETURNING id', *which).scalar_one_or_none()
    if found is not None:
        changes.providers(tx, [found])
    return found


_BUMP = 'UPDATE placement_resource_providers SET generation = generation + 1, updated_at = ? WHERE'
_BUMP_ON_MYSQL = f'{_BUMP} uuid = ? AND generation = ?'.replace('+ 1', '+ (LAST_INSERT_ID(id) > 0)')
