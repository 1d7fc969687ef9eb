"""The numbers about the whole cloud, on SQLite; tests/integration/test_inventory_stats.py has the other databases."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import tables
from placement.db.api import Database
from placement.reports import inventory_stats
from tests.support import cloud
from tests.support.http_client import create_provider, demand


@pytest.mark.parametrize('inventory', cloud.INVENTORIES, ids=str)
def test_capacity_and_largest_piece_follow_the_room_rule(db: Database, inventory: cloud.Inventory) -> None:
    cloud.assert_numbers(db, inventory)


def test_counts_trees_aggregates_and_wrong_usages(db: Database) -> None:
    cloud.assert_counts(db)


def test_a_tree_counts_of_which_only_a_child_is_in_the_aggregate(app: Any, db: Database) -> None:
    host = create_provider(app)
    for name in ('cell0', 'cell1'):
        child = {'name': name, 'parent_provider_uuid': host}
        made = demand(app, 'POST', '/resource_providers', child).json['uuid']
        member = {'resource_provider_generation': 0, 'aggregates': [cloud.AGGREGATE]}
        demand(app, 'PUT', f'/resource_providers/{made}/aggregates', member)
    (counted,) = inventory_stats.read_cloud(db, [cloud.AGGREGATE]).aggregates
    assert (counted.resource_providers, counted.trees) == (2, 1)


def test_the_number_of_statements_does_not_grow_with_the_cloud(db: Database, queries: Any) -> None:
    cloud.fill(db)
    with queries(at_most=8):
        inventory_stats.read_cloud(db, [cloud.AGGREGATE, cloud.EMPTY])
    with queries(at_most=2):
        inventory_stats.read_allocations(db, [cloud.AGGREGATE, cloud.EMPTY])
    with queries(at_most=1):
        inventory_stats.read_allocations(db, [])


def test_an_inventory_with_a_step_size_of_zero_has_no_largest_amount(db: Database) -> None:
    cloud.fill(db)
    with db.engine.begin() as connection:
        connection.execute(sa.update(tables.inventories).values(step_size=0))
    assert {totals.largest_free for totals in inventory_stats.read_cloud(db, []).classes} == {0}
