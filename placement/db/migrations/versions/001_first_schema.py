"""The first schema. ``placement.db.migration`` creates the tables, those of a new database with all later changes."""

from __future__ import annotations

revision = '001'
down_revision = None


def upgrade() -> None:
    """Do nothing."""
