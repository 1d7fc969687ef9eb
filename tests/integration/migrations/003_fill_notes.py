"""An example: fill a column that the migration before it has added."""

from __future__ import annotations

import sqlalchemy as sa

revision = '003'
down_revision = '002'

_ROWS_PER_BATCH = 1000
_allocations = sa.table('placement_allocations', sa.column('id'), sa.column('used'), sa.column('note'))


def copy_rows(connection: sa.Connection) -> bool:
    """Fill the column in the next rows, and return whether there may be more."""
    rows = sa.select(_allocations.c.id).where(_allocations.c.note.is_(None)).order_by(_allocations.c.id)
    ids = connection.scalars(rows.limit(_ROWS_PER_BATCH)).all()
    # By their ids, so that on MySQL no gap between rows is locked.
    connection.execute(sa.update(_allocations).where(_allocations.c.id.in_(ids)).values(note=_allocations.c.used))
    return len(ids) == _ROWS_PER_BATCH


def upgrade() -> None:
    """Do nothing: all rows are copied."""
