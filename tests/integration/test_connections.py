"""The connections of one process, counted while many threads send requests.

Each pool of SQLAlchemy reports what it opens and closes. The server would count too many: it lists a connection for a
moment after the process has closed it.
"""

from __future__ import annotations

import concurrent.futures
import threading
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.support import applications, databases, races
from tests.support.http_client import ask, create_provider

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)

THREADS = 8
ROUNDS = 25


class OpenConnections:
    """The connections of this process, of all pools, and the most that were open at once."""

    def __init__(self) -> None:
        self.most = 0
        self._now = 0
        self._lock = threading.Lock()

    def opened(self, *_arguments: object) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def closed(self, *_arguments: object) -> None:
        with self._lock:
            self._now -= 1


@pytest.fixture
def connections() -> Iterator[OpenConnections]:
    counter = OpenConnections()
    listeners = [('connect', counter.opened), ('close', counter.closed), ('close_detached', counter.closed)]
    for event, listener in listeners:
        sa.event.listen(sa.pool.Pool, event, listener)
    yield counter
    for event, listener in listeners:
        sa.event.remove(sa.pool.Pool, event, listener)


@pytest.mark.parametrize(('size', 'overflow'), [(2, 1), (1, 0), (8, 0)])
def test_a_process_has_no_more_than_the_limit(
    database: sa.URL, connections: OpenConnections, size: int, overflow: int
) -> None:
    pool_options = {'max_pool_size': size, 'max_overflow': overflow, 'pool_timeout': 30}
    with applications.application(database, placement_database=pool_options) as app:
        host = create_provider(app, VCPU=100)

        def run_client(_number: int) -> set[int]:
            statuses = set()
            for _ in range(ROUNDS):
                consumer = str(uuid.uuid4())
                for method, path, body in (
                    ('PUT', f'/allocations/{consumer}', races.claim([host], None)),
                    ('GET', f'/allocations/{consumer}', None),
                    ('GET', '/allocation_candidates?resources=VCPU:1', None),
                    ('PUT', f'/allocations/{uuid.uuid4()}', races.claim([host], 7)),
                    ('DELETE', f'/allocations/{consumer}', None),
                ):
                    statuses.add(ask(app, method, path, body).status_int)
            return statuses

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            statuses = set().union(*pool.map(run_client, range(THREADS)))
    assert statuses <= {200, 204, 409}
    assert 0 < connections.most <= size + overflow
