"""Statements that the server cancels, and connections that it ends: what was answered is what is stored, or 503."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import random
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement import deploy, exception
from placement.db import errors
from placement.db.api import RollbackAndDiagnose
from placement.ops.audit import audit
from placement.ops.audit.kinds import KINDS
from tests.support import applications, corruption, databases
from tests.support.event_hooks import listening
from tests.support.http_client import claim_body, create_provider, send_request
from tests.support.waiting import wait_until

pytestmark = databases.on(*databases.defaults(), databases.mysqlclient())

#: If KILL QUERY arrives between two statements of one text, the server answers nothing. The client then waits for
#: ``socket_timeout``, and others wait for its row locks.
TIMEOUTS = {'socket_timeout': 2, 'lock_wait_timeout': 1}
CLIENTS = 8
#: Each client claims so often, and goes on until enough statements were interrupted, to the maximum.
MIN_CLAIMS, MAX_CLAIMS = 10, 400
MIN_INTERRUPTIONS = 40
#: Units of each of the two hosts.
UNITS = 5

#: Host and amount of each allocation of a consumer.
Held = list[tuple[str, int]]

#: What is executed on the connection, by way and backend: it cancels itself, so that it fails and the transaction stays
#: open; it ends the connection; it fails with the numbers and messages of a failed certification on MySQL 9.7.
STATEMENTS = {
    ('cancel', 'postgresql'): ['SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)'],
    ('cancel', 'mysql'): ['KILL QUERY CONNECTION_ID()'],
    ('end', 'postgresql'): ['SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1)'],
    ('end', 'mysql'): ['KILL CONNECTION_ID()'],
    ('certification', 'mysql'): [
        f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{message}'"
        for number, message in (
            (1180, "Got error 149 - ''Lock deadlock; Retry transaction'' during COMMIT"),
            (3100, "Error on observer while running replication hook ''before_commit''."),
            (3101, 'Plugin instructed the server to rollback the current transaction.'),
        )
    ],
}


@contextlib.contextmanager
def interrupting(app: deploy.Application, word: str, way: str) -> Iterator[list[str]]:
    """Interrupt about half of the COMMITs or ROLLBACKs that the driver executes; yields the interruptions so far.

    Another statement is executed before. With ``silence`` the connection ends afterwards, so that the answer is lost.
    """
    interrupted: list[str] = []
    choose, is_silent = random.Random(0), way == 'silence'
    statements = STATEMENTS['end' if is_silent else way, app.db.engine.dialect.name]
    with app.db.engine.connect() as connection:
        driver = type(connection.connection.dbapi_connection)
    execute = getattr(driver, word)

    def interrupt(connection: Any) -> None:
        if is_silent:
            execute(connection)
        if choose.random() < 0.5:
            interrupted.append(word)
            with contextlib.closing(connection.cursor()) as cursor:
                cursor.execute(choose.choice(statements))
        if not is_silent:
            execute(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, word, interrupt)
        yield interrupted


#: Cancels what the other sessions execute.
CANCEL_OTHERS = (
    'SELECT pg_cancel_backend(pid) FROM pg_stat_activity'
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND state <> 'idle'"
)


@contextlib.contextmanager
def canceling(database: sa.URL) -> Iterator[list[str]]:
    """Cancel the statements of all other sessions again and again; yields the cancellations so far."""
    done = threading.Event()
    canceled: list[str] = []

    def cancel(connection: sa.Connection) -> None:
        while not done.wait(0.005):
            if database.get_backend_name() == 'postgresql':
                canceled.extend('statement' for _ in connection.exec_driver_sql(CANCEL_OTHERS))
                continue
            for number, command in databases.other_sessions(connection).items():
                # It may have ended by then.
                with contextlib.suppress(sa.exc.DBAPIError):
                    if command != 'Sleep':
                        connection.exec_driver_sql(f'KILL QUERY {number}')
                        canceled.append('statement')

    engine = sa.create_engine(database, isolation_level='AUTOCOMMIT', poolclass=sa.NullPool)
    with engine.connect() as connection, concurrent.futures.ThreadPoolExecutor(1) as pool:
        canceler = pool.submit(cancel, connection)
        try:
            yield canceled
        finally:
            done.set()
    canceler.result()


@pytest.fixture
def app(database: sa.URL) -> Iterator[deploy.Application]:
    """An application on the database."""
    with applications.application(database, placement_database=TIMEOUTS) as app:
        yield app


@pytest.mark.parametrize(
    ('word', 'way'),
    [
        ('statement', 'cancel'),
        *itertools.product(['rollback', 'commit'], ['cancel', 'end', 'silence']),
        ('commit', 'certification'),
    ],
)
def test_what_was_answered_is_what_is_stored(
    app: deploy.Application, database: sa.URL, caplog: pytest.LogCaptureFixture, word: str, way: str
) -> None:
    if (database.get_backend_name(), way) in {('mysql', 'end'), ('postgresql', 'certification')}:
        pytest.skip('Ended connections of MariaDB are in test_outage.py. PostgreSQL certifies nothing.')
    hosts = [create_provider(app, VCPU=UNITS) for _ in range(2)]
    responses: dict[str, tuple[int, str, int]] = {}

    def run_client(number: int) -> None:
        chosen = random.Random(number)
        for _ in _until_enough(interrupted):
            consumer, host = str(uuid.uuid4()), chosen.choice(hosts)
            # 100 never fit.
            amount = chosen.choice([1, 2, 100])
            response = send_request(app, 'PUT', f'/allocations/{consumer}', claim_body({host: {'VCPU': amount}}))
            responses[consumer] = (response.status_int, host, amount)
            if response.status_int == 503:
                assert int(response.headers['Retry-After']) > 0
            if response.status_int == 503 or (response.status_int == 204 and chosen.random() < 0.9):
                responses[consumer] = (_release(app, consumer), host, amount)

    with (
        canceling(database) if word == 'statement' else interrupting(app, word, way) as interrupted,
        concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool,
    ):
        list(pool.map(run_client, range(CLIENTS)))
    # Whatever a connection of the pool may have left undone is committed by the next transaction on it.
    for _ in range(CLIENTS):
        send_request(app, 'DELETE', f'/allocations/{uuid.uuid4()}')
    assert len(interrupted) > MIN_INTERRUPTIONS
    # A failed certification says that nothing was committed, also while a slot of the change log is taken.
    statuses = {0, 204, 409} if way == 'certification' else {0, 204, 409, 503}
    assert {status for status, _, _ in responses.values()} <= statuses
    stored = _stored(database, hosts)
    for consumer, (status, host, amount) in responses.items():
        expected: dict[int, list[Held]] = {0: [[]], 204: [[(host, amount)]], 409: [[]], 503: [[], [(host, amount)]]}
        assert stored[consumer] in expected[status], (status, host, amount, stored[consumer])
    assert set(stored) <= set(responses)
    used = collections.Counter(
        {host: sum(a for allocations in stored.values() for h, a in allocations if h == host) for host in hosts}
    )
    assert all(used[host] <= UNITS for host in hosts), used
    for host in hosts:
        assert send_request(app, 'GET', f'/resource_providers/{host}/usages').json['usages'] == {'VCPU': used[host]}
    conf = applications.options(database)
    for kind in KINDS:
        assert audit.find(app.db, conf, kind) == [], kind
    # One line each; but SQLAlchemy logs a traceback if a second KILL QUERY arrives while it closes a failed cursor.
    records = [record for record in caplog.records if record.name.startswith('placement')]
    assert [record for record in records if record.exc_info or '\n' in record.getMessage()] == []


def _until_enough(interrupted: list[str]) -> Iterator[int]:
    for claims in range(MAX_CLAIMS):
        if claims >= MIN_CLAIMS and len(interrupted) > MIN_INTERRUPTIONS:
            return
        yield claims


def _release(app: deploy.Application, consumer: str) -> int:
    """Delete the allocations of a consumer; 0 if it has none now, 503 if nobody knows.

    409 says that every retry was interrupted, and that nothing changed: one DELETE in 2,000, if half are interrupted.
    """
    for _ in range(5):
        status = send_request(app, 'DELETE', f'/allocations/{consumer}').status_int
        if status in (204, 404):
            return 0
        assert status in (409, 503)
    return 503


#: Consumer, host and amount of each allocation.
ALLOCATIONS = """SELECT consumer_id, uuid, used FROM placement_allocations a
    JOIN placement_resource_providers p ON p.id = a.resource_provider_id"""


def _stored(database: sa.URL, hosts: list[str]) -> dict[str, Held]:
    """What each consumer holds of these hosts, read in a session of its own."""
    allocations = collections.defaultdict(list)
    with corruption.unguarded(database) as connection:
        for consumer, host, amount in connection.exec_driver_sql(ALLOCATIONS):
            if host in hosts:
                allocations[consumer].append((host, amount))
    return allocations


# One connection ------------------------------------------------------------------------------------------------------

LIMITS = {
    'postgresql': {'options': '-c statement_timeout=200'},
    'mysql': {
        'init_command': 'SET SESSION max_execution_time=200'
        if databases.on_mysql()
        else 'SET SESSION max_statement_time=0.2'
    },
}
SLOW = {'postgresql': 'SELECT pg_sleep(2)', 'mysql': 'SELECT SLEEP(2) FROM placement_traits'}


def test_a_time_limit_of_statements(app: deploy.Application, database: sa.URL) -> None:
    host, backend = create_provider(app, VCPU=10), database.get_backend_name()
    claim = 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 1}})
    limited = database.update_query_dict(LIMITS[backend])
    with applications.application(limited, placement_database={'sync_on_startup': False}) as app:
        for read in (app.db.fetch_all, lambda statement: app.db.write(lambda tx: tx.execute(statement))):
            with pytest.raises(exception.DatabaseUnavailable):
                read(sa.text(SLOW[backend]))
        if databases.on_mysql():
            # Its limit ends no statement that writes.
            return
        with corruption.unguarded(database) as connection:
            query = 'SELECT id FROM placement_resource_providers WHERE uuid = {!r} FOR UPDATE'
            connection.exec_driver_sql(query.format(host))
            rejected = send_request(app, *claim)
            assert (rejected.status_int, rejected.headers['Retry-After']) == (503, '2')
        assert send_request(app, *claim).status_int == 204


@pytest.mark.parametrize('reason', ['lock', 'cancel'])
def test_a_transaction_that_fails_in_each_attempt(app: deploy.Application, database: sa.URL, reason: str) -> None:
    """A lock that another session keeps is a conflict in the end. A canceled statement is a 503 in the end."""
    backend = app.db.engine.dialect.name
    row = f"placement_resource_providers WHERE uuid = '{create_provider(app, VCPU=1)}'"
    expected: dict[str, tuple[str, int, type[Exception]]] = {
        'lock': (f'SELECT id FROM {row} FOR UPDATE', 3, exception.ConcurrentProviderUpdate),
        'cancel': (
            STATEMENTS['cancel', backend][0],
            1 if backend == 'postgresql' else 3,
            exception.TransactionInterrupted,
        ),
    }
    statement, attempts, error = expected[reason]
    started = []

    def work(tx: sa.Connection) -> None:
        started.append(tx)
        tx.exec_driver_sql(statement)

    options = {'sync_on_startup': False, 'lock_wait_timeout': 1, 'max_transaction_retries': 2}
    with (
        applications.application(database, placement_database=options) as limited,
        corruption.unguarded(database) as connection,
    ):
        connection.exec_driver_sql(f'SELECT id FROM {row} FOR UPDATE')
        with pytest.raises(error):
            limited.db.write(work)
    assert len(started) == attempts


def test_a_connection_that_has_ended_is_replaced(app: deploy.Application, database: sa.URL) -> None:
    """So is the connection of a search, which has what was written meanwhile."""
    host, path = create_provider(app, VCPU=10), f'/allocations/{uuid.uuid4()}'
    for method, body, status, is_found in (
        ('GET', None, 200, True),
        ('PUT', claim_body({host: {'VCPU': 1}}), 204, False),
        ('DELETE', None, 204, True),
    ):
        databases.end_connections(database)
        assert send_request(app, method, path, body).status_int == status
        databases.end_connections(database)
        candidates = send_request(app, 'GET', '/allocation_candidates?resources=VCPU:10')
        assert (host in candidates.json['provider_summaries']) == is_found


#: What ends a session that does nothing outside of a transaction, and the codes that the next statement may fail with.
#: MariaDB does not say why. MySQL does (4031), but PyMySQL reports a lost connection, because the packet is no answer.
IDLE_LIMITS: dict[str, tuple[str, set[int | str]]] = {
    'postgresql': ("SET SESSION idle_session_timeout = '100ms'", {'57P05'}),
    'mysql': ('SET SESSION wait_timeout = 1', {2006, 2013, 4031}),
}


@pytest.mark.parametrize('method', ['GET', 'PUT'])
def test_a_connection_that_was_idle_for_too_long_is_replaced(
    app: deploy.Application, database: sa.URL, method: str
) -> None:
    host = create_provider(app, VCPU=10)
    statement, codes = IDLE_LIMITS[database.get_backend_name()]
    app.db.engine.dispose()
    app.db.read(lambda connection: connection.exec_driver_sql(statement))
    wait_until(lambda: not databases.has_other_sessions(database))
    failures: list[Any] = []

    def note(context: sa.ExceptionContext) -> None:
        error: Any = context.original_exception
        failures.append(getattr(error, 'sqlstate', None) or error.args[0])

    with listening(app.db.engine, 'handle_error', note):
        response = send_request(
            app, method, f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 1}}) if method == 'PUT' else None
        )
    assert response.status_int == {'GET': 200, 'PUT': 204}[method]
    assert len(failures) == 1
    assert set(failures) <= codes


def test_a_connection_that_ended_while_a_request_waited_for_it_is_replaced(database: sa.URL) -> None:
    """Waiting for the pool longer than a broken connection may take says nothing about the connection."""
    options = {'max_pool_size': 1, 'max_overflow': 0}
    with applications.application(database, placement_database=options) as app:
        host = create_provider(app, VCPU=10)
        for method, path, body, status in (
            ('GET', f'/resource_providers/{host}', None, 200),
            ('PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 1}}), 204),
        ):
            with concurrent.futures.ThreadPoolExecutor() as executor:
                with app.db.engine.connect():
                    response = executor.submit(send_request, app, method, path, body)
                    databases.end_connections(database)
                    time.sleep(errors.MAX_STALE_SECONDS + 0.2)
                    assert not response.done()
                assert response.result().status_int == status


#: The sessions that have a transaction and do nothing.
IDLE = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"


@pytest.mark.parametrize('reason', ['administrator', 'idle'])
def test_a_connection_that_ends_during_each_attempt_is_an_outage(
    app: deploy.Application, database: sa.URL, reason: str
) -> None:
    """The transaction is run again only once, because it may itself cause the end of connections."""
    if reason == 'idle' and database.get_backend_name() != 'postgresql':
        pytest.skip('MariaDB closes the connection, as an administrator does.')
    started = []

    def work(tx: sa.Connection) -> None:
        started.append(tx)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')
        if reason == 'idle':
            # Not for the whole session: on a slow machine other transactions may also be idle for so long.
            tx.exec_driver_sql('SET LOCAL idle_in_transaction_session_timeout = 100')
            wait_until(lambda: not corruption.column(database, IDLE))
        else:
            databases.end_connections(database)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')

    with pytest.raises(exception.DatabaseUnavailable):
        app.db.write(work)
    assert len(started) == 2


def test_a_connection_that_ends_during_a_diagnosis_is_one_failure(
    app: deploy.Application, database: sa.URL, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr('placement.db.availability._QUIET_SECONDS', 0.0)

    def diagnose(tx: sa.Connection) -> Exception:
        databases.end_connections(database)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')
        return AssertionError('the connection is open')

    def reject(tx: sa.Connection) -> None:
        raise RollbackAndDiagnose(diagnose)

    with pytest.raises(exception.DatabaseUnavailable):
        app.db.write(reject)
    app.db.read(lambda connection: connection.exec_driver_sql('SELECT id FROM placement_consumers'))
    assert 'The database is available again after 1 failed operation in 0 s.' in caplog.messages
