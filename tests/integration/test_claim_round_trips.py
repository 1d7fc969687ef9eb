"""The round trips of a claim on the wire, with those of drivers and pools; and what happens when connections end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

from placement import exception
from placement.claims.request import ConsumerClaim
from placement.db import tables
from placement.db.api import Database
from placement.objects.allocation import AllocationList
from placement.objects.inventory import Inventory
from placement.objects.resource_provider import ResourceProvider
from placement.web.context import RequestContext
from tests.support import databases, mirrors, wire

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults()), indirect=True, scope='module'
)

CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


@pytest.fixture(scope='module')
def proxy(database: sa.URL) -> Iterator[wire.Proxy]:
    """The proxy between the service and its database."""
    with wire.Proxy(database.host or '', database.port or wire.PORTS[database.get_backend_name()]) as running:
        yield running


@pytest.fixture(scope='module')
def db(database: sa.URL, proxy: wire.Proxy) -> Iterator[Database]:
    """The database, through the proxy."""
    through = database.set(host='127.0.0.1', port=proxy.port)
    with mirrors.database(through.render_as_string(hide_password=False)) as opened:
        opened.sync()
        yield opened


@pytest.fixture(scope='module')
def context(db: Database) -> RequestContext:
    """The context of the claims."""
    return RequestContext(conf=None, db=db)  # type: ignore[arg-type]


@pytest.fixture(params=[1, 40])
def hosts(context: RequestContext, request: pytest.FixtureRequest) -> list[str]:
    """The uuids of hosts with allocations."""
    uuids = [str(uuid.uuid4()) for _ in range(request.param)]
    for host in uuids:
        provider = ResourceProvider.create(context, name=host, uuid=host)
        provider.set_inventories([Inventory.from_request(name, {'total': 100}) for name in CLASSES])
    put(context, uuids)
    return uuids


def put(context: RequestContext, hosts: list[str], consumer: str | None = None) -> str:
    """Claim one of each class of each host; without hosts, clear the consumer."""
    consumer = consumer or str(uuid.uuid4())
    wanted = {host: dict.fromkeys(CLASSES, 1) for host in hosts}
    AllocationList.replace_all(context, [ConsumerClaim(consumer, 'project', 'user', wanted)])
    return consumer


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
            AllocationList.replace_all(context, [ConsumerClaim(str(uuid.uuid4()), 'project', 'user', wanted)])
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


def test_a_dead_connection_is_replaced(
    context: RequestContext, database: sa.URL, db: Database, hosts: list[str]
) -> None:
    databases.end_connections(database)
    consumer = put(context, hosts)
    databases.end_connections(database)
    with db.reader() as connection:
        assert connection.exec_driver_sql('SELECT count(*) FROM placement_consumers').scalar_one() > 0
    databases.end_connections(database)
    AllocationList.delete_all_by_consumer(context, consumer)
    with pytest.raises(exception.AllocationsNotFound):
        AllocationList.delete_all_by_consumer(context, consumer)


@pytest.mark.parametrize('at', ['statement', 'commit'])
def test_a_connection_that_ends_during_a_claim_is_an_outage(database: sa.URL, db: Database, at: str) -> None:
    """The transaction may have been committed, or may itself cause the end of connections."""
    begun = []

    def work(tx: sa.Connection) -> None:
        begun.append(tx)
        tx.exec_driver_sql('SELECT id FROM placement_consumers')
        databases.end_connections(database)
        if at == 'statement':
            tx.exec_driver_sql('SELECT id FROM placement_consumers')

    with pytest.raises(exception.DatabaseUnavailable):
        db.write(work)
    assert len(begun) == 1
