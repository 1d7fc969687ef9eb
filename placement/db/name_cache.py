"""Names and ids of resource classes and traits, with what never changes kept in memory; and aggregates, as met.

Standard names are never removed or renamed, so a process may remember their ids whatever other
processes do. Custom names come and go and are looked up each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import sqlalchemy as sa

from placement import exception
from placement.db import statements

CUSTOM_PREFIX = 'CUSTOM_'


def is_custom(name: str) -> bool:
    """Whether ``name`` is in the part of the name space that clients may change."""
    return name.startswith(CUSTOM_PREFIX)


class NameCache:
    """Ids of the names in one table.

    :param table: ``resource_classes`` or ``traits``.
    :param not_found: what is raised for names that it lacks.
    """

    def __init__(
        self, table: sa.Table, not_found: type[exception.ResourceClassNotFound] | type[exception.TraitNotFound]
    ) -> None:
        self._table = table
        self._not_found = not_found
        self._standard: dict[str, int] = {}

    def hold(self, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
        """The ids of ``names``, which stay what they are until the transaction ends: nobody renames or deletes them.

        No statement when all are known standards. For whoever writes what a name stands for. Where a server has no
        such lock on another node of a cluster, or on SQLite, where nobody else writes, the foreign keys and ids that
        are never used again do.

        :raises ResourceClassNotFound, TraitNotFound: some do not exist.
        """
        known = self._known(tx, names)
        self._not_found.check(names, known)
        return known

    def _known(self, tx: sa.Connection, names: Iterable[str]) -> dict[str, int]:
        wanted = set(names)
        if not self._standard and not all(is_custom(name) for name in wanted):
            self._load_standard(tx)
        known = {name: self._standard[name] for name in wanted if name in self._standard}
        # A text with a NUL or a lone surrogate cannot be stored, and some drivers refuse to ask for it.
        missing = sorted(name for name in wanted - known.keys() if statements.storable(name))
        for batch in statements.batches(missing):
            known.update(self._look_up(tx, batch))
        return known

    def _load_standard(self, tx: sa.Connection) -> None:
        columns = self._table.c
        standard = ~columns.name.startswith(CUSTOM_PREFIX, autoescape=True)
        found = tx.execute(sa.select(columns.name, columns.id).where(standard))
        self._standard.update({row.name: row.id for row in found})

    def _look_up(self, tx: sa.Connection, names: Sequence[str]) -> dict[str, int]:
        columns = self._table.c
        # In one order everywhere, and weak enough to let others hold the same names.
        query = (
            sa.select(columns.name, columns.id)
            .where(columns.name.in_(names))
            .order_by(columns.id)
            .with_for_update(read=True, key_share=True)
        )
        found = {row.name: row.id for row in tx.execute(query)}
        self._standard.update((name, id_) for name, id_ in found.items() if not is_custom(name))
        return found


#: How many are remembered, in some ten megabytes.
_MOST_HEARD = 100_000


class Heard:
    """Aggregates that this process has met: they need not be created, unless an audit removed them meanwhile."""

    def __init__(self) -> None:
        self._uuids: set[str] = set()

    def add(self, uuids: Iterable[str]) -> None:
        """Remember these."""
        if len(self._uuids) > _MOST_HEARD:
            self._uuids.clear()
        self._uuids.update(uuids)

    def forget(self, uuids: Iterable[str]) -> None:
        """Do not rely on these any more."""
        self._uuids.difference_update(uuids)

    def lacks(self, uuids: Iterable[str]) -> list[str]:
        """Those that it does not know."""
        return [uuid for uuid in uuids if uuid not in self._uuids]
