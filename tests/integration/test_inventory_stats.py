"""The numbers about the whole cloud on PostgreSQL and MariaDB."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.support import cloud, databases

pytestmark = pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()), indirect=True)


def test_counts_trees_aggregates_and_usage_mismatches(load_application: Callable[[dict[str, Any]], Any]) -> None:
    cloud.assert_counts(load_application({}).db)
