"""The numbers about the whole cloud: on each database, and how many statements read them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from placement.cache.refresh import ProviderCache
from placement.db import migration, tables
from placement.db.api import Database
from placement.ops.database_collector import allocation_samples, inventory_samples
from tests.support import clouds, databases
from tests.support.fixtures import Counter

AGGREGATE, UNKNOWN = clouds.uuid_of('rack'), clouds.uuid_of('nowhere')


def fill(db: Database) -> None:
    """Three trees: a host with a cell that has a card, a host with a wrong usage (8 instead of 7), and a busy one.

    Of the first tree only the cell and the card are in the aggregate.
    """
    places = (('host', None), ('cell', 'host'), ('card', 'cell'), ('wrong', None), ('busy', None))
    inventory = {'VCPU': {'total': 20, 'max_unit': 30, 'allocation_ratio': 1.25}}
    providers = [
        clouds.Provider(name, inventory, (), ('rack',) if name in ('cell', 'card', 'wrong') else (), parent)
        for name, parent in places
    ]
    allocations = {'a': {'host': 2}, 'b': {'cell': 4, 'card': 6}, 'c': {'wrong': 7}, 'd': {'busy': 10}}
    held: dict[str, dict[str, clouds.Amounts]] = {
        name: {provider: {'VCPU': n} for provider, n in of.items()} for name, of in allocations.items()
    }
    clouds.create_cloud(db, clouds.Cloud(providers, held))
    used = tables.inventories.c.used
    with db.engine.begin() as tx:
        tx.execute(tables.inventories.update().where(used == 7).values(used=8))


def units(prefix: str, labels: tuple[str, ...], *amounts: int) -> dict[tuple[str, ...], int]:
    """The samples of VCPU: total, capacity, used and free, and the largest allocation that fits."""
    *sums, largest = amounts
    fields = ('total', 'capacity', 'used', 'free')
    by_field = {(f'{prefix}_units', *labels, 'VCPU', field): sum_ for field, sum_ in zip(fields, sums, strict=True)}
    return {**by_field, (f'{prefix}_max_allocatable', *labels, 'VCPU'): largest}


@databases.EVERYWHERE
def test_counts_trees_aggregates_and_usage_mismatches(load_application: Callable[[dict[str, Any]], Any]) -> None:
    db = load_application({}).db
    fill(db)
    samples = inventory_samples(db, ProviderCache(db), [AGGREGATE, UNKNOWN])
    assert {(name, *labels): value for name, value, labels in samples if value} == {
        ('placement_database_schema_info', migration.head()): 1,
        ('placement_resource_providers',): 5,
        ('placement_trees',): 3,
        ('placement_consumers',): 4,
        ('placement_allocations',): 5,
        ('placement_inventories', 'VCPU', 'available'): 5,
        **units('placement_inventory', (), 100, 125, 30, 95, 23),
        ('placement_aggregate_resource_providers', AGGREGATE): 4,
        ('placement_aggregate_trees', AGGREGATE): 2,
        **units('placement_aggregate_inventory', (AGGREGATE,), 80, 100, 20, 80, 23),
    }
    assert allocation_samples(db, [AGGREGATE, UNKNOWN]) == [
        ('placement_usage_mismatches', 1, ()),
        ('placement_aggregate_consumers', 3, (AGGREGATE,)),
        ('placement_aggregate_allocations', 4, (AGGREGATE,)),
        ('placement_aggregate_consumers', 0, (UNKNOWN,)),
        ('placement_aggregate_allocations', 0, (UNKNOWN,)),
    ]


def test_few_statements_read_an_unchanged_cloud_again(db: Database, queries: Counter) -> None:
    fill(db)
    provider_cache = ProviderCache(db)
    with queries(at_most=11):
        first = inventory_samples(db, provider_cache, [AGGREGATE, UNKNOWN])
    with queries(at_most=4):
        assert inventory_samples(db, provider_cache, [AGGREGATE, UNKNOWN]) == first
    with queries(at_most=2):
        allocation_samples(db, [AGGREGATE, UNKNOWN])
