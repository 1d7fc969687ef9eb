"""More than 5,000 hostile requests to the real application: never a 5xx, and a refused request changes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.hostile_client import GOOD_HEADERS, Request, World
from tests.support.hostile_requests import BODY_TEMPLATES, anything, bodies, derandomised, queries

#: Requests per test, more than 5,000 in all.
BODIES, QUERIES, ANYTHING = 2600, 1600, 1400


def _attack(world: World, requests: st.SearchStrategy[Request], count: int) -> None:
    """Send ``count`` generated requests; ``World.attack`` checks each answer."""

    @derandomised(count)
    @given(requests)
    def attack(request: Request) -> None:
        world.attack(request)

    sent, refused = world.sent, world.refused
    attack()
    sent, refused = world.sent - sent, world.refused - refused
    assert sent >= count
    # Most requests must be refused: a generator of valid requests would test nothing.
    assert refused > sent // 3


@pytest.mark.parametrize(
    ('generator', 'count'),
    [(bodies, BODIES), (queries, QUERIES), (anything, ANYTHING)],
    ids=['bodies', 'queries', 'anything'],
)
def test_no_request_is_a_fault_of_the_service(
    world: World, generator: Callable[[], st.SearchStrategy[Request]], count: int
) -> None:
    _attack(world, generator(), count)


def test_good_request_of_each_template_is_understood(world: World) -> None:
    """The templates themselves are valid: no 404, 415 or schema error. Otherwise their mutations would test little."""
    for method, target, version, body in BODY_TEMPLATES:
        headers = {**GOOD_HEADERS, 'OpenStack-API-Version': f'placement {version}'}
        request = Request(method, target, headers, json.dumps(body).encode())
        answer = world.attack(request)
        assert answer.status in {200, 201, 204, 409}, (request, answer)
