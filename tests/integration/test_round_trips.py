"""The round trips of each request to PostgreSQL and MariaDB, counted on the wire, with those of drivers and pools."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.cache.refresh import ProviderCache
from tests.support import applications, databases, servers, tcp_proxy
from tests.support.cache_equality import assert_same
from tests.support.event_hooks import listening
from tests.support.http_client import demand
from tests.support.waiting import wait_until

pytestmark = pytest.mark.parametrize(
    'setting', databases.parameters(*databases.defaults(), databases.mysqlclient()), indirect=True, scope='module'
)

#: Requests sent before counting, since drivers prepare a frequent statement.
WARM = 12

INTERVAL = 'OS_PLACEMENT__CACHE_REFRESH_INTERVAL'


class Watched:
    """The application on a database behind a proxy that counts round trips."""

    def __init__(self, app: Any, proxy: tcp_proxy.Proxy) -> None:
        #: Sends a request that has to succeed.
        self.call = functools.partial(demand, app)
        self._proxy = proxy

    def trips(self, method: str, path: str, body: Any = None, version: str = '1.29') -> int:
        """The number of round trips of a request."""
        before = self._proxy.trips
        self.call(method, path, body, version)
        return self._proxy.trips - before


@pytest.fixture(scope='module')
def watched(database: sa.URL) -> Iterator[Watched]:
    with (
        tcp_proxy.counting(database) as (proxy, through),
        applications.application(through, placement=applications.EVERY_MICROVERSION) as app,
    ):
        yield Watched(app, proxy)


@pytest.fixture(scope='module')
def host(watched: Watched) -> str:
    """The path of a provider with three inventories, three traits, two aggregates and a consumer."""
    provider_uuid = str(uuid.uuid4())
    path = f'/resource_providers/{provider_uuid}'
    inventories = {name: {'total': 8} for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
    traits = ['HW_CPU_X86_VMX', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_SSE']
    watched.call('POST', '/resource_providers', {'name': provider_uuid, 'uuid': provider_uuid})
    watched.call('PUT', f'{path}/inventories', {'resource_provider_generation': 0, 'inventories': inventories})
    watched.call('PUT', f'{path}/traits', {'resource_provider_generation': 1, 'traits': traits})
    aggregates = [str(uuid.uuid4()) for _ in range(2)]
    watched.call('PUT', f'{path}/aggregates', {'resource_provider_generation': 2, 'aggregates': aggregates})
    allocations = {provider_uuid: {'resources': dict.fromkeys(inventories, 1)}}
    owner = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}
    watched.call('PUT', f'/allocations/{provider_uuid}', {'allocations': allocations, **owner})
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
    ],
)
def test_a_read_is_one_round_trip(watched: Watched, host: str, path: str) -> None:
    url = path.format(host=host, uuid=host.rpartition('/')[2])
    for _ in range(WARM):
        watched.call('GET', url)
    assert [watched.trips('GET', url) for _ in range(10)] == [1] * 10


@pytest.mark.parametrize('claims', [1, 50])
def test_a_refresh_reads_few_rows_whatever_the_number_of_claims(
    database: sa.URL, watched: Watched, claims: int
) -> None:
    """The check, and in one statement the slots, the log, the providers and the inventories, joined to a row each."""
    hosts = [f'/resource_providers/{uuid.uuid4()}' for _ in range(claims)]
    for path in hosts:
        provider_uuid = path.rpartition('/')[2]
        inventories = {name: {'total': 8} for name in ('VCPU', 'MEMORY_MB', 'DISK_GB')}
        watched.call('POST', '/resource_providers', {'name': provider_uuid, 'uuid': provider_uuid})
        watched.call('PUT', f'{path}/inventories', {'resource_provider_generation': 0, 'inventories': inventories})
    rows: list[int] = []

    def count_rows(_connection: Any, cursor: Any, *_rest: Any) -> None:
        rows.append(cursor.rowcount)

    with applications.database(database) as db:
        provider_cache = ProviderCache(db)
        provider_cache.up_to_date()
        for path in hosts:
            provider_uuid = path.rpartition('/')[2]
            allocations = {provider_uuid: {'resources': {'VCPU': 1, 'MEMORY_MB': 2, 'DISK_GB': 3}}}
            owner = {'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}
            watched.call('PUT', f'/allocations/{provider_uuid}', {'allocations': allocations, **owner})
        with listening(db.engine, 'after_cursor_execute', count_rows):
            provider_cache.up_to_date()
        assert rows == [1, 4]
        assert_same(provider_cache.up_to_date(), ProviderCache(db).up_to_date())


def test_a_process_that_nobody_asks_checks_once_per_interval(
    database: sa.URL, watched: Watched, tmp_path: pathlib.Path
) -> None:
    """Not at all with an interval of 0. The master, which has loaded the cache, sends nothing."""
    with contextlib.ExitStack() as stack:

        def serve(interval: int) -> tcp_proxy.Proxy:
            """Serve with one worker, and return the proxy before its database."""
            proxy, through = stack.enter_context(tcp_proxy.counting(database))
            url, settings = through.render_as_string(hide_password=False), {INTERVAL: str(interval)}
            stack.enter_context(servers.serving(url, tmp_path, workers=1, metrics=False, environment=settings))
            return proxy

        silent, checking = serve(0), serve(1)
        # The second check comes after all that a start sends.
        for _ in range(2):
            started, trips = time.monotonic(), checking.trips
            wait_until(lambda trips=trips: checking.trips > trips)  # type: ignore[misc]
        before, of_silent = checking.trips, silent.trips
        wait_until(lambda: checking.trips >= before + 4)
        assert time.monotonic() - started > 3
        assert silent.trips == of_silent


@pytest.fixture
def on_postgresql(database: sa.URL) -> bool:
    """Whether it is PostgreSQL, where each statement is a round trip, and so are COMMIT and the BEGIN of psycopg.

    MariaDB gets all changes in one round trip, after the reads that they need, and the COMMIT in another.
    """
    return database.get_backend_name() == 'postgresql'


def test_creating_a_host(watched: Watched, host: str, on_postgresql: bool) -> None:
    """Four calls; see tests/functional/test_statement_budgets.py for what each runs."""
    aggregate = str(uuid.uuid4())
    rounds = []
    for _ in range(WARM):
        provider_uuid = str(uuid.uuid4())
        path = f'/resource_providers/{provider_uuid}'
        inventories = {name: {'total': 8} for name in ('VCPU', 'MEMORY_MB', 'DISK_GB', 'VGPU', 'PCI_DEVICE')}
        traits = ['HW_CPU_X86_VMX', 'HW_CPU_X86_AVX2', 'HW_CPU_X86_SSE', 'HW_CPU_X86_MMX']
        taken = [
            watched.trips('POST', '/resource_providers', {'name': provider_uuid, 'uuid': provider_uuid}),
            watched.trips(
                'PUT', f'{path}/inventories', {'resource_provider_generation': 0, 'inventories': inventories}
            ),
            watched.trips('PUT', f'{path}/aggregates', {'resource_provider_generation': 1, 'aggregates': [aggregate]}),
            watched.trips('PUT', f'{path}/traits', {'resource_provider_generation': 2, 'traits': traits}),
        ]
        rounds.append(taken)
    # Sometimes the change log is trimmed, or a driver prepares a statement.
    assert least(rounds) == ([5, 6, 6, 6] if on_postgresql else [3, 3, 3, 3]), rounds


def test_changing_a_host(watched: Watched, host: str, on_postgresql: bool) -> None:
    """The changes that take the most statements of each kind."""
    rounds = []
    for _ in range(WARM):
        provider_uuid, root = (str(uuid.uuid4()) for _ in range(2))
        path = f'/resource_providers/{provider_uuid}'
        for uuid_ in (provider_uuid, root):
            watched.call('POST', '/resource_providers', {'name': uuid_, 'uuid': uuid_})
        first, other = (
            {name: {'total': 8} for name in names} for names in (('VCPU', 'DISK_GB'), ('DISK_GB', 'MEMORY_MB'))
        )
        watched.call('PUT', f'{path}/inventories', {'resource_provider_generation': 0, 'inventories': first})
        watched.call('PUT', f'{path}/traits', {'resource_provider_generation': 1, 'traits': ['HW_CPU_X86_VMX']})
        aggregates = [str(uuid.uuid4()) for _ in range(5)]
        taken = [
            watched.trips('PUT', f'{path}/inventories', {'resource_provider_generation': 2, 'inventories': other}),
            watched.trips('PUT', f'{path}/traits', {'resource_provider_generation': 3, 'traits': ['HW_CPU_X86_MMX']}),
            watched.trips('PUT', f'{path}/aggregates', {'resource_provider_generation': 4, 'aggregates': aggregates}),
            watched.trips('PUT', path, {'name': f'{provider_uuid} renamed', 'parent_provider_uuid': root}),
        ]
        rounds.append(taken)
    assert least(rounds) == ([7, 7, 7, 8] if on_postgresql else [3, 3, 3, 8]), rounds


def test_creating_a_name(watched: Watched, on_postgresql: bool) -> None:
    """A read without a transaction, one that locks, and the changes; of one that exists, only the first."""
    rounds = []
    for number in range(WARM):
        path = f'/resource_classes/CUSTOM_NEW_{number}'
        rounds.append([watched.trips('PUT', path), watched.trips('PUT', path)])
    assert least(rounds) == ([7, 1] if on_postgresql else [4, 1]), rounds


def test_a_claim_with_a_type(watched: Watched, host: str) -> None:
    """One that is known costs nothing; the first claim of one costs a round trip."""
    allocations = {host.rpartition('/')[2]: {'resources': {'DISK_GB': 1}}}
    body = {'allocations': allocations, 'project_id': 'project', 'user_id': 'user', 'consumer_generation': None}

    def trips(version: str, **members: str) -> int:
        path = f'/allocations/{uuid.uuid4()}'
        taken = watched.trips('PUT', path, {**body, **members}, version)
        watched.call('DELETE', path)
        return taken

    rounds = [
        [trips('1.37'), trips('1.38', consumer_type='INSTANCE'), trips('1.38', consumer_type=f'TYPE_{number}')]
        for number in range(WARM)
    ]
    untyped, typed, new = least(rounds)
    assert (untyped, typed, new) == (untyped, untyped, untyped + 1), rounds


def least(rounds: list[list[int]]) -> list[int]:
    """The fewest round trips of each request."""
    return [min(taken) for taken in zip(*rounds, strict=True)]
