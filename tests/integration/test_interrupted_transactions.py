"""Transactions whose COMMIT or ROLLBACK is interrupted: what was answered is what is stored, and nothing else."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import itertools
import random
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement import deploy
from placement.ops import audit
from tests.support import applications, corruption, databases
from tests.support.http_client import claim_body, create_provider, send_request

pytestmark = databases.ON_EACH

CLIENTS = 8
#: Each client claims so often, and goes on until enough statements were interrupted, to the maximum.
MIN_CLAIMS, MAX_CLAIMS = 10, 400
MIN_INTERRUPTIONS = 40
#: Units of each of the two hosts.
UNITS = 5

#: Host and amount of each allocation of a consumer.
Held = list[tuple[str, int]]

#: They cancel themselves, so that they fail and the transaction stays open.
CANCEL = {
    'postgresql': 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)',
    'mysql': 'KILL QUERY CONNECTION_ID()',
}
#: They end the connection.
END = {'postgresql': 'SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1)', 'mysql': 'KILL CONNECTION_ID()'}
#: They fail with the numbers and messages with which a COMMIT fails certification on MySQL 9.7.
FAILED_CERTIFICATIONS = [
    f"SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = {number}, MESSAGE_TEXT = '{message}'"
    for number, message in (
        (1180, "Got error 149 - ''Lock deadlock; Retry transaction'' during COMMIT"),
        (3100, "Error on observer while running replication hook ''before_commit''."),
        (3101, 'Plugin instructed the server to rollback the current transaction.'),
    )
]


class Interruptions:
    """Interrupts about half of the COMMITs or ROLLBACKs that a driver executes, in one of four ways.

    ``cancel`` and ``certification``: another statement is executed instead, and fails. ``end``: the connection ends
    before. ``silence``: it ends afterwards, so that the answer is lost.
    """

    def __init__(self, backend: str, execute: Callable[[Any], None], way: str) -> None:
        self.count = 0
        self._way = way
        self._choose = random.Random(0)
        self._backend = backend
        self._execute = execute

    def __call__(self, connection: Any) -> None:
        """Execute the COMMIT or ROLLBACK on a connection, or interrupt it."""
        if self._way == 'silence':
            self._execute(connection)
        if self._choose.random() < 0.5:
            self.count += 1
            if self._way == 'certification':
                statement = self._choose.choice(FAILED_CERTIFICATIONS)
            else:
                statement = (CANCEL if self._way == 'cancel' else END)[self._backend]
            with contextlib.closing(connection.cursor()) as cursor:
                cursor.execute(statement)
        if self._way != 'silence':
            self._execute(connection)


def interrupting(app: deploy.Application, monkeypatch: pytest.MonkeyPatch, word: str, way: str) -> Interruptions:
    """Replace a method of the driver's connections, ``commit`` or ``rollback``, by one that interrupts it."""
    with app.db.engine.connect() as connection:
        driver = type(connection.connection.dbapi_connection)
    interruptions = Interruptions(app.db.engine.dialect.name, getattr(driver, word), way)

    def interrupt(connection: Any) -> None:
        interruptions(connection)

    monkeypatch.setattr(driver, word, interrupt)
    return interruptions


@pytest.fixture
def app(database: sa.URL) -> Iterator[deploy.Application]:
    """An application on the database."""
    with applications.application(database) as app:
        yield app


@pytest.mark.parametrize(
    ('word', 'way'),
    [*itertools.product(['rollback', 'commit'], ['cancel', 'end', 'silence']), ('commit', 'certification')],
)
def test_what_was_answered_is_what_is_stored(
    app: deploy.Application, database: sa.URL, monkeypatch: pytest.MonkeyPatch, word: str, way: str
) -> None:
    if (database.get_backend_name(), way) in {('mysql', 'end'), ('postgresql', 'certification')}:
        pytest.skip('Ended connections of MariaDB are in test_outage.py. PostgreSQL certifies nothing.')
    hosts = [create_provider(app, VCPU=UNITS) for _ in range(2)]
    responses: dict[str, tuple[int, str, int]] = {}

    def run_client(number: int) -> None:
        chosen = random.Random(number)
        for _ in _until_enough(interruptions):
            consumer, host = str(uuid.uuid4()), chosen.choice(hosts)
            # 100 never fit.
            amount = chosen.choice([1, 2, 100])
            response = send_request(app, 'PUT', f'/allocations/{consumer}', claim_body({host: {'VCPU': amount}}))
            responses[consumer] = (response.status_int, host, amount)
            if response.status_int == 503:
                assert int(response.headers['Retry-After']) > 0
            if response.status_int == 503 or (response.status_int == 204 and chosen.random() < 0.9):
                responses[consumer] = (_release(app, consumer), host, amount)

    interruptions = interrupting(app, monkeypatch, word, way)
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(run_client, range(CLIENTS)))
    monkeypatch.undo()
    # Whatever a connection of the pool may have left undone is committed by the next transaction on it.
    for _ in range(CLIENTS):
        send_request(app, 'DELETE', f'/allocations/{uuid.uuid4()}')
    assert interruptions.count > MIN_INTERRUPTIONS
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
    for kind in audit.CHECKS:
        assert audit.find(app.db, conf, kind) == [], kind


def _until_enough(interruptions: Interruptions) -> Iterator[int]:
    for claims in range(MAX_CLAIMS):
        if claims >= MIN_CLAIMS and interruptions.count > MIN_INTERRUPTIONS:
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
