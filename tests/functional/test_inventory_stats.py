"""The numbers about the whole cloud, on SQLite; tests/integration/test_inventory_stats.py has the other databases."""

from __future__ import annotations

from typing import Any

from placement.cache.refresh import ProviderCache
from placement.db.api import Database
from placement.ops.metrics import allocation_samples, inventory_samples
from tests.support import cloud
from tests.support.http_client import create_provider, demand


def test_counts_trees_aggregates_and_usage_mismatches(db: Database) -> None:
    cloud.assert_counts(db)


def test_a_tree_counts_of_which_only_a_child_is_in_the_aggregate(app: Any, db: Database) -> None:
    host = create_provider(app)
    for name in ('cell0', 'cell1'):
        body = {'name': name, 'parent_provider_uuid': host}
        child = demand(app, 'POST', '/resource_providers', body).json['uuid']
        member = {'resource_provider_generation': 0, 'aggregates': [cloud.AGGREGATE]}
        demand(app, 'PUT', f'/resource_providers/{child}/aggregates', member)
    samples = inventory_samples(db, ProviderCache(db), [cloud.AGGREGATE])
    assert ('placement_aggregate_resource_providers', 3, (cloud.AGGREGATE,)) in samples
    assert ('placement_aggregate_trees', 1, (cloud.AGGREGATE,)) in samples


def test_an_unchanged_cloud_is_not_read_again(db: Database, queries: Any) -> None:
    cloud.fill(db)
    provider_cache = ProviderCache(db)
    with queries(at_most=11):
        first = inventory_samples(db, provider_cache, [cloud.AGGREGATE, cloud.EMPTY])
    with queries(at_most=4):
        assert inventory_samples(db, provider_cache, [cloud.AGGREGATE, cloud.EMPTY]) == first


def test_the_number_of_statements_does_not_grow_with_the_aggregates(db: Database, queries: Any) -> None:
    cloud.fill(db)
    with queries(at_most=2):
        allocation_samples(db, [cloud.AGGREGATE, cloud.EMPTY])
    with queries(at_most=1):
        allocation_samples(db, [])
