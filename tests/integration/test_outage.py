"""Outages of the database under a running server: requests get 503 with Retry-After, and service resumes by itself."""

from __future__ import annotations

import contextlib
import pathlib
import time
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement.db import health as database_health
from tests.integration import races
from tests.support import applications, databases, local_servers, servers
from tests.support.history import check
from tests.support.history.client import Client, Reply
from tests.support.history.load import Load
from tests.support.http_client import send_request
from tests.support.waiting import wait_until


def on(*names: str) -> pytest.MarkDecorator:
    """Run a test on private database servers of these kinds."""
    parameters = [pytest.param(name, marks=getattr(pytest.mark, name)) for name in names]
    return pytest.mark.parametrize('name', parameters, scope='module')


#: The parameters of the URL that doc/database.md recommends, with shorter times.
TIMEOUTS = {
    'mariadb': {'connect_timeout': '5', 'read_timeout': '5', 'write_timeout': '5'},
    'postgresql': {'connect_timeout': '2', 'keepalives_idle': '1', 'tcp_user_timeout': '2000'},
}


@pytest.fixture(scope='module')
def private_server(name: str) -> Iterator[local_servers.PrivateServer]:
    """A database server that only this module uses."""
    with local_servers.running(name) as started:
        yield started


@pytest.fixture(scope='module')
def database(private_server: local_servers.PrivateServer) -> Iterator[sa.URL]:
    """A database on it that has tables and no rows, whichever test comes first."""
    with databases.fresh(private_server.url) as url:
        with applications.database(url) as db:
            db.sync()
        yield url


@pytest.fixture(scope='module')
def server(name: str, database: sa.URL, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Server]:
    """placement-api on that database."""
    directory: pathlib.Path = tmp_path_factory.mktemp('placement-api')
    url = database.update_query_dict(TIMEOUTS[name])
    with servers.serving(url, directory) as running:
        yield running


@pytest.fixture
def client(server: servers.Server) -> Iterator[Client]:
    """A client of the server."""
    with contextlib.closing(Client([server.url], token='admin')) as client:
        yield client


def claim_one(client: Client, provider: str) -> Reply:
    """Claim one unit for a new consumer."""
    return client.request('PUT', f'/allocations/{uuid.uuid4()}', races.claim([provider], None))


@on('postgresql', 'mariadb')
def test_a_wrong_option_is_an_outage(private_server: local_servers.PrivateServer) -> None:
    url = private_server.url.update_query_dict({'nonsense': '1'})
    with applications.application(url, placement_database={'sync_on_startup': False}) as app:
        response = send_request(app, 'GET', '/resource_providers')
        assert (response.status_code, response.headers['Retry-After']) == (503, '2')
        assert database_health.find_problem(app.db) == 'The database cannot be reached.'


SEARCHES = ('/resource_providers', '/resource_providers?resources=VCPU:1', '/allocation_candidates?resources=VCPU:1')


@on('postgresql', 'mariadb')
def test_an_outage_is_503_and_service_resumes(private_server: local_servers.PrivateServer, client: Client) -> None:
    """No search is answered from the cache, which may be out of date. Afterwards it has the claim made before."""
    provider, small = races.provider(client, 1000), races.provider(client, 1)
    for _ in range(10):
        # Reaches each worker.
        assert {client.request('GET', path).status for path in SEARCHES} == {200}
        client.close()
    assert claim_one(client, small).status == 204
    private_server.crash()
    try:
        rejected = [claim_one(client, provider) for _ in range(20)]
        rejected += [client.request('GET', path) for path in (f'/resource_providers/{provider}', *SEARCHES) * 5]
        root = client.request('GET', '/')
    finally:
        private_server.start()
    assert {(reply.status, reply.headers.get('retry-after')) for reply in rejected} == {(503, '2')}
    for reply in rejected:
        assert (reply.error['status'], reply.error['title']) == (503, 'Service Unavailable')
        assert 'SELECT' not in reply.error['detail']
    assert root.status == 200
    # Without any intervention.
    wait_until(lambda: claim_one(client, provider).status == 204)
    assert [claim_one(client, provider).status for _ in range(40)] == [204] * 40
    for _ in range(10):
        client.close()
        response = client.request('GET', SEARCHES[1])
        assert response.status == 200
        assert small not in {row['uuid'] for row in response.body['resource_providers']}


CREATE_ACCOUNT = {
    'postgresql': ['CREATE ROLE late SUPERUSER LOGIN'],
    'mariadb': ["CREATE USER late@'%'", "GRANT ALL ON *.* TO late@'%'"],
}
REASON = {'postgresql': 'role "late" does not exist', 'mariadb': "Access denied for user 'late'"}


@on('postgresql', 'mariadb')
def test_an_outage_at_the_start_is_logged_once_with_its_reason(
    name: str, private_server: local_servers.PrivateServer, database: sa.URL, tmp_path: pathlib.Path
) -> None:
    """The account of the service does not exist when it starts. Searches are answered as soon as it does."""
    options = {'OS_PLACEMENT_DATABASE__SYNC_ON_STARTUP': 'false', 'OS_PLACEMENT__CACHE_REFRESH_INTERVAL': '1'}
    url = database.set(username='late')
    with servers.serving(url, tmp_path, metrics=False, environment=options) as server:

        def lines(text: str) -> list[str]:
            return [line for line in server.log.read_text().splitlines() if text in line]

        with contextlib.closing(Client([server.url], token='admin')) as client:
            assert {client.request('GET', path).status for path in SEARCHES * 20} == {503}
            outages = lines(' ERROR ')
            for statement in CREATE_ACCOUNT[name]:
                databases.execute(private_server.url, statement)
            wait_until(lambda: client.request('GET', SEARCHES[0]) and lines('is available again'))
            assert {client.request('GET', path).status for path in SEARCHES} == {200}
        # One for each process: the master and two workers.
        assert 2 <= len(outages) <= 3
        assert all(REASON[name] in line for line in outages), outages
        assert all('DatabaseUnavailable' not in line for line in outages + lines('The cache was not loaded')), outages
        assert not lines('Traceback')


@on('postgresql', 'mariadb')
def test_history_with_an_outage(
    name: str,
    private_server: local_servers.PrivateServer,
    database: sa.URL,
    server: servers.Server,
) -> None:
    with Load.running([server.url], clients=8) as load:
        load.wait_for_accepted(100)
        private_server.crash()
        wait_until(lambda: load.unknown > 0)
        private_server.start()
        load.wait_for_accepted(100, since=time.monotonic())
    check.assert_none(load, [database], interrupted=True)
