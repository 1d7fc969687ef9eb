"""The first schema. No database is upgraded to it, because ``placement.db.migration`` creates all tables at once."""

from __future__ import annotations

revision = '001'
down_revision = None


def upgrade() -> None:
    """Do nothing."""
