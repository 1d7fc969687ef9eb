"""The names with which rows that other rows refer to, and that do not exist, are inserted again."""

from __future__ import annotations

import sqlalchemy as sa

from placement.db import tables

_LOST_NAMES: dict[sa.Column[str], str] = {
    tables.resource_classes.c.name: 'CUSTOM_LOST_CLASS_{}',
    tables.projects.c.external_id: 'lost-project-{}',
    tables.users.c.external_id: 'lost-user-{}',
    tables.consumer_types.c.name: 'LOST_TYPE_{}',
}
#: The columns of these names, by their tables.
NAME_COLUMNS = {column.table: column for column in _LOST_NAMES}


def lost_name(column: sa.Column[str], id_: int) -> str:
    """Return the name of a lost row: of a standard class its own, otherwise a name that says so and has the id.

    :param column: one of ``NAME_COLUMNS``.
    """
    text = _LOST_NAMES[column].format(id_)
    return tables.STANDARD_CLASSES.get(id_, text) if column.table is tables.resource_classes else text
