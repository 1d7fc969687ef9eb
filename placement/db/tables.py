"""The tables, as SQLAlchemy Core.

Tables and columns have the same names as in any OpenStack deployment, except that tables have the prefix
``placement_``. So another Placement service does not find its tables in our database, and cannot change them without
updating ``inventories.used`` and the change log (doc/adopt.md).

Only this service has the column ``inventories.used``: the sum of ``allocations.used`` for the provider and class. A
claim updates it in the transaction that writes the allocations. Adoption and repairs of the audit compute it again.

Also only this service has ``allocations.consumer_project_id``, ``consumer_user_id`` and ``consumer_type_id``: copies of
the columns of the consumer, so that one index has the usage of a project. A claim replaces the rows of a consumer
whenever it writes the consumer. In rows that another release wrote, all three are NULL; the row of the consumer counts.
"""

from __future__ import annotations

import types
from typing import Any

import os_resource_classes
import sqlalchemy as sa
from oslo_utils import timeutils

from placement import capacity
from placement.db import sql

metadata = sa.MetaData()

#: The smallest id of a custom resource class. The id of a standard class is its position in os-resource-classes.
FIRST_CUSTOM_CLASS_ID = 10000
#: The names of the standard classes by id.
STANDARD_CLASSES = dict(enumerate(os_resource_classes.STANDARDS))


def _table(name: str, *items: sa.schema.SchemaItem, has_times: bool = True, **options: Any) -> sa.Table:
    times = (
        sa.Column('created_at', sa.DateTime, default=timeutils.utcnow),
        sa.Column('updated_at', sa.DateTime, onupdate=timeutils.utcnow),
    )
    items = (*items, *times) if has_times else items
    return sa.Table(name, metadata, *items, mysql_engine='InnoDB', mysql_charset='utf8mb4', **options)


def _with_unique_ids(name: str, *items: sa.schema.SchemaItem, has_times: bool = True) -> sa.Table:
    """Return a table that never reuses an id, because ids are used after the transaction that read them.

    SQLite needs AUTOINCREMENT for this; the other databases never reuse ids.
    """
    return _table(name, _key('id', autoincrement=True), *items, has_times=has_times, sqlite_autoincrement=True)


def _of_texts(name: str, column: str) -> sa.Table:
    """Return a table of unique texts of up to 255 characters, each with an id."""
    unique = sa.UniqueConstraint(column, name=f'uniq_{name.removeprefix("placement_")}0{column}')
    return _with_unique_ids(name, sa.Column(column, sql.Text(255), nullable=False), unique)


def _key(name: str, type_: type[sa.Integer] = sa.Integer, *, autoincrement: bool = False) -> sa.Column[int]:
    return sa.Column(name, type_, primary_key=True, autoincrement=autoincrement)


def _reference(name: str, table: str, *, primary_key: bool = False, nullable: bool = False) -> sa.Column[int]:
    foreign_key = sa.ForeignKey(f'placement_{table}.id')
    return sa.Column(name, sa.Integer, foreign_key, primary_key=primary_key, nullable=nullable)


resource_providers = _with_unique_ids(
    'placement_resource_providers',
    sa.Column('uuid', sql.Text(36), nullable=False),
    sa.Column('name', sql.Text(200), nullable=True),
    sa.Column('generation', sa.Integer, nullable=False, default=0),
    # A root has its own id here. NULL exists only inside the transaction that creates or deletes a root: MySQL reports
    # the id of a row after the INSERT, and does not delete a row that refers to itself.
    _reference('root_provider_id', 'resource_providers', nullable=True),
    _reference('parent_provider_id', 'resource_providers', nullable=True),
    sa.UniqueConstraint('uuid', name='uniq_resource_providers0uuid'),
    sa.UniqueConstraint('name', name='uniq_resource_providers0name'),
    sa.Index('resource_providers_root_provider_id_idx', 'root_provider_id'),
    sa.Index('resource_providers_parent_provider_id_idx', 'parent_provider_id'),
)

