"""A cache of the ids of standard resource classes and traits, which saves statements.

These are never deleted or renamed, so their ids cannot be out of date. Custom names are looked up each time.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from placement import exception
from placement.db import sql

CUSTOM_PREFIX = 'CUSTOM_'


def is_custom(name: str) -> bool:
    """Return whether ``name`` begins with ``CUSTOM_``. Clients can create, rename and delete only such names."""
    return name.startswith(CUSTOM_PREFIX)


class NameCache:
    """The ids of the names in one table. The ids of standard names are cached.

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
        """Return the ids of ``names``. Until the transaction ends, custom ones cannot be renamed or deleted.

        This is for transactions that write these ids. It takes one statement, with shared row locks, for custom names,
        and none for cached standard names. SQLite needs no lock, because it has one writer at a time. On a Galera
        cluster the lock is valid on one node only; there foreign keys make deletions on other nodes fail, and no id is
        ever used again.

        :raises ResourceClassNotFound, TraitNotFound: some do not exist.
        """
        if not self._standard and not all(is_custom(name) for name in names):
            columns = self._table.c
            standard = ~columns.name.startswith(CUSTOM_PREFIX, autoescape=True)
            rows = tx.execute(sa.select(columns.name, columns.id).where(standard))
            self._standard.update({row.name: row.id for row in rows})
        ids = {name: self._standard[name] for name in names if name in self._standard}
        # Names that cannot be stored do not exist, and some drivers reject such text.
        missing = sorted(name for name in set(names) - ids.keys() if sql.storable(name))
        for chunk in sql.chunks(missing):
            ids.update(self._look_up(tx, chunk))
        self._not_found.raise_unless_known(names, ids)
        return ids

    def _look_up(self, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
        columns = self._table.c
        # As everywhere, rows are locked in order of id. The locks are shared: several transactions may hold them.
        query = (
            sa.select(columns.name, columns.id)
            .where(columns.name.in_(names))
            .order_by(columns.id)
            .with_for_update(read=True, key_share=True)
        )
        ids = {row.name: row.id for row in tx.execute(query)}
        self._standard.update((name, id_) for name, id_ in ids.items() if not is_custom(name))
        return ids
