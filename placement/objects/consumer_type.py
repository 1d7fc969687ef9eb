"""Types of consumers: names that clients choose, such as INSTANCE. ``claims`` inserts them; they are never removed."""

from __future__ import annotations

import sqlalchemy as sa

from placement.db import tables

#: What is shown as the type of a consumer that has none.
UNKNOWN = 'unknown'

#: The name that is shown, in a query that has an outer join with the table of types.
SHOWN_NAME: sa.ColumnElement[str] = sa.func.coalesce(
    tables.consumer_types.c.name, sa.literal_column(f"'{UNKNOWN}'", sa.String)
)
