"""More than 5,000 malformed requests to the real application: never a 5xx, and a rejected request changes nothing.

The default suite sends a quarter of them, the stage ``thorough`` all.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.malformed_requests import BODY_TEMPLATES, anything, bodies, derandomized, queries
from tests.support.raw_client import GOOD_HEADERS, Request, Topology

#: Requests per test, more than 5,000 in all.
BODIES, QUERIES, ANYTHING = 2600, 1600, 1400
DIVISOR = 1 if settings.get_current_profile_name() == 'thorough' else 4


def _attack(topology: Topology, requests: st.SearchStrategy[Request], count: int) -> None:
    """Send ``count`` generated requests; ``Topology.attack`` checks each answer."""

    @derandomized(count)
    @given(requests)
    def attack(request: Request) -> None:
        topology.attack(request)

    sent, rejected = topology.sent, topology.rejected
    attack()
    sent, rejected = topology.sent - sent, topology.rejected - rejected
    assert sent >= count
    # Most requests must be rejected: a generator of valid requests would test nothing.
    assert rejected > sent // 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ('generator', 'count'),
    [(bodies, BODIES), (queries, QUERIES), (anything, ANYTHING)],
    ids=['bodies', 'queries', 'anything'],
)
def test_no_request_is_a_fault_of_the_service(
    topology: Topology, generator: Callable[[], st.SearchStrategy[Request]], count: int
) -> None:
    _attack(topology, generator(), count // DIVISOR)


def test_good_request_of_each_template_is_understood(topology: Topology) -> None:
    """The templates themselves are valid: no 404, 415 or schema error. Otherwise their mutations would test little."""
    for method, target, version, body in BODY_TEMPLATES:
        headers = {**GOOD_HEADERS, 'OpenStack-API-Version': f'placement {version}'}
        request = Request(method, target, headers, json.dumps(body).encode())
        answer = topology.attack(request)
        assert answer.status in {200, 201, 204, 409}, (request, answer)
