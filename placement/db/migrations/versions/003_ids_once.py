"""No id is used again: records the largest id of a resource class, and adds AUTOINCREMENT on SQLite.

Also replaces allocation ratios of -0.0 by 0.0.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '003'
down_revision = '002'

#: The tables in which SQLite without AUTOINCREMENT uses the largest id again after its row was deleted.
_NUMBERED = ('resource_providers', 'consumers', 'projects', 'users', 'traits', 'placement_aggregates')
_FIRST_CUSTOM_CLASS_ID = 10000


def upgrade() -> None:
    """Record the largest id of a class, and on SQLite copy the tables to add AUTOINCREMENT."""
    op.create_table(
        'resource_class_ids',
        sa.Column('id', sa.Integer, primary_key=True, nullable=False, autoincrement=False),
        sa.Column('last', sa.Integer, nullable=False),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        if_not_exists=True,
    )
    connection = op.get_bind()
    if connection.scalar(sa.text('SELECT count(*) FROM resource_class_ids')) == 0:
        largest = connection.scalar(sa.text('SELECT max(id) FROM resource_classes')) or 0
        insert = sa.text('INSERT INTO resource_class_ids (id, last) VALUES (1, :last)')
        connection.execute(insert, {'last': max(largest, _FIRST_CUSTOM_CLASS_ID - 1)})
    # PostgreSQL stored the sign of -0.0. Such a ratio is written as 0.0 now.
    connection.execute(sa.text('UPDATE inventories SET allocation_ratio = 0 WHERE allocation_ratio = 0'))
    if connection.dialect.name == 'sqlite':
        for name in _NUMBERED:
            _add_autoincrement(connection, name)


def downgrade() -> None:
    """Drop the table with the largest id of a class. AUTOINCREMENT stays; it does no harm to the older version."""
    op.drop_table('resource_class_ids')


def _add_autoincrement(connection: sa.Connection, name: str) -> None:
    """Copy a table with its rows, indexes and constraints to one with AUTOINCREMENT, unless it has that."""
    definition = sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name")
    if 'AUTOINCREMENT' in str(connection.execute(definition, {'name': name}).scalar_one()).upper():
        return
    checks = tuple(
        sa.CheckConstraint(one['sqltext'], name=one['name'])
        for one in sa.inspect(connection).get_check_constraints(name)
    )
    with op.batch_alter_table(name, recreate='always', table_args=checks, table_kwargs={'sqlite_autoincrement': True}):
        pass
