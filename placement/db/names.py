"""Names and ids of resource classes and traits, with what never changes kept in memory.

Standard names are never removed or renamed (contract A 3.3, 3.4), so a process may remember their ids whatever other
processes do. Custom names come and go and are looked up each time.
"""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

CUSTOM_PREFIX = 'CUSTOM_'


def is_custom(name: str) -> bool:
    """Whether ``name`` is in the part of the name space that clients may change."""
    return name.startswith(CUSTOM_PREFIX)


class NameCache:
    """Ids of the names in one table (``resource_classes`` or ``traits``)."""

    def __init__(self, table: sa.Table) -> None:
        self._table = table
        self._standard: dict[str, int] = {}

    def ids(self, tx: sa.Connection, names: Iterable[str]) -> dict[str, int]:
        """The ids of those of ``names`` that exist, in at most one statement; none when all are known standards."""
        wanted = set(names)
        known = {name: self._standard[name] for name in wanted if name in self._standard}
        # A text with a NUL or a lone surrogate cannot be stored, and some drivers refuse to ask for it.
        missing = sorted(name for name in wanted - known.keys() if storable(name))
        if missing:
            known.update(self._look_up(tx, missing))
        return known

    def _look_up(self, tx: sa.Connection, names: list[str]) -> dict[str, int]:
        columns = self._table.c
        condition: sa.ColumnElement[bool] = columns.name.in_(names)
        if not self._standard:
            # The first question fetches all standard names at once.
            condition |= ~columns.name.startswith(CUSTOM_PREFIX, autoescape=True)
        found = {row.name: row.id for row in tx.execute(sa.select(columns.name, columns.id).where(condition))}
        self._standard.update((name, id_) for name, id_ in found.items() if not is_custom(name))
        return {name: found[name] for name in names if name in found}


def storable(text: str) -> bool:
    """False for text that no database could hold, with a NUL or a lone surrogate, and that some refuse to look for."""
    return '\x00' not in text and not any('\ud800' <= char <= '\udfff' for char in text)
