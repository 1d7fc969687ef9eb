"""The log of changes: its writers, and which providers each of their transactions changed."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement.db import types

revision = '002'
down_revision = '001'


def upgrade() -> None:
    """Create the two tables unless they exist, from an interrupted attempt or from another node of a cluster."""
    op.create_table(
        'writers',
        sa.Column('id', sa.BigInteger, primary_key=True, nullable=False, autoincrement=False),
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
        sa.Column('sequence', sa.BigInteger, primary_key=True, nullable=False, autoincrement=False),
        sa.Column('provider_id', sa.Integer, primary_key=True, nullable=False, autoincrement=False),
        sa.Column('what', sa.SmallInteger, nullable=False),
        _created_at(),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        if_not_exists=True,
    )


def downgrade() -> None:
    """Drop the log."""
    op.drop_table('changes')
    op.drop_table('writers')


def _created_at() -> sa.Column[object]:
    return sa.Column('created_at', sa.DateTime, nullable=False, server_default=types.UtcNow())
