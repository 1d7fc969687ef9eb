"""The numbers about the whole cloud on PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from placement.db import tables
from placement.db.api import Database
from tests.support import cloud, databases

pytestmark = pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()), indirect=True)

_FILLED = (
    tables.allocations,
    tables.inventories,
    tables.consumers,
    tables.users,
    tables.projects,
    tables.resource_provider_aggregates,
    tables.placement_aggregates,
    tables.resource_providers,
)


@pytest.fixture
def empty(load_application: Callable[[dict[str, Any]], Any]) -> Database:
    """A database with the schema and nothing in it."""
    db: Database = load_application({}).db
    _clear(db)
    return db


def _clear(db: Database) -> None:
    with db.engine.begin() as connection:
        # Otherwise a provider could not be deleted before its children.
        connection.execute(tables.resource_providers.update().values(root_provider_id=None, parent_provider_id=None))
        for table in _FILLED:
            connection.execute(table.delete())


def test_counts_trees_aggregates_and_usage_mismatches(empty: Database) -> None:
    cloud.assert_counts(empty)
