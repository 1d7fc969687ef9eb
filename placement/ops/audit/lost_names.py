"""The names with which rows that other rows refer to, and that do not exist, are inserted again."""

from __future__ import annotations

import sqlalchemy as sa

from placement.db import tables

#: By the table of the row. The name has the id of the row.
LOST_NAMES = {
    tables.resource_classes: 'CUSTOM_LOST_CLASS_{}',
    tables.projects: 'lost-project-{}',
    tables.users: 'lost-user-{}',
    tables.consumer_types: 'LOST_TYPE_{}',
}


def lost_name(table: sa.Table, id_: int) -> str:
    """Return the name with which a lost row is inserted: of a standard class its own, otherwise a name that says so."""
    text = LOST_NAMES[table].format(id_)
    return tables.STANDARD_CLASSES.get(id_, text) if table is tables.resource_classes else text
