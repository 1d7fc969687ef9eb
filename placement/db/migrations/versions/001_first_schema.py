"""Create all tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

from placement.db import types

revision = '001'
down_revision = None


def upgrade() -> None:
    """Create each table after those that it refers to."""
    _create_names()
    _create_providers()
    _create_associations()
    _create_consumers()
    _create_change_log()


def _create(
    name: str,
    *items: sa.schema.SchemaItem,
    indexes: Mapping[str, Sequence[str]] | None = None,
    has_times: bool = True,
    unique_ids: bool = False,
) -> None:
    """Create a table and its indexes unless they exist.

    They may exist because a process on another node of a cluster creates them at the same time, or because an earlier
    attempt was interrupted on MySQL, which commits each change of the schema.

    :param unique_ids: never reuse the id of a deleted row. SQLite needs AUTOINCREMENT for this.
    """
    name = f'placement_{name}'
    times = (sa.Column('created_at', sa.DateTime), sa.Column('updated_at', sa.DateTime)) if has_times else ()
    op.create_table(
        name,
        *items,
        *times,
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        sqlite_autoincrement=unique_ids,
        if_not_exists=True,
    )
    present = {index['name'] for index in sa.inspect(op.get_bind()).get_indexes(name)} if indexes else ()
    for index, columns in (indexes or {}).items():
        if index not in present:
            op.create_index(index, name, columns)


def _key(name: str, type_: type[sa.Integer] = sa.Integer, *, autoincrement: bool = False) -> sa.Column[int]:
    return sa.Column(name, type_, primary_key=True, nullable=False, autoincrement=autoincrement)


def _id() -> sa.Column[int]:
    return _key('id', autoincrement=True)


def _reference(column: str, table: str, *, primary_key: bool = False, nullable: bool = False) -> sa.Column[int]:
    foreign_key = sa.ForeignKey(f'placement_{table}.id')
    return sa.Column(column, sa.Integer, foreign_key, primary_key=primary_key, nullable=nullable)


def _create_names() -> None:
    for table, column, length, constraint in (
        ('traits', 'name', 255, 'uniq_traits0name'),
        ('aggregates', 'uuid', 36, 'uniq_placement_aggregates0uuid'),
        ('projects', 'external_id', 255, 'uniq_projects0external_id'),
        ('users', 'external_id', 255, 'uniq_users0external_id'),
        ('consumer_types', 'name', 255, 'uniq_consumer_types0name'),
    ):
        text = sa.Column(column, types.Text(length), nullable=False)
        _create(table, _id(), text, sa.UniqueConstraint(column, name=constraint), unique_ids=True)
    _create(
        'resource_classes',
        # The ids of standard classes begin at 0, and MySQL would replace a 0 in an auto-increment column.
        _key('id'),
        sa.Column('name', types.Text(255), nullable=False),
        sa.UniqueConstraint('name', name='uniq_resource_classes0name'),
    )
    _create('resource_class_sequence', _key('id'), sa.Column('last', sa.Integer, nullable=False), has_times=False)
    sequence = sa.table('placement_resource_class_sequence', sa.column('id'), sa.column('last'))
    if op.get_bind().scalar(sa.select(sequence.c.last)) is None:
        # The largest id below the ids of custom classes.
        op.bulk_insert(sequence, [{'id': 1, 'last': 9999}])


def _create_providers() -> None:
    _create(
        'resource_providers',
        _id(),
        sa.Column('uuid', types.Text(36), nullable=False),
        sa.Column('name', types.Text(200), nullable=True),
        sa.Column('generation', sa.Integer, nullable=False),
        _reference('root_provider_id', 'resource_providers', nullable=True),
        _reference('parent_provider_id', 'resource_providers', nullable=True),
        sa.UniqueConstraint('uuid', name='uniq_resource_providers0uuid'),
        sa.UniqueConstraint('name', name='uniq_resource_providers0name'),
        indexes={
            'resource_providers_root_provider_id_idx': ['root_provider_id'],
            'resource_providers_parent_provider_id_idx': ['parent_provider_id'],
        },
        unique_ids=True,
    )
    _create(
        'inventories',
        _id(),
        _reference('resource_provider_id', 'resource_providers'),
        _reference('resource_class_id', 'resource_classes'),
        sa.Column('total', sa.Integer, nullable=False),
        sa.Column('reserved', sa.Integer, nullable=False),
        sa.Column('min_unit', sa.Integer, nullable=False),
        sa.Column('max_unit', sa.Integer, nullable=False),
        sa.Column('step_size', sa.Integer, nullable=False),
        sa.Column('allocation_ratio', sa.Double, nullable=False),
        sa.Column('used', sa.BigInteger, nullable=False, server_default='0'),
        sa.UniqueConstraint(
            'resource_provider_id', 'resource_class_id', name='uniq_inventories0resource_provider_resource_class'
        ),
        indexes={'inventories_resource_class_id_idx': ['resource_class_id']},
    )


def _create_associations() -> None:
    _create(
        'resource_provider_traits',
        _reference('trait_id', 'traits', primary_key=True),
        _reference('resource_provider_id', 'resource_providers', primary_key=True),
        indexes={'resource_provider_traits_resource_provider_trait_idx': ['resource_provider_id', 'trait_id']},
    )
    _create(
        'resource_provider_aggregates',
        _reference('resource_provider_id', 'resource_providers', primary_key=True),
        _reference('aggregate_id', 'aggregates', primary_key=True),
        indexes={'resource_provider_aggregates_aggregate_id_idx': ['aggregate_id']},
    )


def _create_consumers() -> None:
    _create(
        'consumers',
        _id(),
        sa.Column('uuid', types.Text(36), nullable=False),
        _reference('project_id', 'projects'),
        _reference('user_id', 'users'),
        sa.Column('generation', sa.Integer, nullable=False, server_default='0'),
        _reference('consumer_type_id', 'consumer_types', nullable=True),
        sa.UniqueConstraint('uuid', name='uniq_consumers0uuid'),
        indexes={
            'consumers_project_id_user_id_idx': ['project_id', 'user_id'],
            'consumers_user_id_idx': ['user_id'],
            'consumers_consumer_type_id_idx': ['consumer_type_id'],
        },
        unique_ids=True,
    )
    _create(
        'allocations',
        _id(),
        _reference('resource_provider_id', 'resource_providers'),
        sa.Column('consumer_id', types.Text(36), nullable=False),
        sa.Column('resource_class_id', sa.Integer, nullable=False),
        sa.Column('used', sa.Integer, nullable=False),
        sa.UniqueConstraint(
            'consumer_id', 'resource_provider_id', 'resource_class_id', name='uniq_allocations0consumer_provider_class'
        ),
        indexes={'allocations_provider_class_used_idx': ['resource_provider_id', 'resource_class_id', 'used']},
    )


def _create_change_log() -> None:
    _create(
        'change_log_slots',
        _id(),
        sa.Column('sequence', sa.BigInteger, nullable=False),
        sa.Column('token', sa.BigInteger, nullable=False),
        sa.Column('owner', sa.BigInteger, nullable=True),
        sa.Column('updated_at', sa.DateTime, nullable=False, server_default=types.UtcNow()),
        has_times=False,
        unique_ids=True,
    )
    _create(
        'change_log',
        _key('slot_id'),
        _key('sequence', sa.BigInteger),
        _key('provider_id'),
        sa.Column('kind', sa.SmallInteger, nullable=False),
        sa.Column('token', sa.BigInteger, nullable=False),
        has_times=False,
    )
