"""Renames the tables, so that another Placement service, or a process of an earlier release, does not find them.

It could write allocations without updating ``inventories.used`` and the log of changes. As one may have done so before,
``used`` is computed anew.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '004'
down_revision = '003'

_PREFIX = 'placement_'
#: The tables that every Placement service has, without placement_aggregates, which has the prefix already.
_NAMES = (
    'allocations',
    'consumers',
    'inventories',
    'projects',
    'resource_classes',
    'resource_provider_aggregates',
    'resource_provider_traits',
    'resource_providers',
    'traits',
    'users',
)
_COUNT = """
UPDATE placement_inventories SET used = (
    SELECT coalesce(sum(held.used), 0) FROM placement_allocations AS held
    WHERE held.resource_provider_id = placement_inventories.resource_provider_id
    AND held.resource_class_id = placement_inventories.resource_class_id)
"""


def upgrade() -> None:
    """Rename the tables unless they are renamed, by an interrupted attempt or from another node of a cluster."""
    _rename({name: _PREFIX + name for name in _NAMES})
    op.execute(_COUNT)


def downgrade() -> None:
    """Give the tables their former names."""
    _rename({_PREFIX + name: name for name in _NAMES})


def _rename(names: dict[str, str]) -> None:
    connection = op.get_bind()
    present = set(sa.inspect(connection).get_table_names())
    renamed = {old: new for old, new in names.items() if old in present}
    if not renamed:
        return
    if connection.dialect.name in ('mysql', 'mariadb'):
        # In one statement, so that all are renamed or none: MySQL commits each change of the schema at once.
        op.execute('RENAME TABLE ' + ', '.join(f'{old} TO {new}' for old, new in renamed.items()))
        return
    for old, new in renamed.items():
        op.rename_table(old, new)
