"""The connections of one process, counted at the server while many threads send requests."""

from __future__ import annotations

import concurrent.futures
import threading
import uuid

import pytest
import sqlalchemy as sa

from tests.support import applications, databases, races
from tests.support.http_client import ask, create_provider

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)

THREADS = 8
ROUNDS = 25
COUNT_ON_POSTGRESQL = (
    'SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()'
)


@pytest.mark.parametrize(('size', 'overflow'), [(2, 1), (1, 0), (8, 0)])
def test_a_process_has_no_more_than_the_limit(database: sa.URL, size: int, overflow: int) -> None:
    pool_options = {'max_pool_size': size, 'max_overflow': overflow, 'pool_timeout': 30}
    done = threading.Event()
    counts: list[int] = []

    def count() -> None:
        engine = sa.create_engine(database, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
        with engine.connect() as connection:
            while not done.is_set():
                if database.get_backend_name() == 'postgresql':
                    counts.append(connection.exec_driver_sql(COUNT_ON_POSTGRESQL).scalar_one())
                else:
                    counts.append(len(databases.other_sessions(connection)))

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

        counter = threading.Thread(target=count)
        counter.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
                statuses = set().union(*pool.map(run_client, range(THREADS)))
        finally:
            done.set()
            counter.join()
    assert statuses <= {200, 204, 409}
    assert 0 < max(counts) <= size + overflow
