"""Tables get names that no other service knows, so that none can write past usages and the log of changes.

And what is used is counted once more, as one may have done that before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = '004'
down_revision = '003'

_PREFIX = 'placement_'
#: All that another deployment has, but placement_aggregates.
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
    """Rename the tables, unless another node of a cluster or an attempt that was cut short did."""
    _rename({name: _PREFIX + name for name in _NAMES})
    op.execute(_COUNT)


def downgrade() -> None:
    """Give the tables the names that they had."""
    _rename({_PREFIX + name: name for name in _NAMES})


def _rename(names: dict[str, str]) -> None:
    connection = op.get_bind()
    present = set(sa.inspect(connection).get_table_names())
    renamed = {old: new for old, new in names.items() if old in present}
    if not renamed:
        return
    if connection.dialect.name in ('mysql', 'mariadb'):
        # All or none: there a change of the schema is no part of a transaction.
        op.execute('RENAME TABLE ' + ', '.join(f'{old} TO {new}' for old, new in renamed.items()))
        return
    for old, new in renamed.items():
        op.rename_table(old, new)
