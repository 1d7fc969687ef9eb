"""The change log with slots that stay: replaces the tables ``writers`` and ``changes``.

Entries are not copied: the processes that follow the log have to be stopped for this upgrade.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement.db import types

revision = '005'
down_revision = '004'


def upgrade() -> None:
    """Create the two tables unless they exist, from an interrupted attempt or from another node of a cluster."""
    op.create_table(
        'placement_change_log_slots',
        sa.Column('id', sa.Integer, primary_key=True, nullable=False),
        sa.Column('sequence', sa.BigInteger, nullable=False),
        sa.Column('token', sa.BigInteger, nullable=False),
        sa.Column('owner', sa.BigInteger, nullable=True),
        sa.Column('updated_at', sa.DateTime, nullable=False, server_default=types.UtcNow()),
        sqlite_autoincrement=True,
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        if_not_exists=True,
    )
    op.create_table(
        'placement_change_log',
        _key('slot_id', sa.Integer),
        _key('sequence', sa.BigInteger),
        _key('provider_id', sa.Integer),
        sa.Column('kind', sa.SmallInteger, nullable=False),
        sa.Column('token', sa.BigInteger, nullable=False),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        if_not_exists=True,
    )
    op.drop_table('changes', if_exists=True)
    op.drop_table('writers', if_exists=True)


def downgrade() -> None:
    """Create the former tables, and drop the log."""
    op.create_table(
        'writers',
        _key('id', sa.BigInteger),
        _created_at(),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        if_not_exists=True,
    )
    op.create_table(
        'changes',
        sa.Column(
            'writer_id',
            sa.BigInteger,
            sa.ForeignKey('writers.id'),
            primary_key=True,
            nullable=False,
            autoincrement=False,
        ),
        _key('sequence', sa.BigInteger),
        _key('provider_id', sa.Integer),
        sa.Column('what', sa.SmallInteger, nullable=False),
        _created_at(),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        if_not_exists=True,
    )
    op.drop_table('placement_change_log', if_exists=True)
    op.drop_table('placement_change_log_slots', if_exists=True)


def _key(name: str, kind: type[sa.types.TypeEngine[int]]) -> sa.Column[int]:
    return sa.Column(name, kind, primary_key=True, nullable=False, autoincrement=False)


def _created_at() -> sa.Column[object]:
    return sa.Column('created_at', sa.DateTime, nullable=False, server_default=types.UtcNow())
