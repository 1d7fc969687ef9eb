"""Allocation candidates on real servers: the worked examples and random topologies against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support import applications, databases
from tests.support.search.examples import EXAMPLES, TOPOLOGIES, Example
from tests.support.search.oracle import RP, Query
from tests.support.search.store import Stored, check_example, check_query
from tests.support.search.topologies import queries, thorough, topologies

pytestmark = pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()), indirect=True)


@pytest.fixture(scope='module')
def application(load_application: Any) -> Any:
    return load_application({'placement': applications.EVERY_MICROVERSION})


@pytest.mark.parametrize('example', EXAMPLES, ids=str)
def test_worked_example(application: Any, example: Example) -> None:
    check_example(application, example)


@thorough(40)
@given(topologies(), queries((10, 17, 21, 24, 25, 28, 29, 29)))
def test_random_topologies(application: Any, topology: list[RP], query: Query) -> None:
    check_query(application, topology, query)


@pytest.mark.parametrize('amount', [2**31, 10**19, 10**400])
def test_amounts_larger_than_any_inventory_find_nothing(application: Any, amount: int) -> None:
    stored = Stored(application, TOPOLOGIES['X5'])
    answer = stored.candidates(f'resources=VCPU:1&resources1=DISK_GB:{amount}')
    assert answer == {'allocation_requests': [], 'provider_summaries': {}}
