"""The standard resource classes and traits, inserted where they are missing."""

from __future__ import annotations

import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement.db import sql, tables

Rows = list[dict[str, object]]


def are_complete(tx: sa.Connection) -> bool:
    """Return whether the database has all standard classes and traits."""
    return not any(rows for _, rows in _missing(tx))


def insert_missing(tx: sa.Connection) -> None:
    """Insert each standard class and trait that the database lacks; nothing is ever removed or renamed.

    Several processes may do this at the same time: a row that exists is left alone. The caller records the change in
    the log (``change_log.record_names``).
    """
    for table, rows in _missing(tx):
        if rows:
            tx.execute(sql.insert_unless_present(tx, table), rows)


def _missing(tx: sa.Connection) -> list[tuple[sa.Table, Rows]]:
    classes: Rows = [{'id': id_, 'name': name} for id_, name in enumerate(os_resource_classes.STANDARDS)]
    traits: Rows = [{'name': name} for name in sorted(os_traits.get_traits())]
    missing = []
    for table, rows in ((tables.resource_classes, classes), (tables.traits, traits)):
        present = set(tx.scalars(sa.select(table.c.name)))
        missing.append((table, [row for row in rows if row['name'] not in present]))
    return missing
