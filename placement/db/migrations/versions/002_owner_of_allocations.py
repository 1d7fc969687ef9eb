"""Copy the project, user and type of consumers to their allocations, and add an index for usages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '002'
down_revision = '001'

_OWNER_COLUMNS = ('consumer_project_id', 'consumer_user_id', 'consumer_type_id')


def upgrade() -> None:
    """Add and fill the columns, then add the index. Processes of the previous release leave the columns NULL."""
    bind = op.get_bind()
    # On MariaDB, a node of a Galera cluster may make the same change after this one has looked for it.
    is_mariadb = getattr(bind.dialect, 'is_mariadb', False)
    present = {column['name'] for column in sa.inspect(bind).get_columns('placement_allocations')}
    for name in _OWNER_COLUMNS:
        if name not in present:
            column = sa.Column(name, sa.Integer, nullable=True)
            op.add_column('placement_allocations', column, if_not_exists=is_mariadb or None)
    # A claim of the previous release may write the consumer meanwhile. On MySQL a query without a lock would read the
    # row as of the beginning of the statement. PostgreSQL lets such claims wait, and SQLite has one writer at a time.
    lock = ' LOCK IN SHARE MODE' if bind.dialect.name in ('mysql', 'mariadb') else ''
    copies = ', '.join(
        f'{copy} = (SELECT c.{column} FROM placement_consumers c WHERE c.uuid = consumer_id{lock})'  # noqa: S608
        for copy, column in zip(_OWNER_COLUMNS, ('project_id', 'user_id', 'consumer_type_id'), strict=True)
    )
    op.execute(f'UPDATE placement_allocations SET {copies} WHERE consumer_project_id IS NULL')  # noqa: S608
    for table, index, columns in (
        ('placement_allocations', 'allocations_owner_class_used_idx', [*_OWNER_COLUMNS, 'resource_class_id', 'used']),
        (
            'placement_consumers',
            'consumers_project_user_type_uuid_idx',
            ['project_id', 'user_id', 'consumer_type_id', 'uuid'],
        ),
    ):
        if index not in _indexes(bind, table):
            op.create_index(index, table, columns, if_not_exists=is_mariadb or None)
    if 'consumers_project_id_user_id_idx' in _indexes(bind, 'placement_consumers'):
        op.drop_index('consumers_project_id_user_id_idx', 'placement_consumers', if_exists=is_mariadb or None)


def _indexes(bind: sa.Connection, table: str) -> set[str | None]:
    return {index['name'] for index in sa.inspect(bind).get_indexes(table)}
