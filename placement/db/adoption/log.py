"""The part of an adoption that creates the change log, which another service does not have."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from placement.db import change_log_slots, tables
from placement.db.adoption.plan import Step


def problems(connection: sa.Connection) -> Iterator[str]:
    """Tables that have the names of the log's, but other columns."""
    inspector = sa.inspect(connection)
    present = set(inspector.get_table_names())
    for table in tables.LOG:
        if table.name in present:
            columns = {column['name'] for column in inspector.get_columns(table.name)}
            if columns != set(table.columns.keys()):
                yield f'The table {table.name} is not the one of this service, which needs the name: rename it first.'


def steps() -> Iterator[Step]:
    """The step that creates the tables of the log, with an entry that anything may have changed."""
    names = ' and '.join(table.name for table in tables.LOG)
    yield Step(f'Make the change log, the tables {names}.', _make)


def _make(connection: sa.Connection) -> None:
    tables.metadata.create_all(connection, tables=list(tables.LOG))
    # If the tables existed, a process that still runs may follow them.
    change_log_slots.append_reload(connection)
