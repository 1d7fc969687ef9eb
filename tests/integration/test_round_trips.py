"""The round trips of each request to PostgreSQL and MariaDB, counted on the wire, with those of drivers and pools."""

from __future__ import annotations

import functools
import pathlib
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from tests.integration import tcp_proxy
from tests.support import applications, databases, servers
from tests.support.http_client import claim_body, create_provider, demand
from tests.support.waiting import wait_until

pytestmark = databases.on(*databases.defaults(), databases.mysqlclient())

#: Requests sent before counting, since drivers prepare a frequent statement.
WARM = 12

CLASSES = ('VCPU', 'MEMORY_MB', 'DISK_GB')


class Watched:
    """The application on a database behind a proxy that counts round trips."""

    def __init__(self, app: Any, proxy: tcp_proxy.Proxy) -> None:
        #: Sends a request that has to succeed.
        self.call = functools.partial(demand, app)
        self._app = app
        self._proxy = proxy

    def trips(self, method: str, path: str, body: Any = None, version: str = '1.29') -> int:
        """The number of round trips of a request."""
        before = self._proxy.trips
        self.call(method, path, body, version)
        return self._proxy.trips - before

    def create_host(self, *classes: str) -> str:
        """Create a provider with 100 of each class; returns its uuid."""
        return create_provider(self._app, **dict.fromkeys(classes, 100))


def totals(*classes: str) -> dict[str, dict[str, int]]:
    """Inventories of 100 of each class."""
    return {name: {'total': 100} for name in classes}


def claim(hosts: Sequence[str], classes: Sequence[str], generation: int | None = None) -> dict[str, Any]:
    """The entry of a consumer with one of each class of each host."""
    return claim_body({host: dict.fromkeys(classes, 1) for host in hosts}, generation)


@pytest.fixture(scope='module')
def watched(database: sa.URL) -> Iterator[Watched]:
    with (
        tcp_proxy.before(database) as (proxy, through),
        applications.application(through, placement=applications.EVERY_MICROVERSION) as app,
    ):
        yield Watched(app, proxy)


