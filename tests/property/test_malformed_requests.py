"""More than 5,000 malformed requests to the real application: never a 5xx, and a rejected request changes nothing.

The default suite sends a quarter of them, the stage ``thorough`` all.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import applications
from tests.support.malformed_requests import (
    BODY_TEMPLATES,
    HOST_URL,
    Request,
    Topology,
    anything,
    bodies,
    derandomized,
    queries,
    with_body,
)

#: Requests per test, more than 5,000 in all.
BODIES, QUERIES, ANYTHING = 2600, 1600, 1400
DIVISOR = 1 if settings.get_current_profile_name() == 'thorough' else 4


@pytest.fixture(scope='module')
def topology(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Topology]:
    """An application with a database of its own, for malformed requests; one for all tests of a module."""
    database = tmp_path_factory.mktemp('malformed') / 'placement.sqlite'
    with applications.application(database, placement=applications.EVERY_MICROVERSION) as app:
        topology = Topology(app)
        yield topology
        topology.close()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ('generator', 'count'),
    [(bodies, BODIES), (queries, QUERIES), (anything, ANYTHING)],
    ids=['bodies', 'queries', 'anything'],
)
def test_no_request_is_a_fault_of_the_service(
    topology: Topology, generator: Callable[[], st.SearchStrategy[Request]], count: int
) -> None:
    """``Topology.attack`` checks each answer."""
    count //= DIVISOR

    @derandomized(count)
    @given(generator())
    def attack(request: Request) -> None:
        topology.attack(request)

    sent, rejected = topology.sent, topology.rejected
    attack()
    sent, rejected = topology.sent - sent, topology.rejected - rejected
    assert sent >= count
    # Most requests must be rejected: a generator of valid requests would test nothing.
    assert rejected > sent // 3


def test_good_request_of_each_template_is_understood(topology: Topology) -> None:
    """The templates themselves are valid: no 404, 415 or schema error. Otherwise their mutations would test little."""
    for line, body in BODY_TEMPLATES:
        request = with_body(line, json.dumps(body).encode())
        answer = topology.attack(request)
        assert answer.status_int in {200, 201, 204, 409}, (request, answer)


def test_values_that_no_database_can_hold_are_rejected(topology: Topology) -> None:
    assert topology.attack(Request('POST', '/resource_providers', body=rb'{"name": "\u0000"}')).status_int == 400
    ratio = json.dumps({'resource_class': 'DISK_GB', 'total': 1, 'allocation_ratio': -(10**400)}).encode()
    assert topology.attack(with_body(f'POST {HOST_URL}/inventories 1.29', ratio)).status_int == 400


@pytest.mark.parametrize('text', ['a%0d%0aX-Evil: 1', 'a%0aX-Evil: 1', '%0d%0a%0d%0a<script>'])
def test_line_breaks_do_not_reach_the_headers(topology: Topology, text: str) -> None:
    """``send`` fails on a header with a line break; names from the path are in Location."""
    for target in (f'/traits/{text}', f'/resource_classes/{text}', f'/resource_providers/{text}', f'/{text}'):
        answer = topology.attack(Request('PUT', target, body=b'{"name": "n"}'))
        assert answer.status_int in {400, 404}
        assert 'x-evil' not in answer.headers
