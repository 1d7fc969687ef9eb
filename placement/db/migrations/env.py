"""Alembic runs this for each command. It runs the migrations on the connection of ``placement.db.migration``."""

from __future__ import annotations

from alembic import context

from placement.db import migration, tables

context.configure(
    connection=context.config.attributes['connection'],
    target_metadata=tables.metadata,
    version_table=migration.VERSION_TABLE,
)
with context.begin_transaction():
    context.run_migrations()
