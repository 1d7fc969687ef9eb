"""The standard resource classes and traits, inserted where they are missing (contract A 3.3, 3.4)."""

from __future__ import annotations

import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement.db import statements, tables


def insert_missing(tx: sa.Connection) -> None:
    """Insert each standard class and trait that the database lacks; nothing is ever removed or renamed.

    Safe when several processes do it at once: a row that is already there is left alone.
    """
    classes = [{'id': id_, 'name': name} for id_, name in enumerate(os_resource_classes.STANDARDS)]
    _insert(tx, tables.resource_classes, classes)
    _insert(tx, tables.traits, [{'name': name} for name in sorted(os_traits.get_traits())])


def _insert(tx: sa.Connection, table: sa.Table, rows: list[dict[str, object]]) -> None:
    present = set(tx.scalars(sa.select(table.c.name)))
    missing = [row for row in rows if row['name'] not in present]
    if missing:
        tx.execute(statements.insert_unless_present(tx, table), missing)
