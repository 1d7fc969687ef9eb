"""The generation of a provider: moved by one with each effective write, never taken for granted."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.db import changes, tables

_providers = tables.resource_providers


def bump(tx: sa.Connection, provider: Any) -> None:
    """Move ``provider``'s generation from the value it was read with; locks its row until the transaction ends.

    Notes that the provider changes, as that is what its generation says.

    :param provider: a ``ResourceProvider``.
    :raises ConcurrentProviderUpdate: it is no longer that value, or the provider is gone.
    """
    if tx.execute(_BUMP, {'provider': provider.id, 'seen': provider.generation}).rowcount != 1:
        raise exception.ConcurrentProviderUpdate
    changes.providers(tx, [provider.id])


_BUMP = (
    _providers.update()
    .where(_providers.c.id == sa.bindparam('provider'), _providers.c.generation == sa.bindparam('seen'))
    .values(generation=_providers.c.generation + 1)
)