inventories = _table(
    'placement_inventories',
    _key('id', autoincrement=True),
    _reference('resource_provider_id', 'resource_providers'),
    _reference('resource_class_id', 'resource_classes'),
    sa.Column('total', sa.Integer, nullable=False),
    sa.Column('reserved', sa.Integer, nullable=False),
    sa.Column('min_unit', sa.Integer, nullable=False),
    sa.Column('max_unit', sa.Integer, nullable=False),
    sa.Column('step_size', sa.Integer, nullable=False),
    sa.Column('allocation_ratio', sa.Double, nullable=False),
    sa.Column('used', sa.BigInteger, nullable=False, default=0, server_default='0'),
    sa.UniqueConstraint(
        'resource_provider_id', 'resource_class_id', name='uniq_inventories0resource_provider_resource_class'
    ),
    sa.Index('inventories_resource_class_id_idx', 'resource_class_id'),
)

allocations = _table(
    'placement_allocations',
    _key('id', autoincrement=True),
    _reference('resource_provider_id', 'resource_providers'),
    sa.Column('consumer_id', sql.Text(36), nullable=False),
    sa.Column('resource_class_id', sa.Integer, nullable=False),
    sa.Column('used', sa.Integer, nullable=False),
    sa.Column('consumer_project_id', sa.Integer, nullable=True),
    sa.Column('consumer_user_id', sa.Integer, nullable=True),
    sa.Column('consumer_type_id', sa.Integer, nullable=True),
    sa.UniqueConstraint(
        'consumer_id', 'resource_provider_id', 'resource_class_id', name='uniq_allocations0consumer_provider_class'
    ),
    sa.Index('allocations_provider_class_used_idx', 'resource_provider_id', 'resource_class_id', 'used'),
    sa.Index(
        'allocations_owner_class_used_idx',
        'consumer_project_id',
        'consumer_user_id',
        'consumer_type_id',
        'resource_class_id',
        'used',
    ),
)

projects = _of_texts('placement_projects', 'external_id')
users = _of_texts('placement_users', 'external_id')
# Names that clients choose, such as INSTANCE. A write of a consumer inserts its type; types are never removed.
consumer_types = _of_texts('placement_consumer_types', 'name')

consumers = _with_unique_ids(
    'placement_consumers',
    sa.Column('uuid', sql.Text(36), nullable=False),
    _reference('project_id', 'projects'),
    _reference('user_id', 'users'),
    sa.Column('generation', sa.Integer, nullable=False, default=0, server_default='0'),
    # NULL for a consumer that was never written at microversion 1.38 or later.
    _reference('consumer_type_id', 'consumer_types', nullable=True),
    sa.UniqueConstraint('uuid', name='uniq_consumers0uuid'),
    sa.Index('consumers_project_user_type_uuid_idx', 'project_id', 'user_id', 'consumer_type_id', 'uuid'),
    sa.Index('consumers_user_id_idx', 'user_id'),
    sa.Index('consumers_consumer_type_id_idx', 'consumer_type_id'),
)

resource_classes = _table(
    'placement_resource_classes',
    # No auto-increment: ids of standard classes begin at 0, and MySQL would replace a 0. The ids of custom classes come
    # from resource_class_sequence.
    _key('id'),
    sa.Column('name', sql.Text(255), nullable=False),
    sa.UniqueConstraint('name', name='uniq_resource_classes0name'),
)

# One row: the largest id that any class ever had, so that the id of a deleted class is not reused. Transactions that
# create a class lock the row, so they run one at a time.
resource_class_sequence = _table(
    'placement_resource_class_sequence', _key('id'), sa.Column('last', sa.Integer, nullable=False), has_times=False
)

traits = _of_texts('placement_traits', 'name')

resource_provider_traits = _table(
    'placement_resource_provider_traits',
    _reference('trait_id', 'traits', primary_key=True),
    _reference('resource_provider_id', 'resource_providers', primary_key=True),
    sa.Index('resource_provider_traits_resource_provider_trait_idx', 'resource_provider_id', 'trait_id'),
)

placement_aggregates = _with_unique_ids(
    'placement_aggregates',
    sa.Column('uuid', sql.Text(36), nullable=False),
    sa.UniqueConstraint('uuid', name='uniq_placement_aggregates0uuid'),
)

