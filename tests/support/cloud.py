"""A small cloud with known numbers, stored by plain SQL."""

from __future__ import annotations

import sqlalchemy as sa

from placement.cache.refresh import ProviderCache
from placement.db import migration, tables
from placement.db.api import Database
from placement.ops.metrics import allocation_samples, inventory_samples

AGGREGATE, EMPTY, UNKNOWN = (f'a000000{number}-0000-4000-8000-000000000000' for number in (1, 2, 3))


def fill(db: Database) -> None:
    """Two trees: 1 with its child 2 and grandchild 3, and 4. Providers 1, 2 and 4 are in the aggregate."""
    with db.engine.begin() as connection:
        for number, parent in ((1, None), (2, 1), (3, 2), (4, None), (5, None)):
            _provider(connection, number, parent)
            inventory = {'resource_provider_id': number, 'resource_class_id': 0, 'total': 20, 'used': 2 * number}
            units = {'reserved': 0, 'min_unit': 1, 'max_unit': 30, 'step_size': 1, 'allocation_ratio': 1.25}
            connection.execute(tables.inventories.insert(), inventory | units)
        for consumer, provider, used in ((1, 1, 2), (2, 2, 4), (2, 3, 6), (3, 4, 7), (4, 5, 10)):
            _allocation(connection, consumer, provider, used)
        connection.execute(
            tables.placement_aggregates.insert(), [{'id': 1, 'uuid': AGGREGATE}, {'id': 2, 'uuid': EMPTY}]
        )
        members = [{'resource_provider_id': number, 'aggregate_id': 1} for number in (1, 2, 4)]
        connection.execute(tables.resource_provider_aggregates.insert(), members)


def assert_counts(db: Database) -> None:
    """The counts of the small cloud are right."""
    fill(db)
    samples = inventory_samples(db, ProviderCache(db), [AGGREGATE, UNKNOWN])
    values = {(name, *labels): value for name, value, labels in samples if value}
    assert values == {
        ('placement_database_schema_info', migration.head()): 1,
        ('placement_resource_providers',): 5,
        ('placement_trees',): 3,
        ('placement_consumers',): 4,
        ('placement_allocations',): 5,
        ('placement_inventories', 'VCPU', 'available'): 5,
        **_amounts('placement_inventory', (), (100, 125, 30, 95, 23)),
        ('placement_aggregate_resource_providers', AGGREGATE): 4,
        ('placement_aggregate_trees', AGGREGATE): 2,
        **_amounts('placement_aggregate_inventory', (AGGREGATE,), (80, 100, 20, 80, 23)),
    }
    assert allocation_samples(db, [AGGREGATE, UNKNOWN]) == [
        ('placement_usage_mismatches', 1, ()),
        ('placement_aggregate_consumers', 3, (AGGREGATE,)),
        ('placement_aggregate_allocations', 4, (AGGREGATE,)),
        ('placement_aggregate_consumers', 0, (UNKNOWN,)),
        ('placement_aggregate_allocations', 0, (UNKNOWN,)),
    ]


def _amounts(prefix: str, labels: tuple[str, ...], amounts: tuple[int, ...]) -> dict[tuple[str, ...], int]:
    *sums, largest = amounts
    fields = ('total', 'capacity', 'used', 'free')
    by_field = {(f'{prefix}_units', *labels, 'VCPU', field): sum_ for field, sum_ in zip(fields, sums, strict=True)}
    return {**by_field, (f'{prefix}_max_allocatable', *labels, 'VCPU'): largest}


def _provider(connection: sa.Connection, number: int, parent: int | None) -> None:
    uuid = f'{number:08}-0000-4000-8000-000000000000'
    root = 1 if number < 4 else number
    row = {'id': number, 'uuid': uuid, 'name': uuid, 'root_provider_id': root, 'parent_provider_id': parent}
    connection.execute(tables.resource_providers.insert(), row)


def _allocation(connection: sa.Connection, consumer: int, provider: int, used: int) -> None:
    uuid = f'c{consumer:07}-0000-4000-8000-000000000000'
    if connection.scalar(sa.select(tables.consumers.c.id).where(tables.consumers.c.uuid == uuid)) is None:
        if consumer == 1:
            connection.execute(tables.projects.insert(), {'id': 1, 'external_id': 'project'})
            connection.execute(tables.users.insert(), {'id': 1, 'external_id': 'user'})
        connection.execute(tables.consumers.insert(), {'uuid': uuid, 'project_id': 1, 'user_id': 1})
    row = {'resource_provider_id': provider, 'consumer_id': uuid, 'resource_class_id': 0, 'used': used}
    connection.execute(tables.allocations.insert(), row)
