"""What a check of the audit covers, and how it reads that."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

import sqlalchemy as sa
from oslo_config import cfg

from placement.db import tables


class Scope(NamedTuple):
    """What a check covers: the whole database, or one subject right before its repair."""

    tx: sa.Connection
    conf: cfg.ConfigOpts
    #: The ``key`` of a finding: check only its subject, and lock it until the end of the transaction. None to check
    #: everything without locks. ``missing_reference`` has the name of a column and the id that is missing,
    #: ``allocation_without_consumer`` and ``allocation_owner_mismatch`` the uuid of a consumer, the others the id of a
    #: row.
    key: Any = None
    #: The kinds that this audit does not repair.
    excluded: Collection[str] = ()

    def assumes_repaired(self, kind: str) -> bool:
        """Return whether the check takes an earlier kind as repaired, so that an audit without repairs finds the same.

        Right before a repair it does not: then the rows show what was repaired, and what failed.
        """
        return self.key is None and kind not in self.excluded

    def restrict(self, query: sa.Select[Any], column: sa.Column[Any]) -> sa.Select[Any]:
        """Return the query of the row that has the key in this column, and lock this row; without a key, the query."""
        if self.key is None:
            return query
        condition = column == self.key
        self.tx.execute(column.table.select().where(condition).with_for_update())
        return query.where(condition)

    def unused_rows(self, column: sa.Column[Any], reference: sa.Column[Any]) -> Iterable[sa.Row[Any]]:
        """Return the rows that nothing refers to. The key is the id of one of them.

        :param column: their column that others refer to.
        :param reference: the column that refers to it; its table has rows of providers.
        """
        table, is_used = column.table, sa.exists().where(reference == column)
        if self.assumes_repaired('missing_reference'):
            # It deletes the rows of providers that do not exist.
            is_used = is_used.where(reference.table.c.resource_provider_id == tables.resource_providers.c.id)
        query = sa.select(table).where(~is_used).order_by(table.c.id)
        # The lock prevents new references: a claim updates the row of the consumer before it inserts allocations.
        return self.tx.execute(self.restrict(query, table.c.id))
