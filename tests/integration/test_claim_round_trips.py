"""The round trips of a claim on the wire, with those of drivers and pools; and what happens when connections end."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement import exception
from placement.capacity import InventoryRecord
from placement.claims.claim import delete_allocations, reshape
from placement.claims.request import ConsumerClaim, ReshapedProvider
from placement.db import tables
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support import applications, databases, tcp_proxy
from tests.support.objects import claim, create_provider, set_inventories

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults(), databases.mysqlclient()), indirect=True, scope='module'
)

CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@pytest.fixture(scope='module')
def counting(database: sa.URL) -> Iterator[tuple[tcp_proxy.Proxy, sa.URL]]:
    """The proxy between the service and its database, and the URL through it."""
    with tcp_proxy.counting(database) as running:
        yield running


@pytest.fixture(scope='module')
def proxy(counting: tuple[tcp_proxy.Proxy, sa.URL]) -> tcp_proxy.Proxy:
    return counting[0]


@pytest.fixture(scope='module')
def context(counting: tuple[tcp_proxy.Proxy, sa.URL]) -> Iterator[RequestContext]:
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


def test_claim_and_release(context: RequestContext, proxy: tcp_proxy.Proxy, hosts: list[str]) -> None:
    """On MariaDB the reads, all changes at once, and the COMMIT; on PostgreSQL each statement, and the BEGIN."""
    on_postgresql = context.db.engine.dialect.name == 'postgresql'
    for _ in range(10):
        # psycopg prepares a frequent statement.
        delete_allocations(context.db, put(context, hosts, put(context, hosts)))
        put(context, [], put(context, hosts))
    consumer = put(context, hosts)
    works: dict[str, tuple[Callable[[], object], int, int]] = {
        'claim': (lambda: put(context, hosts), 3, 8),
        'change': (lambda: put(context, hosts, consumer), 3, 9),
        'clear': (lambda: put(context, [], consumer), 4, 7),
        'claim and delete': (lambda: delete_allocations(context.db, put(context, hosts)), 3 + 4, 8 + 6),
    }
    counts = {}
    for name, (work, *_) in works.items():
        proxy.trips = 0
        work()
        counts[name] = proxy.trips
    assert counts == {name: both[on_postgresql] for name, (_, *both) in works.items()}


def test_reshape(context: RequestContext, proxy: tcp_proxy.Proxy, hosts: list[str]) -> None:
    """However many hosts give their VCPU to a cell, each with the consumer that holds it."""
    on_postgresql = context.db.engine.dialect.name == 'postgresql'
    # Once before: psycopg prepares a frequent statement.
    for _ in range(2):
        proxy.trips = 0
        providers, claims = [], []
        for host in hosts:
            cell, consumer = create_provider(context).uuid, put(context, [host])
            generation = ResourceProvider.get_by_uuid(context, host).generation
            remaining = [(name, InventoryRecord(100)) for name in (*CLASSES, 'PCI_DEVICE')]
            providers.append(ReshapedProvider(host, generation, dict(remaining)))
            providers.append(ReshapedProvider(cell, 0, {'VCPU': InventoryRecord(100)}))
            allocations = {cell: {'VCPU': 1}, host: dict.fromkeys(CLASSES[1:], 1)}
            claims.append(ConsumerClaim(consumer, 'project', 'user', allocations, 1))
        proxy.trips = 0
        reshape(context.db, providers, claims)
        trips = proxy.trips
        for host in hosts:
            set_inventories(ResourceProvider.get_by_uuid(context, host), *remaining[:-1])
    # Several consumers that exist are updated at once, before the other changes are sent.
    assert trips <= (14 if on_postgresql else 8)


def test_a_rejected_claim_keeps_its_slot(context: RequestContext, hosts: list[str]) -> None:
    """Its entries may have been inserted, but the transaction was certainly not committed."""
    slots = sa.select(sa.func.count()).select_from(tables.change_log_slots)
    before = context.db.fetch_all(slots)[0][0]
    allocations = {host: dict.fromkeys(CLASSES, 101) for host in hosts}
    for _ in range(5):
        with pytest.raises(exception.AllocationCapacityExceeded):
            claim(context, allocations)
    assert context.db.fetch_all(slots)[0][0] == before
    put(context, hosts)
    assert context.db.fetch_all(slots)[0][0] == before


def test_a_slot_that_another_process_used_is_replaced(context: RequestContext, hosts: list[str]) -> None:
    """This is noticed when the slot is incremented, which is sent together with the changes on MariaDB."""
    log = tables.change_log.c
    entries = sa.select(sa.func.count()).select_from(tables.change_log)
    before = context.db.fetch_all(entries)[0][0]
    with context.db.engine.begin() as connection:
        # With the entries that those of the claim would collide with.
        slots = tables.change_log_slots.c
        newest = sa.select(slots.id, slots.sequence + 1, log.provider_id, sa.literal(1), sa.literal(7)).join_from(
            tables.change_log_slots,
            tables.change_log,
            sa.and_(log.slot_id == slots.id, log.sequence == slots.sequence),
        )
        added = len(connection.execute(newest).all())
        connection.execute(tables.change_log.insert().from_select(list(tables.change_log.c.keys()), newest))
        connection.execute(tables.change_log_slots.update().values(sequence=slots.sequence + 1, token=7))
    consumer = put(context, hosts)
    assert context.db.fetch_all(entries)[0][0] == before + added + len(hosts)
    rows = context.db.fetch_all(
        sa.select(tables.allocations.c.used).where(tables.allocations.c.consumer_id == consumer)
    )
    assert len(rows) == len(hosts) * len(CLASSES)


def test_a_dead_connection_is_replaced(context: RequestContext, database: sa.URL, hosts: list[str]) -> None:
    databases.end_connections(database)
    consumer = put(context, hosts)
    databases.end_connections(database)
    with context.db.reader() as connection:
        assert connection.exec_driver_sql('SELECT count(*) FROM placement_consumers').scalar_one() > 0
    databases.end_connections(database)
    delete_allocations(context.db, consumer)
    with pytest.raises(exception.AllocationsNotFound):
        delete_allocations(context.db, consumer)


@pytest.mark.parametrize('failing_call', ['statement', 'commit'])
def test_a_connection_that_ends_during_a_claim_is_an_outage(
    context: RequestContext, database: sa.URL, failing_call: str
) -> None:
    """The transaction may have been committed, or may itself cause the end of connections."""
    started = []

    def work(tx: sa.Connection) -> None:
        started.append(tx)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')
        databases.end_connections(database)
        if failing_call == 'statement':
            tx.exec_driver_sql('SELECT id FROM placement_consumers')

    with pytest.raises(exception.DatabaseUnavailable):
        context.db.write(work)
    assert len(started) == 1
