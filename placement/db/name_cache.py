"""Caches of a process that save statements: ids of standard names, and uuids of aggregates.

Standard resource classes and traits are never deleted or renamed, so their ids cannot be out of date. Custom names are
looked up each time. A cached aggregate may have been deleted; code that relies on it has to detect that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from placement import exception
from placement.db import sql

CUSTOM_PREFIX = 'CUSTOM_'


def is_custom(name: str) -> bool:
    """Return whether ``name`` begins with ``CUSTOM_``: only such names can be created, renamed and deleted."""
    return name.startswith(CUSTOM_PREFIX)


class NameCache:
    """Ids of the names in one table; those of standard names are cached.

    :param table: ``tables.resource_classes`` or ``tables.traits``.
    :param not_found: the exception for names that do not exist.
    """

    def __init__(
        self, table: sa.Table, not_found: type[exception.ResourceClassNotFound] | type[exception.TraitNotFound]
    ) -> None:
        self._table = table
        self._not_found = not_found
        self._standard: dict[str, int] = {}

    def lock_ids(self, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
        """Return the ids of ``names``, and keep custom ones from being renamed or deleted until the transaction ends.

        For a transaction that is going to write these ids. One statement, with shared row locks, for the custom names;
        none for cached standard names. On SQLite no lock is needed, as there is one writer at a time. On a
        Galera cluster the lock is valid on one node only; changes on other nodes fail by the foreign keys, and no id
        is ever used again.

        :raises ResourceClassNotFound, TraitNotFound: some do not exist.
        """
        if not self._standard and not all(is_custom(name) for name in names):
            columns = self._table.c
            standard = ~columns.name.startswith(CUSTOM_PREFIX, autoescape=True)
            rows = tx.execute(sa.select(columns.name, columns.id).where(standard))
            self._standard.update({row.name: row.id for row in rows})
        ids = {name: self._standard[name] for name in names if name in self._standard}
        # Names that cannot be stored do not exist, and some drivers reject them.
        missing = sorted(name for name in set(names) - ids.keys() if sql.storable(name))
        for chunk in sql.chunks(missing):
            ids.update(self._look_up(tx, chunk))
        self._not_found.raise_unless_known(names, ids)
        return ids

    def _look_up(self, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
        columns = self._table.c
        # Locked in order of id, as everywhere, and shared: other transactions may lock the same names.
        query = (
            sa.select(columns.name, columns.id)
            .where(columns.name.in_(names))
            .order_by(columns.id)
            .with_for_update(read=True, key_share=True)
        )
        ids = {row.name: row.id for row in tx.execute(query)}
        self._standard.update((name, id_) for name, id_ in ids.items() if not is_custom(name))
        return ids


#: The largest number of cached aggregates, which take some ten megabytes.
MAX_KNOWN_AGGREGATES = 100_000


class KnownAggregates:
    """The uuids of aggregates that exist, as far as this process knows; an audit may have deleted some meanwhile."""

    def __init__(self) -> None:
        self._uuids: set[str] = set()

    def remember(self, uuids: Iterable[str]) -> None:
        """Add ``uuids`` to the cache; if it is full, remove all others."""
        if len(self._uuids) > MAX_KNOWN_AGGREGATES:
            self._uuids.clear()
        self._uuids.update(uuids)

    def invalidate(self, uuids: Iterable[str]) -> None:
        """Remove ``uuids`` from the cache."""
        self._uuids.difference_update(uuids)

    def unknown(self, uuids: Iterable[str]) -> list[str]:
        """Return those of ``uuids`` that are not in the cache, in their order."""
        return [uuid for uuid in uuids if uuid not in self._uuids]
