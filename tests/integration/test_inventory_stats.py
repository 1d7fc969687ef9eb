"""The numbers about the whole cloud on PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.support import cloud, databases

pytestmark = databases.ON_EACH


def test_counts_trees_aggregates_and_usage_mismatches(load_application: Callable[[dict[str, Any]], Any]) -> None:
    cloud.assert_counts(load_application({}).db)
