"""Statements that the server cancels, and connections that it ends: 503 with Retry-After, and nothing half-written."""

from __future__ import annotations

import concurrent.futures
import contextlib
import threading
import uuid

import pytest
import sqlalchemy as sa

from placement import exception
from placement.ops import audit
from tests.integration import races
from tests.support import applications, databases
from tests.support.http_client import create_provider, send_request
from tests.support.waiting import wait_until

pytestmark = databases.on(*databases.defaults(), databases.mysqlclient())

#: If KILL QUERY arrives between two statements of one text, the server answers nothing. The client then waits for
#: ``socket_timeout``, and others wait for its row locks.
TIMEOUTS = {'socket_timeout': 2, 'lock_wait_timeout': 1}
THREADS = 6
ROUNDS = 60
CANCEL_ON_POSTGRESQL = (
    'SELECT pg_cancel_backend(pid) FROM pg_stat_activity'
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
)


def test_statements_canceled_under_load(database: sa.URL, caplog: pytest.LogCaptureFixture) -> None:
    done = threading.Event()

    def cancel() -> None:
        engine = sa.create_engine(database, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
        with engine.connect() as connection:
            while not done.wait(0.005):
                if database.get_backend_name() == 'postgresql':
                    connection.exec_driver_sql(CANCEL_ON_POSTGRESQL).all()
                else:
                    for number, command in databases.other_sessions(connection).items():
                        # It may have ended by then.
                        with contextlib.suppress(sa.exc.DBAPIError):
                            if command != 'Sleep':
                                connection.exec_driver_sql(f'KILL QUERY {number}')

    with applications.application(database, placement_database=TIMEOUTS) as app:
        host = create_provider(app, VCPU=1000)

        statuses: dict[str, int] = {}

        def run_client(_number: int) -> None:
            for _ in range(ROUNDS):
                consumer = str(uuid.uuid4())
                response = send_request(app, 'PUT', f'/allocations/{consumer}', races.claim([host], None))
                if response.status_int == 503:
                    assert response.headers['Retry-After'] == '2'
                statuses[consumer] = response.status_int
                send_request(app, 'GET', f'/resource_providers/{host}/usages')

        canceller = threading.Thread(target=cancel)
        canceller.start()
        try:
            with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
                list(pool.map(run_client, range(THREADS)))
        finally:
            done.set()
            canceller.join()
        # 409: all attempts of a claim were canceled or waited for a row lock too long, the last one the latter.
        assert set(statuses.values()) <= {204, 409, 503}
        conf = applications.options(database)
        for kind in audit.CHECKS:
            assert audit.find(app.db, conf, kind) == [], kind
        stored = send_request(app, 'GET', f'/resource_providers/{host}/allocations').json['allocations']
        # A COMMIT may have succeeded before a 503.
        expected = {consumer: status == 204 for consumer, status in statuses.items() if status != 503}
        assert {consumer: consumer in stored for consumer in expected} == expected
    # One line each, without a traceback.
    long = [record for record in caplog.records if record.exc_info or '\n' in record.getMessage()]
    assert not long, (long[0].getMessage(), long[0].exc_info)


LIMITS = {
    'postgresql': {'options': '-c statement_timeout=200'},
    'mysql': {
        'init_command': 'SET SESSION max_execution_time=200'
        if databases.on_mysql()
        else 'SET SESSION max_statement_time=0.2'
    },
}
SLOW = {'postgresql': 'SELECT pg_sleep(2)', 'mysql': 'SELECT SLEEP(2) FROM placement_traits'}


def test_a_time_limit_of_statements(database: sa.URL) -> None:
    backend = database.get_backend_name()
    with applications.application(database) as app:
        host = create_provider(app, VCPU=10)
    limited = database.update_query_dict(LIMITS[backend])
    options = {'sync_on_startup': False}
    with applications.application(limited, placement_database=options) as app:
        for read in (app.db.fetch_all, lambda statement: app.db.write(lambda tx: tx.execute(statement))):
            with pytest.raises(exception.DatabaseUnavailable):
                read(sa.text(SLOW[backend]))
        if databases.on_mysql():
            # Its limit ends no statement that writes.
            return
        engine = sa.create_engine(database, poolclass=sa.NullPool)
        with engine.connect() as connection:
            query = 'SELECT id FROM placement_resource_providers WHERE uuid = {!r} FOR UPDATE'
            connection.exec_driver_sql(query.format(host))
            rejected = send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', races.claim([host], None))
            assert (rejected.status_int, rejected.headers['Retry-After']) == (503, '2')
            connection.rollback()
        assert send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', races.claim([host], None)).status_int == 204


#: The number of sessions that have a transaction and do nothing.
IDLE = """SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND state = 'idle in transaction'"""


def test_a_time_limit_of_idle_transactions(database: sa.URL) -> None:
    if database.get_backend_name() != 'postgresql':
        pytest.skip('MariaDB closes the connection, as in an outage.')
    administrator = sa.create_engine(database, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
    with applications.application(database) as app:

        def idle(tx: sa.Connection) -> None:
            # Not for the whole session: on a slow machine other transactions may also be idle for so long.
            tx.exec_driver_sql('SET LOCAL idle_in_transaction_session_timeout = 100')
            with administrator.connect() as connection:
                wait_until(lambda: not connection.exec_driver_sql(IDLE).scalar())
            tx.exec_driver_sql('SELECT 1')

        with pytest.raises(exception.DatabaseUnavailable):
            app.db.write(idle)
        assert send_request(app, 'GET', '/resource_providers').status_int == 200


def test_a_connection_that_has_ended_is_replaced(database: sa.URL) -> None:
    """So is the connection of a search, which has what was written meanwhile."""
    with applications.application(database) as app:
        host, path = create_provider(app, VCPU=10), f'/allocations/{uuid.uuid4()}'
        for method, body, status, is_found in (
            ('GET', None, 200, True),
            ('PUT', races.claim([host], None), 204, False),
            ('DELETE', None, 204, True),
        ):
            databases.end_connections(database)
            assert send_request(app, method, path, body).status_int == status
            databases.end_connections(database)
            candidates = send_request(app, 'GET', '/allocation_candidates?resources=VCPU:10')
            assert (host in candidates.json['provider_summaries']) == is_found


@pytest.mark.parametrize('failing_call', ['statement', 'commit'])
def test_a_connection_that_ends_during_a_transaction_is_an_outage(database: sa.URL, failing_call: str) -> None:
    """It may have been committed, or may itself cause the end of connections."""
    started = []

    def work(tx: sa.Connection) -> None:
        started.append(tx)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')
        databases.end_connections(database)
        if failing_call == 'statement':
            tx.exec_driver_sql('SELECT id FROM placement_consumers')

    with applications.application(database) as app, pytest.raises(exception.DatabaseUnavailable):
        app.db.write(work)
    assert len(started) == 1