@pytest.fixture(scope='module')
def host(watched: Watched) -> str:
    """The path of a provider with three inventories, three traits, two aggregates and a consumer."""
    provider_uuid = watched.create_host(*CLASSES)
    path = f'/resource_providers/{provider_uuid}'
    traits = ['HW_CPU_X86_VMX', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_SSE']
    watched.call('PUT', f'{path}/traits', {'resource_provider_generation': 1, 'traits': traits})
    aggregates = [str(uuid.uuid4()) for _ in range(2)]
    watched.call('PUT', f'{path}/aggregates', {'resource_provider_generation': 2, 'aggregates': aggregates})
    watched.call('PUT', f'/allocations/{provider_uuid}', claim([provider_uuid], CLASSES))
    return path


@pytest.mark.parametrize(
    'path',
    [
        '{host}',
        '{host}/inventories',
        '{host}/inventories/VCPU',
        '{host}/usages',
        '{host}/traits',
        '{host}/aggregates',
        '{host}/allocations',
        '/allocations/{uuid}',
        '/usages?project_id=project',
        '/usages?project_id=project&user_id=user',
        '/traits',
        '/traits/HW_CPU_X86_VMX',
        '/resource_classes',
        '/resource_classes/VCPU',
        '/allocation_candidates?resources=VCPU:1',
    ],
)
def test_a_read_is_one_round_trip(watched: Watched, host: str, path: str) -> None:
    url = path.format(host=host, uuid=host.rpartition('/')[2])
    for _ in range(WARM):
        watched.call('GET', url)
    assert [watched.trips('GET', url) for _ in range(10)] == [1] * 10


def test_a_process_that_nobody_asks_checks_once_per_interval(database: sa.URL, tmp_path: pathlib.Path) -> None:
    """By default every second, with one round trip. The master, which has loaded the cache, sends nothing."""
    with (
        tcp_proxy.before(database) as (proxy, through),
        servers.serving(through, tmp_path, workers=1, metrics=False),
    ):
        # The second check comes after all that a start sends.
        for _ in range(2):
            started, trips = time.monotonic(), proxy.trips
            wait_until(lambda trips=trips: proxy.trips > trips)  # type: ignore[misc]
        before = proxy.trips
        wait_until(lambda: proxy.trips >= before + 4)
        assert time.monotonic() - started > 3


@pytest.fixture
def on_postgresql(database: sa.URL) -> bool:
    """Whether it is PostgreSQL, where each statement is a round trip, and so are COMMIT and the BEGIN of psycopg.

    MariaDB gets all changes in one round trip, after the reads that they need, and the COMMIT in another.
    """
    return database.get_backend_name() == 'postgresql'


def test_creating_and_changing_a_host(watched: Watched, host: str, on_postgresql: bool) -> None:
    """The changes that take the most statements of each kind."""
    rounds = []
    for _ in range(WARM):
        provider_uuid, root = watched.create_host('VCPU', 'DISK_GB'), watched.create_host()
        path, other, child = f'/resource_providers/{provider_uuid}', totals('DISK_GB', 'MEMORY_MB'), str(uuid.uuid4())
        watched.call('PUT', f'{path}/traits', {'resource_provider_generation': 1, 'traits': ['HW_CPU_X86_VMX']})
        aggregates = [str(uuid.uuid4()) for _ in range(5)]
        taken = [
            watched.trips('POST', '/resource_providers', {'name': child, 'uuid': child}),
            watched.trips('PUT', f'{path}/inventories', {'resource_provider_generation': 2, 'inventories': other}),
            watched.trips('PUT', f'{path}/traits', {'resource_provider_generation': 3, 'traits': ['HW_CPU_X86_MMX']}),
            watched.trips('PUT', f'{path}/aggregates', {'resource_provider_generation': 4, 'aggregates': aggregates}),
            watched.trips('PUT', path, {'name': f'{provider_uuid} renamed', 'parent_provider_uuid': root}),
        ]
        rounds.append(taken)
    # Sometimes the change log is trimmed, or a driver prepares a statement.
    assert least(rounds) == ([5, 7, 7, 7, 8] if on_postgresql else [3, 3, 3, 3, 8]), rounds


def test_creating_a_name(watched: Watched, on_postgresql: bool) -> None:
    """A read without a transaction, one that locks, and the changes; of one that exists, only the first."""
    rounds = []
    for number in range(WARM):
        path = f'/resource_classes/CUSTOM_NEW_{number}'
        rounds.append([watched.trips('PUT', path), watched.trips('PUT', path)])
    assert least(rounds) == ([7, 1] if on_postgresql else [4, 1]), rounds


@pytest.mark.parametrize('count', [1, 40])
def test_claims(watched: Watched, on_postgresql: bool, count: int) -> None:
    """On MariaDB the reads, all changes at once, and the COMMIT; on PostgreSQL each statement, and the BEGIN."""
    hosts = [watched.create_host(*CLASSES) for _ in range(count)]
    rounds = []
    for _ in range(WARM):
        path = f'/allocations/{uuid.uuid4()}'
        taken = [watched.trips('PUT', path, claim(hosts, CLASSES)), watched.trips('DELETE', path)]
        bodies = [claim(hosts, CLASSES), claim(hosts, CLASSES, 1), claim([], (), 2)]
        rounds.append([*taken, *(watched.trips('PUT', path, body) for body in bodies)])
    assert least(rounds) == ([8, 7, 8, 9, 8] if on_postgresql else [3, 3, 3, 3, 3]), rounds


@pytest.mark.parametrize('count', [1, 40])
def test_a_reshape(watched: Watched, on_postgresql: bool, count: int) -> None:
    """However many hosts give their VCPU to a cell, each with the consumer that holds it."""
    rounds = []
    for _ in range(2):
        inventories, claims = {}, {}
        for _ in range(count):
            host, cell, consumer = watched.create_host(*CLASSES), watched.create_host(), str(uuid.uuid4())
            watched.call('PUT', f'/allocations/{consumer}', claim([host], CLASSES))
            kept = totals('MEMORY_MB', 'DISK_GB', 'PCI_DEVICE')
            inventories[host] = {'resource_provider_generation': 2, 'inventories': kept}
            inventories[cell] = {'resource_provider_generation': 0, 'inventories': totals('VCPU')}
            entry = claim([host], CLASSES[1:], 1)
            entry['allocations'][cell] = {'resources': {'VCPU': 1}}
            claims[consumer] = entry
        body = {'inventories': inventories, 'allocations': claims}
        rounds.append([watched.trips('POST', '/reshaper', body, '1.30')])
    assert least(rounds) <= ([14] if on_postgresql else [8]), rounds


def least(rounds: list[list[int]]) -> list[int]:
    """The fewest round trips of each request."""
    return [min(taken) for taken in zip(*rounds, strict=True)]
