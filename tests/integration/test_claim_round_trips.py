"""The round trips of a claim on the wire, with those of drivers and pools; and what happens when connections end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import tables
from placement.objects.allocation import AllocationList
from placement.web.context import RequestContext
from tests.support import applications, databases, wire
from tests.support.objects import claim, create_provider

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)

CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@pytest.fixture(scope='module')
def counting(database: sa.URL) -> Iterator[tuple[wire.Proxy, sa.URL]]:
    """The proxy between the service and its database, and the URL through it."""
    with wire.counting(database) as running:
        yield running


@pytest.fixture(scope='module')
def proxy(counting: tuple[wire.Proxy, sa.URL]) -> wire.Proxy:
    return counting[0]


@pytest.fixture(scope='module')
def context(counting: tuple[wire.Proxy, sa.URL]) -> Iterator[RequestContext]:
    """The context of the claims, through the proxy."""
    with applications.database(counting[1]) as opened:
        opened.sync()
        yield applications.administrator(opened)


@pytest.fixture(params=[1, 40])
def hosts(context: RequestContext, request: pytest.FixtureRequest) -> list[str]:
    """The uuids of hosts with allocations."""
    uuids = [create_provider(context, **dict.fromkeys(CLASSES, 100)).uuid for _ in range(request.param)]
    put(context, uuids)
    return uuids


def put(context: RequestContext, hosts: list[str], consumer: str | None = None) -> str:
    """Claim one of each class of each host; without hosts, clear the consumer."""
    return claim(context, {host: dict.fromkeys(CLASSES, 1) for host in hosts}, consumer)


def test_claim_and_release(context: RequestContext, proxy: wire.Proxy, hosts: list[str]) -> None:
    """On MariaDB the reads, all changes at once, and the COMMIT; on PostgreSQL each statement, and the BEGIN."""
    on_postgresql = context.db.engine.dialect.name == 'postgresql'
    for _ in range(10):
        # psycopg prepares a frequent statement.
        AllocationList.delete_all_by_consumer(context, put(context, hosts, put(context, hosts)))
        put(context, [], put(context, hosts))
    consumer = put(context, hosts)
    works: dict[str, tuple[Callable[[], object], int, int]] = {
        'claim': (lambda: put(context, hosts), 3, 8),
        'change': (lambda: put(context, hosts, consumer), 3, 9),
        'clear': (lambda: put(context, [], consumer), 4, 7),
        'claim and delete': (lambda: AllocationList.delete_all_by_consumer(context, put(context, hosts)), 3 + 4, 8 + 6),
    }
    counts = {}
    for name, (work, *_) in works.items():
        proxy.trips = 0
        work()
        counts[name] = proxy.trips
    assert counts == {name: both[on_postgresql] for name, (_, *both) in works.items()}


def test_a_refusal_retires_no_writer(context: RequestContext, hosts: list[str]) -> None:
    """Its log entry may have been inserted, but the transaction was certainly not committed."""
    writers = sa.select(sa.func.count()).select_from(tables.writers)
    before = context.db.ask(writers)[0][0]
    wanted = {host: dict.fromkeys(CLASSES, 101) for host in hosts}
    for _ in range(5):
        with pytest.raises(exception.AllocationCapacityExceeded):
            claim(context, wanted)
    assert context.db.ask(writers)[0][0] == before
    put(context, hosts)
    assert context.db.ask(writers)[0][0] == before


def test_a_deleted_writer_is_replaced(context: RequestContext, hosts: list[str]) -> None:
    """This is noticed when its entry is inserted, which some drivers send together with the changes."""
    with context.db.asking_engine.connect() as connection:
        connection.execute(sa.delete(tables.changes))
        connection.execute(sa.delete(tables.writers))
    consumer = put(context, hosts)
    assert len(context.db.ask(sa.select(tables.changes.c.provider_id))) == len(hosts)
    held = context.db.ask(sa.select(tables.allocations.c.used).where(tables.allocations.c.consumer_id == consumer))
    assert len(held) == len(hosts) * len(CLASSES)


def test_a_dead_connection_is_replaced(context: RequestContext, database: sa.URL, hosts: list[str]) -> None:
    databases.end_connections(database)
    consumer = put(context, hosts)
    databases.end_connections(database)
    with context.db.reader() as connection:
        assert connection.exec_driver_sql('SELECT count(*) FROM placement_consumers').scalar_one() > 0
    databases.end_connections(database)
    AllocationList.delete_all_by_consumer(context, consumer)
    with pytest.raises(exception.AllocationsNotFound):
        AllocationList.delete_all_by_consumer(context, consumer)


@pytest.mark.parametrize('at', ['statement', 'commit'])
def test_a_connection_that_ends_during_a_claim_is_an_outage(context: RequestContext, database: sa.URL, at: str) -> None:
    """The transaction may have been committed, or may itself cause the end of connections."""
    begun = []

    def work(tx: sa.Connection) -> None:
        begun.append(tx)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')
        databases.end_connections(database)
        if at == 'statement':
            tx.exec_driver_sql('SELECT id FROM placement_consumers')

    with pytest.raises(exception.DatabaseUnavailable):
        context.db.write(work)
    assert len(begun) == 1