resource_provider_aggregates = _table(
    'placement_resource_provider_aggregates',
    _reference('resource_provider_id', 'resource_providers', primary_key=True),
    _reference('aggregate_id', 'aggregates', primary_key=True),
    sa.Index('resource_provider_aggregates_aggregate_id_idx', 'aggregate_id'),
)

# The change log (placement.db.change_log). No other table refers to it.

# Each process keeps at most as many rows as it ever had write transactions at the same time. None is deleted, and there
# is always one: without any, the rows of a backup have not been restored yet. Tools restore tables in order of
# their names, so this one has the last name: a reader of restored slots also finds all other restored rows.
change_log_slots = _with_unique_ids(
    'placement_writer_slots',
    sa.Column('sequence', sa.BigInteger, nullable=False),
    # 48 random bits, so that the sum over 30,000 slots fits 63 bits, as SQLite requires.
    sa.Column('token', sa.BigInteger, nullable=False),
    # A random number that identifies a process; NULL if the slot is free.
    sa.Column('owner', sa.BigInteger, nullable=True),
    sa.Column('updated_at', sa.DateTime, nullable=False, server_default=sql.UtcNow()),
    has_times=False,
)

change_log = _table(
    'placement_change_log',
    _key('slot_id'),
    _key('sequence', sa.BigInteger),
    # No foreign key, because the provider may have been deleted, and 0 means none (change_log.NO_PROVIDER).
    _key('provider_id'),
    sa.Column('kind', sa.SmallInteger, nullable=False),
    sa.Column('token', sa.BigInteger, nullable=False),
    has_times=False,
)

#: The condition of a join of inventories and allocations.
ALLOCATION_OF_INVENTORY = sa.and_(
    allocations.c.resource_provider_id == inventories.c.resource_provider_id,
    allocations.c.resource_class_id == inventories.c.resource_class_id,
)

#: In a query of inventories: the maximum of the sum of the allocations of each. Another program may have stored a
#: negative ``reserved``. Then the difference may exceed 32 bits, which PostgreSQL would report as an error.
CAPACITY_LIMIT = capacity.capacity_limit(
    types.SimpleNamespace(
        total=sa.cast(inventories.c.total, sa.BigInteger),
        reserved=inventories.c.reserved,
        allocation_ratio=inventories.c.allocation_ratio,
    )
)

#: In a query of inventories: the sum of the allocations of each, which has to equal its ``used``.
ALLOCATED = (
    sa.select(sa.func.coalesce(sa.func.sum(allocations.c.used), 0))
    .where(ALLOCATION_OF_INVENTORY)
    .correlate(inventories)
    .scalar_subquery()
)

#: In a query of allocations: by name of each copied column, its correct value from the consumer.
CONSUMER_COPIES = {
    copy: sa.select(column)
    .where(consumers.c.uuid == allocations.c.consumer_id)
    .correlate(allocations)
    .scalar_subquery()
    for copy, column in (
        ('consumer_project_id', consumers.c.project_id),
        ('consumer_user_id', consumers.c.user_id),
        ('consumer_type_id', consumers.c.consumer_type_id),
    )
}


#: The tables of the change log, which only this service has.
CHANGE_LOG_TABLES = (change_log_slots, change_log)
#: The tables that other Placement services also have.
SHARED = tuple(table for table in metadata.sorted_tables if table not in (*CHANGE_LOG_TABLES, resource_class_sequence))
#: Each column that has ids of another table, and this table: the foreign keys, and the class of an allocation. The
#: copies of the columns of a consumer are left out.
REFERENCES = (
    *((key.parent, key.column.table) for table in SHARED for column in table.columns for key in column.foreign_keys),
    (allocations.c.resource_class_id, resource_classes),
)
#: The shared tables and columns that another service may lack, because its release is older or only this service has
#: them. Adoption creates them.
ADDED = frozenset({consumer_types})
ADDED_COLUMNS = frozenset({'used', 'created_at', 'updated_at', *CONSUMER_COPIES})
#: The names of the shared tables in another service. ``placement_aggregates`` has the same name there.
UPSTREAM_NAMES = {
    table: table.name if table is placement_aggregates else table.name.removeprefix('placement_') for table in SHARED
}
#: Names of tables that only another service has.
FOREIGN = frozenset(UPSTREAM_NAMES.values()) - frozenset(metadata.tables)
