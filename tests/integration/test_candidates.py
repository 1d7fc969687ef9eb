"""Allocation candidates on real servers: the worked examples, and amounts that no column holds."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support import applications, databases
from tests.support.search.examples import EXAMPLES, TOPOLOGIES, Example
from tests.support.search.oracle import assert_candidates
from tests.support.search.store import Stored

pytestmark = databases.ON_EACH


@pytest.fixture(scope='module')
def application(load_application: Any) -> Any:
    return load_application({'placement': applications.EVERY_MICROVERSION})


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_worked_example(application: Any, example: Example) -> None:
    stored = Stored(application, TOPOLOGIES[example.topology])
    response = stored.candidates(example.query, example.minor)
    assert_candidates(stored.entries(response), example.entries())
    assert set(stored.summaries(response)) == set(example.summaries.split())


@pytest.mark.parametrize('amount', [2**31, 10**19, 10**400])
def test_amounts_larger_than_any_inventory_find_nothing(application: Any, amount: int) -> None:
    stored = Stored(application, TOPOLOGIES['X5'])
    answer = stored.candidates(f'resources=VCPU:1&resources1=DISK_GB:{amount}')
    assert answer == {'allocation_requests': [], 'provider_summaries': {}}
