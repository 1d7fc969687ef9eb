"""Types of consumers: their table, and the type of each consumer.

A database that was adopted may have both from the service that made it. Then the table gets our name and types stay.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from placement.db import types

revision = '006'
down_revision = '005'

_TYPES, _CONSUMERS, _COLUMN = 'placement_consumer_types', 'placement_consumers', 'consumer_type_id'
_INDEX = 'consumers_consumer_type_id_idx'


def upgrade() -> None:
    """Create what is missing, after an interrupted attempt, or beside another node of a cluster, perhaps not all."""
    connection = op.get_bind()
    present = set(sa.inspect(connection).get_table_names())
    if 'consumer_types' in present and _TYPES not in present:
        _take_over(connection.dialect.name)
    _create(_TYPES)
    if _COLUMN not in {column['name'] for column in sa.inspect(connection).get_columns(_CONSUMERS)}:
        _add_column(connection.dialect.name)
    if not any(index['column_names'][0] == _COLUMN for index in sa.inspect(connection).get_indexes(_CONSUMERS)):
        op.create_index(_INDEX, _CONSUMERS, [_COLUMN])


def _create(name: str) -> None:
    op.create_table(
        name,
        sa.Column('id', sa.Integer, primary_key=True, nullable=False),
        sa.Column('name', types.Text(255), nullable=False),
        sa.Column('created_at', sa.DateTime),
        sa.Column('updated_at', sa.DateTime),
        sa.UniqueConstraint('name', name='uniq_consumer_types0name'),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        sqlite_autoincrement=True,
        if_not_exists=True,
    )


def _take_over(server: str) -> None:
    """Rename the table of the other service, so that an interrupted attempt is repeated as a whole."""
    if server in ('mysql', 'mariadb'):
        op.alter_column('consumer_types', 'name', existing_type=sa.String(255), type_=types.Text(255), nullable=False)
    op.rename_table('consumer_types', _TYPES)
    if server == 'sqlite':
        # Its table has no AUTOINCREMENT, so that the largest id could be used again.
        columns = 'id, name, created_at, updated_at'
        _create('placement_new_consumer_types')
        op.execute(f'INSERT INTO placement_new_consumer_types ({columns}) SELECT {columns} FROM {_TYPES}')  # noqa: S608
        op.drop_table(_TYPES)
        op.rename_table('placement_new_consumer_types', _TYPES)


def _add_column(server: str) -> None:
    added = f'ALTER TABLE {_CONSUMERS} ADD COLUMN {_COLUMN} INTEGER'
    if server in ('mysql', 'mariadb'):
        # In one statement, because MySQL commits each change of the schema. The key has a name of its own, because the
        # one that MariaDB would choose may be that of another key since 004 renamed the table.
        key = f'CONSTRAINT consumers_consumer_type_id_fk FOREIGN KEY ({_COLUMN}) REFERENCES {_TYPES} (id)'
        op.execute(f'{added}, ADD INDEX {_INDEX} ({_COLUMN}), ADD {key}')
    else:
        op.execute(f'{added} REFERENCES {_TYPES} (id)')


def downgrade() -> None:
    """Drop the types."""
    connection = op.get_bind()
    inspector = sa.inspect(connection)
    keys = [key for key in inspector.get_foreign_keys(_CONSUMERS) if key['constrained_columns'] == [_COLUMN]]
    indexes = [index for index in inspector.get_indexes(_CONSUMERS) if _COLUMN in index['column_names']]
    if connection.dialect.name != 'sqlite':
        for key in keys:
            op.drop_constraint(str(key['name']), _CONSUMERS, type_='foreignkey')
    for index in indexes:
        op.drop_index(str(index['name']), _CONSUMERS)
    if connection.dialect.name == 'sqlite':
        with op.batch_alter_table(_CONSUMERS, table_kwargs={'sqlite_autoincrement': True}) as table:
            table.drop_column(_COLUMN)
    else:
        op.drop_column(_CONSUMERS, _COLUMN)
    op.drop_table(_TYPES)
