"""An example: add a column. It is filled by the next migration, so that no lock is held while rows are copied."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = '002'
down_revision = '001'


def upgrade() -> None:
    """Add the column. Processes of the previous release leave it NULL."""
    bind = op.get_bind()
    if 'note' not in {column['name'] for column in sa.inspect(bind).get_columns('placement_allocations')}:
        # On MariaDB, a node of a Galera cluster may make the same change after this one has looked for it.
        options: Any = {'if_not_exists': True} if getattr(bind.dialect, 'is_mariadb', False) else {}
        op.add_column('placement_allocations', sa.Column('note', sa.Integer), **options)
