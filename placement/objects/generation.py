"""The generation of a provider: moved by one with each effective write, never taken for granted."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement import exception
from placement.db import changes, tables

_providers = tables.resource_providers


def check(tx: sa.Connection, provider: Any) -> None:
    """Make sure that ``provider``'s generation is still the value that it was read with; locks nothing.

    :param provider: a ``ResourceProvider``.
    :raises ConcurrentProviderUpdate: it is not, or the provider is gone (contract A 1.13).
    """
    unmoved = sa.and_(_providers.c.id == provider.id, _providers.c.generation == provider.generation)
    if tx.scalar(sa.select(_providers.c.id).where(unmoved)) is None:
        raise exception.ConcurrentProviderUpdate


def bump(tx: sa.Connection, provider: Any) -> None:
    """Move ``provider``'s generation from the value it was read with; locks its row until the transaction ends.

    Notes that the provider changes, as that is what its generation says.

    :param provider: a ``ResourceProvider``.
    :raises ConcurrentProviderUpdate: it is no longer that value, or the provider is gone (contract A 1.13).
    """
    moved = tx.execute(
        _providers.update()
        .where(_providers.c.id == provider.id, _providers.c.generation == provider.generation)
        .values(generation=provider.generation + 1)
    )
    if moved.rowcount != 1:
        raise exception.ConcurrentProviderUpdate
    changes.providers(tx, [provider.id])
