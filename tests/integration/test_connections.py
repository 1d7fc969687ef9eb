"""The connections of one process: their number, how long they wait, and their character set.

Each pool of SQLAlchemy reports what it opens and closes. The server would count too many: it lists a connection for a
moment after the process has closed it.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
import sqlalchemy as sa

from placement.db import migration
from tests.integration import races, tcp_proxy
from tests.support import applications, databases
from tests.support.event_hooks import listening
from tests.support.http_client import create_provider, demand, send_request

pytestmark = databases.ON_EACH

T = TypeVar('T')

THREADS = 8
ROUNDS = 25


class OpenConnections:
    """The connections of this process, of all pools, and the most that were open at once."""

    def __init__(self) -> None:
        self.most = 0
        self.opened_count = 0
        self._now = 0
        self._lock = threading.Lock()

    def opened(self, *_arguments: object) -> None:
        with self._lock:
            self._now += 1
            self.opened_count += 1
            self.most = max(self.most, self._now)

    def closed(self, *_arguments: object) -> None:
        with self._lock:
            self._now -= 1


@pytest.fixture
def connections() -> Iterator[OpenConnections]:
    counter = OpenConnections()
    pool = sa.pool.Pool
    with (
        listening(pool, 'connect', counter.opened),
        listening(pool, 'close', counter.closed),
        listening(pool, 'close_detached', counter.closed),
    ):
        yield counter


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
                    statuses.add(send_request(app, method, path, body).status_int)
            return statuses

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            statuses = set().union(*pool.map(run_client, range(THREADS)))
    assert statuses <= {200, 204, 409}
    assert 0 < connections.most <= size + overflow


LOCK = {
    'postgresql': 'LOCK TABLE placement_resource_providers, placement_writer_slots IN ACCESS EXCLUSIVE MODE',
    'mysql': 'LOCK TABLES placement_resource_providers WRITE, placement_writer_slots WRITE',
}


@pytest.mark.parametrize('method', ['GET', 'PUT'])
@pytest.mark.parametrize('silence', ['locked table', 'proxy'])
def test_a_request_that_is_not_answered_fails_after_one_timeout(
    database: sa.URL, connections: OpenConnections, silence: str, method: str
) -> None:
    options = {'socket_timeout': 1, 'lock_wait_timeout': 0}
    with (
        tcp_proxy.before(database) as (proxy, through),
        applications.application(through, placement_database=options) as app,
        contextlib.ExitStack() as stack,
    ):
        host = create_provider(app, VCPU=100)
        if silence == 'proxy':
            proxy.is_silent = True
        else:
            stack.enter_context(holding(database, LOCK[database.get_backend_name()]))
        opened = connections.opened_count
        body = races.claim([host], None) if method == 'PUT' else None
        path = f'/allocations/{uuid.uuid4()}' if method == 'PUT' else f'/resource_providers/{host}/usages'
        response = in_thread(send_request, app, method, path, body).result(timeout=40)
        assert (response.status_int, response.headers['Retry-After']) == (503, '2')
        # A second attempt would open a connection.
        assert connections.opened_count == opened
        proxy.is_silent = False


def test_a_change_of_the_schema_waits_longer(database: sa.URL) -> None:
    if database.get_backend_name() != 'postgresql':
        pytest.skip('The limit of MariaDB applies to locks on rows only.')
    long_wait = (
        'SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()'
        " AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '1500 ms'"
    )
    with applications.database(database, lock_wait_timeout=1) as db:
        with holding(database, f'SELECT pg_advisory_xact_lock({migration._ADVISORY_LOCK_ID})') as holder:
            sync = in_thread(db.sync)
            while not holder.exec_driver_sql(long_wait).scalar():
                # Otherwise PostgreSQL shows the same sessions throughout a transaction.
                holder.exec_driver_sql('SELECT pg_stat_clear_snapshot()')
                assert not sync.done()
        sync.result()


#: In sjis the yen sign is encoded as a backslash, so that the quote after it would end the text.
INJECTION = "\u00a5' UNION SELECT 1, 2, 3, 4, 5, 6 -- "


@pytest.mark.parametrize('parameters', [{}, {'init_command': 'SET NAMES sjis'}, {'charset': 'utf8'}])
def test_connections_use_utf8mb4_and_text_is_stored_literally(database: sa.URL, parameters: dict[str, str]) -> None:
    """Also if the URL asks for a character set in which escaped text is not safe."""
    if database.get_backend_name() != 'mysql':
        pytest.skip('only MySQL and MariaDB')
    with applications.application(database.update_query_dict(parameters)) as app:
        shown = app.db.fetch_all(
            sa.text('SELECT @@character_set_client, @@character_set_connection, @@character_set_results')
        )
        assert set(shown[0]) == {'utf8mb4'}
        with app.db.reader() as tx:
            assert tx.exec_driver_sql('SELECT @@character_set_client').scalar() == 'utf8mb4'
        host, consumer = create_provider(app, VCPU=4), str(uuid.uuid4())
        body = races.claim([host], None) | {'project_id': INJECTION, 'user_id': INJECTION}
        demand(app, 'PUT', f'/allocations/{consumer}', body)
        allocations = demand(app, 'GET', f'/allocations/{consumer}').json
        assert (allocations['project_id'], allocations['user_id']) == (INJECTION, INJECTION)
        assert demand(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': 1}


@contextlib.contextmanager
def holding(database: sa.URL, statement: str) -> Iterator[sa.Connection]:
    """A session with an open transaction that has executed ``statement``."""
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(statement)
        yield connection


def in_thread(function: Callable[..., T], *arguments: object) -> concurrent.futures.Future[T]:
    """Call a function in a thread of its own."""
    pool = concurrent.futures.ThreadPoolExecutor(1)
    future = pool.submit(function, *arguments)
    pool.shutdown(wait=False)
    return future
