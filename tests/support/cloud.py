"""A small cloud with known numbers, stored by plain SQL."""

from __future__ import annotations

import dataclasses
import math

import sqlalchemy as sa

from placement import capacity
from placement.cache.refresh import ProviderCache
from placement.db import migration, tables
from placement.db.api import Database
from placement.ops.metrics import allocation_samples, inventory_samples
from placement.ops.reports.capacity import summary

#: Larger capacities and usages count as this in sums.
MAX_SUMMED = 2**48

AGGREGATE, EMPTY, UNKNOWN = (f'a000000{number}-0000-4000-8000-000000000000' for number in (1, 2, 3))


@dataclasses.dataclass(frozen=True)
class Inventory:
    """One inventory, and the largest amount that a claim could allocate of it."""

    largest: int
    total: int = 8
    reserved: int = 0
    min_unit: int = 1
    max_unit: int = capacity.MAX_INT32
    step_size: int = 1
    allocation_ratio: float = 1.0
    used: int = 0


INVENTORIES = (
    Inventory(8),
    Inventory(12, allocation_ratio=1.5),
    Inventory(7, total=5, reserved=1, allocation_ratio=1.99),
    Inventory(114, total=100, allocation_ratio=1.15),
    Inventory(0, total=5, reserved=6, allocation_ratio=0.5),
    Inventory(2, used=6),
    Inventory(0, used=8),
    Inventory(0, used=20),
    Inventory(3, max_unit=3),
    Inventory(6, step_size=3),
    Inventory(0, step_size=3, used=6),
    Inventory(0, min_unit=4, used=5),
    Inventory(4, min_unit=4, used=4),
    Inventory(0, allocation_ratio=0.0),
    Inventory(capacity.MAX_INT32, total=capacity.MAX_INT32, allocation_ratio=1e30),
    Inventory(0, used=2**62),
)


def assert_numbers(db: Database, inventory: Inventory) -> None:
    """The figures about an inventory are those of the capacity rule."""
    amounts = (inventory.largest, inventory.largest + 1)
    fits = [
        amount > 0
        and inventory.used + amount <= capacity.capacity_limit(inventory)
        and capacity.satisfies_unit_constraints(inventory, amount, amount, amount)
        for amount in amounts
    ]
    assert fits == [inventory.largest > 0, False], 'the example is wrong'
    with db.engine.begin() as connection:
        _provider(connection, 1, None)
        _inventory(connection, 1, inventory)
    (figures,) = summary(ProviderCache(db).up_to_date()).classes
    limit, used = (
        min(max(value, 0), MAX_SUMMED) for value in (math.trunc(capacity.capacity_limit(inventory)), inventory.used)
    )
    assert (figures.total, figures.reserved) == (inventory.total, inventory.reserved)
    assert (figures.capacity, figures.used, figures.max_allocatable) == (limit, used, inventory.largest)
    assert (figures.free, figures.over_committed) == (max(limit - used, 0), max(used - limit, 0))


def fill(db: Database) -> None:
    """Two trees: 1 with its child 2 and grandchild 3, and 4. Providers 1, 2 and 4 are in the aggregate."""
    with db.engine.begin() as connection:
        for number, parent in ((1, None), (2, 1), (3, 2), (4, None), (5, None)):
            _provider(connection, number, parent)
            _inventory(connection, number, Inventory(0, used=2 * number, total=20, allocation_ratio=1.25))
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


def _inventory(connection: sa.Connection, provider: int, inventory: Inventory) -> None:
    row = dataclasses.asdict(inventory) | {'resource_provider_id': provider, 'resource_class_id': 0}
    del row['largest']
    connection.execute(tables.inventories.insert(), row)


def _allocation(connection: sa.Connection, consumer: int, provider: int, used: int) -> None:
    uuid = f'c{consumer:07}-0000-4000-8000-000000000000'
    if connection.scalar(sa.select(tables.consumers.c.id).where(tables.consumers.c.uuid == uuid)) is None:
        if consumer == 1:
            connection.execute(tables.projects.insert(), {'id': 1, 'external_id': 'project'})
            connection.execute(tables.users.insert(), {'id': 1, 'external_id': 'user'})
        connection.execute(tables.consumers.insert(), {'uuid': uuid, 'project_id': 1, 'user_id': 1})
    row = {'resource_provider_id': provider, 'consumer_id': uuid, 'resource_class_id': 0, 'used': used}
    connection.execute(tables.allocations.insert(), row)
