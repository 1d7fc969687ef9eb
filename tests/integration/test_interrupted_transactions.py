"""Transactions whose COMMIT or ROLLBACK is interrupted: what was answered is what is stored, and nothing else."""

from __future__ import annotations

import collections
import concurrent.futures
import itertools
import random
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement import deploy
from placement.db import tables
from placement.ops import audit
from tests.support import applications, databases, races, tcp_proxy
from tests.support.http_client import create_provider, send_request

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)

CLIENTS = 8
#: Each client claims so often, and goes on until enough statements were interrupted, to the maximum.
MIN_CLAIMS, MAX_CLAIMS = 25, 400
MIN_INTERRUPTIONS = 60
#: Units of each of the two hosts.
UNITS = 5

Interrupted = tuple[tcp_proxy.Interrupter, deploy.Application]
#: Host and amount of each allocation of a consumer.
Held = list[tuple[str, int]]


@pytest.fixture
def interrupted(database: sa.URL) -> Iterator[Interrupted]:
    """An application whose connections pass through a proxy that interrupts statements."""
    with tcp_proxy.interrupting(database) as (proxy, through), applications.application(through) as app:
        yield proxy, app
        proxy.word = None


@pytest.mark.parametrize(
    ('word', 'way'),
    [*itertools.product(['ROLLBACK', 'COMMIT'], ['race', 'kill', 'itself', 'silence']), ('COMMIT', 'certification')],
)
def test_what_was_answered_is_what_is_stored(interrupted: Interrupted, database: sa.URL, word: str, way: str) -> None:
    if (database.get_backend_name(), way) in {('mysql', 'kill'), ('postgresql', 'certification')}:
        pytest.skip('Ended connections of MariaDB are in test_outage.py. PostgreSQL certifies nothing.')
    proxy, app = interrupted
    proxy.way = way
    hosts = [create_provider(app, VCPU=UNITS) for _ in range(2)]
    responses: dict[str, tuple[int, str, int]] = {}

    def run_client(number: int) -> None:
        chosen = random.Random(number)
        for _ in _until_enough_interruptions(proxy):
            consumer, host = str(uuid.uuid4()), chosen.choice(hosts)
            # 100 never fit.
            amount = chosen.choice([1, 2, 100])
            body = races.claim([host], None)
            body['allocations'][host]['resources']['VCPU'] = amount
            response = send_request(app, 'PUT', f'/allocations/{consumer}', body)
            responses[consumer] = (response.status_int, host, amount)
            if response.status_int == 503:
                assert int(response.headers['Retry-After']) > 0
            if response.status_int == 503 or (response.status_int == 204 and chosen.random() < 0.9):
                responses[consumer] = (_release(app, consumer), host, amount)

    proxy.word = word
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(run_client, range(CLIENTS)))
    proxy.word = None
    # Whatever a connection of the pool may have left undone is committed by the next transaction on it.
    for _ in range(CLIENTS):
        send_request(app, 'DELETE', f'/allocations/{uuid.uuid4()}')
    assert proxy.interrupted > MIN_INTERRUPTIONS
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


def _until_enough_interruptions(proxy: tcp_proxy.Interrupter) -> Iterator[int]:
    for claims in range(MAX_CLAIMS):
        if claims >= MIN_CLAIMS and proxy.interrupted > MIN_INTERRUPTIONS:
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


def _stored(database: sa.URL, hosts: list[str]) -> dict[str, Held]:
    """What each consumer holds of these hosts, read past the proxy."""
    allocations = collections.defaultdict(list)
    joined = tables.allocations.join(
        tables.resource_providers, tables.allocations.c.resource_provider_id == tables.resource_providers.c.id
    )
    query = sa.select(tables.allocations.c.consumer_id, tables.resource_providers.c.uuid, tables.allocations.c.used)
    engine = sa.create_engine(database, poolclass=sa.NullPool)
    with engine.connect() as connection:
        for consumer, host, amount in connection.execute(
            query.select_from(joined).where(tables.resource_providers.c.uuid.in_(hosts))
        ):
            allocations[consumer].append((host, amount))
    return allocations
