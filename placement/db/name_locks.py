"""Locks the names of resource classes and traits that a transaction refers to.

Standard names are never deleted or renamed. So they need no lock, and their ids cannot be out of date.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from placement import exception
from placement.db import sql, tables

CUSTOM_PREFIX = 'CUSTOM_'


def is_custom(name: str) -> bool:
    """Return whether ``name`` begins with ``CUSTOM_``. Clients can create, rename and delete only such names."""
    return name.startswith(CUSTOM_PREFIX)


def lock_names(tx: sa.Connection, table: sa.Table, names: Sequence[str]) -> dict[str, int]:
    """Return the ids of those of ``names`` that exist. Until the transaction ends, nobody can rename or delete them.

    This takes one statement, with shared row locks. SQLite needs no lock, because it has one writer at a time. On a
    Galera cluster the lock is valid on one node only; there foreign keys make deletions on other nodes fail, and no id
    is ever used again.

    :param table: ``tables.resource_classes`` or ``tables.traits``.
    """
    columns, ids = table.c, dict[str, int]()
    # Names that cannot be stored do not exist, and some drivers reject such text.
    for chunk in sql.chunks(sorted(name for name in set(names) if sql.storable(name))):
        # As everywhere, rows are locked in order of id. The locks are shared: several transactions may hold them.
        query = (
            sa.select(columns.name, columns.id)
            .where(columns.name.in_(chunk))
            .order_by(columns.id)
            .with_for_update(read=True, key_share=True)
        )
        ids.update((row.name, row.id) for row in tx.execute(query))
    return ids


class ResourceClassIds:
    """The ids of resource classes. Those of standard classes are remembered, which saves a statement of each write."""

    def __init__(self) -> None:
        self._standard: dict[str, int] = {}

    def lock_ids(self, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
        """Return the ids of ``names``. Until the transaction ends, custom ones cannot be renamed or deleted.

        This is for transactions that write these ids. It takes one statement for custom names, and none for cached
        standard names.

        :raises ResourceClassNotFound: some do not exist.
        """
        columns = tables.resource_classes.c
        if not self._standard and not all(is_custom(name) for name in names):
            standard = ~columns.name.startswith(CUSTOM_PREFIX, autoescape=True)
            rows = tx.execute(sa.select(columns.name, columns.id).where(standard))
            self._standard.update({row.name: row.id for row in rows})
        ids, unknown = dict[str, int](), []
        for name in names:
            if name in self._standard:
                ids[name] = self._standard[name]
            else:
                unknown.append(name)
        if unknown:
            locked = lock_names(tx, tables.resource_classes, unknown)
            for name in unknown:
                if name not in locked:
                    raise exception.ResourceClassNotFound(names=name)
            # A newer release may have inserted standard names.
            self._standard.update((name, id_) for name, id_ in locked.items() if not is_custom(name))
            ids |= locked
        return ids
