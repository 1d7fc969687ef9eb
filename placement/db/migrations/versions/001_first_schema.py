"""The first schema: the tables that every Placement service has, and ``inventories.used``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op

from placement.db import types

revision = '001'
down_revision = None

#: The tables in which SQLite without AUTOINCREMENT would use the largest id again after its row was deleted.
_NUMBERED = frozenset({'resource_providers', 'consumers', 'projects', 'users', 'traits', 'placement_aggregates'})


def upgrade() -> None:
    """Create all tables, each after those that it refers to."""
    _create_names()
    _create_providers()
    _create_associations()
    _create_consumers()


def downgrade() -> None:
    """Drop all tables, each before those that it refers to."""
    for name in (
        'allocations',
        'consumers',
        'users',
        'projects',
        'resource_provider_aggregates',
        'placement_aggregates',
        'resource_provider_traits',
        'traits',
        'inventories',
        'resource_classes',
        'resource_providers',
    ):
        op.drop_table(name)


def _create(name: str, *items: sa.schema.SchemaItem, indexes: Mapping[str, Sequence[str]] | None = None) -> None:
    # A table may exist: a process on another node of a cluster creates it at the same time or, on MySQL, which commits
    # each change of the schema, an earlier attempt was interrupted.
    op.create_table(
        name,
        *items,
        sa.Column('created_at', sa.DateTime),
        sa.Column('updated_at', sa.DateTime),
        mysql_engine='InnoDB',
        mysql_charset='utf8mb4',
        # Added together with migration 003, which copies the tables of older databases to get it.
        sqlite_autoincrement=name in _NUMBERED,
        if_not_exists=True,
    )
    present = {index['name'] for index in sa.inspect(op.get_bind()).get_indexes(name)}
    for index, columns in (indexes or {}).items():
        if index not in present:
            op.create_index(index, name, columns)


def _id(autoincrement: bool = True) -> sa.Column[int]:
    return sa.Column('id', sa.Integer, primary_key=True, nullable=False, autoincrement=autoincrement)


def _named(name: str, column: str, length: int, autoincrement: bool = True) -> None:
    _create(
        name,
        _id(autoincrement),
        sa.Column(column, types.Text(length), nullable=False),
        sa.UniqueConstraint(column, name=f'uniq_{name}0{column}'),
    )


def _provider(primary_key: bool = False) -> sa.Column[int]:
    return sa.Column(
        'resource_provider_id',
        sa.Integer,
        sa.ForeignKey('resource_providers.id'),
        primary_key=primary_key,
        nullable=False,
    )


def _create_names() -> None:
    # Ids of standard classes begin at 0, and MySQL would replace a 0 in an auto-increment column.
    _named('resource_classes', 'name', 255, autoincrement=False)
    _named('traits', 'name', 255)
    _named('placement_aggregates', 'uuid', 36)
    _named('projects', 'external_id', 255)
    _named('users', 'external_id', 255)


def _create_providers() -> None:
    _create(
        'resource_providers',
        _id(),
        sa.Column('uuid', types.Text(36), nullable=False),
        sa.Column('name', types.Text(200), nullable=True),
        sa.Column('generation', sa.Integer, nullable=False),
        sa.Column('root_provider_id', sa.Integer, sa.ForeignKey('resource_providers.id'), nullable=True),
        sa.Column('parent_provider_id', sa.Integer, sa.ForeignKey('resource_providers.id'), nullable=True),
        sa.UniqueConstraint('uuid', name='uniq_resource_providers0uuid'),
        sa.UniqueConstraint('name', name='uniq_resource_providers0name'),
        indexes={
            'resource_providers_root_provider_id_idx': ['root_provider_id'],
            'resource_providers_parent_provider_id_idx': ['parent_provider_id'],
        },
    )
    _create(
        'inventories',
        _id(),
        _provider(),
        sa.Column('resource_class_id', sa.Integer, sa.ForeignKey('resource_classes.id'), nullable=False),
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
        sa.Column('trait_id', sa.Integer, sa.ForeignKey('traits.id'), primary_key=True, nullable=False),
        _provider(primary_key=True),
        indexes={'resource_provider_traits_resource_provider_trait_idx': ['resource_provider_id', 'trait_id']},
    )
    _create(
        'resource_provider_aggregates',
        _provider(primary_key=True),
        sa.Column(
            'aggregate_id', sa.Integer, sa.ForeignKey('placement_aggregates.id'), primary_key=True, nullable=False
        ),
        indexes={'resource_provider_aggregates_aggregate_id_idx': ['aggregate_id']},
    )


def _create_consumers() -> None:
    _create(
        'consumers',
        _id(),
        sa.Column('uuid', types.Text(36), nullable=False),
        sa.Column('project_id', sa.Integer, sa.ForeignKey('projects.id'), nullable=False),
        sa.Column('user_id', sa.Integer, sa.ForeignKey('users.id'), nullable=False),
        sa.Column('generation', sa.Integer, nullable=False, server_default='0'),
        sa.UniqueConstraint('uuid', name='uniq_consumers0uuid'),
        indexes={
            'consumers_project_id_user_id_idx': ['project_id', 'user_id'],
            'consumers_user_id_idx': ['user_id'],
        },
    )
    _create(
        'allocations',
        _id(),
        _provider(),
        sa.Column('consumer_id', types.Text(36), nullable=False),
        sa.Column('resource_class_id', sa.Integer, nullable=False),
        sa.Column('used', sa.Integer, nullable=False),
        sa.UniqueConstraint(
            'consumer_id',
            'resource_provider_id',
            'resource_class_id',
            name='uniq_allocations0consumer_provider_class',
        ),
        indexes={
            'allocations_provider_class_used_idx': ['resource_provider_id', 'resource_class_id', 'used'],
        },
    )
