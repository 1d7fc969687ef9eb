"""Allocation candidates on real servers: the worked examples and random topologies against the oracle."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from tests.support import databases
from tests.support.candidates.examples import EXAMPLES, WORLDS, bodies
from tests.support.candidates.oracle import RP, Oracle, Query
from tests.support.candidates.store import Stored
from tests.support.candidates.worlds import queries, thorough, worlds

pytestmark = pytest.mark.parametrize('setting', databases.parameters(*databases.defaults()), indirect=True)


@pytest.fixture(scope='module')
def application(load_application: Any) -> Any:
    return load_application({})


def test_worked_examples(application: Any) -> None:
    for example in EXAMPLES:
        stored = Stored(application, WORLDS[example.world])
        answer = stored.candidates(example.query, example.minor)
        assert set(stored.bodies(answer)) == bodies(example.candidates), example
        assert set(stored.summaries(answer)) == set(example.summaries.split()), example


@thorough(40)
@given(worlds(), queries((10, 17, 21, 24, 25, 28, 29, 29)))
def test_random_topologies(application: Any, world: list[RP], query: Query) -> None:
    stored = Stored(application, world)
    answer = stored.candidates(query)
    oracle = Oracle(world)
    expected = oracle.candidates(query)
    found = stored.bodies(answer)
    assert set(found) == expected
    assert len(found) == len(set(found))
    assert stored.summaries(answer) == oracle.summaries(query, expected)


@pytest.mark.parametrize('amount', [2**31, 10**19, 10**400])
def test_amounts_larger_than_any_inventory_find_nothing(application: Any, amount: int) -> None:
    stored = Stored(application, WORLDS['X5'])
    answer = stored.candidates(f'resources=VCPU:1&resources1=DISK_GB:{amount}')
    assert answer == {'allocation_requests': [], 'provider_summaries': {}}
