"""Several servers on a three-node Galera cluster: races across nodes, and what happens when nodes and workers die."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import time
import uuid
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement.cmd import manage, manage_audit
from tests.integration import caches, races
from tests.support import applications, databases, legacy_database, legacy_service, servers
from tests.support.fixtures import PointCommandsAt
from tests.support.history import check
from tests.support.history.client import Client
from tests.support.history.load import Load
from tests.support.legacy_service import Busy
from tests.support.waiting import wait_until
from tools import galera

pytestmark = pytest.mark.galera

#: The recommended setting: reads wait until this node has applied what the others have committed.
SETTINGS = {'OS_PLACEMENT_DATABASE__MYSQL_WSREP_SYNC_WAIT': '1'}


@pytest.fixture(scope='module')
def cluster() -> Iterator[galera.Cluster]:
    """Three nodes, ready."""
    with galera.Cluster.running() as started:
        yield started


@pytest.fixture(scope='module')
def node_urls(cluster: galera.Cluster) -> Iterator[list[sa.URL]]:
    """The URLs of one empty database, one for each node."""
    with databases.fresh(sa.make_url(cluster.nodes[0].url())) as url:
        yield [sa.make_url(node.url(url.database or '')) for node in cluster.nodes]


@pytest.fixture(scope='module')
def fleet_of_servers(
    node_urls: list[sa.URL], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[servers.Server]]:
    """A server with two workers on each node; the first has created the schema before the others start."""
    directory: pathlib.Path = tmp_path_factory.mktemp('placement-api')
    first, *follower_urls = node_urls
    with servers.serving(first, directory, environment=SETTINGS) as leader:
        followers = [servers.launch(url, directory, environment=SETTINGS) for url in follower_urls]
        with servers.ready(*followers):
            yield [leader, *followers]


def test_first_starts_on_different_nodes(cluster: galera.Cluster, tmp_path: pathlib.Path) -> None:
    with databases.fresh(sa.make_url(cluster.nodes[0].url())) as url:
        races.all_came_up([cluster.nodes[number % 3].url(url.database or '') for number in range(6)], tmp_path)


def test_adoption_under_a_service_on_other_nodes(cluster: galera.Cluster, point_commands_at: PointCommandsAt) -> None:
    """Its connections are not visible on this node. It is shut out all the same, and what it wrote is counted."""
    with databases.fresh(sa.make_url(cluster.nodes[0].url())) as url:
        # The services, too, must see what was written on the first node.
        synchronous = {'init_command': 'SET SESSION wsrep_sync_wait = 1'}
        node_urls = [sa.make_url(node.url(url.database or '')) for node in cluster.nodes]
        connections = [node_url.update_query_dict(synchronous) for node_url in node_urls]
        point_commands_at(connections[0])
        legacy_database.build(url)
        services = [Busy(connection) for connection in connections[1:]]
        for service in services:
            service.start()
        wait_until(lambda: all(service.written > 20 for service in services))
        assert manage.main(['db', 'adopt', '--yes']) == manage_audit.CLEAN
        for service in services:
            service.join(60)
            assert "doesn't exist" in str(service.rejected)
        legacy_service.check_usages(url)
        legacy_service.check_no_oversell(connections[0])


@pytest.fixture
def urls(fleet_of_servers: list[servers.Server]) -> list[str]:
    """The URLs of the servers."""
    return [server.url for server in fleet_of_servers]


@pytest.mark.parametrize('race', races.RACES)
def test_race(urls: list[str], race: str) -> None:
    races.RACES[race](urls)


def test_searching_on_one_node_what_was_written_on_another(urls: list[str]) -> None:
    caches.answered_changes_are_found(urls)


def test_caches_of_all_nodes(fleet_of_servers: list[servers.Server], node_urls: list[sa.URL]) -> None:
    with contextlib.ExitStack() as stack:
        observed = [stack.enter_context(applications.database(url, mysql_wsrep_sync_wait=1)) for url in node_urls]
        caches.stay_equal(fleet_of_servers, observed)


def test_no_claim_is_written_by_halves(node_urls: list[sa.URL]) -> None:
    """Claims on all nodes conflict all the time, and a node may interrupt a transaction between any two statements."""
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(applications.database(url, mysql_wsrep_sync_wait=1)) for url in node_urls]
        races.no_claim_is_written_by_halves(opened)


def test_a_commit_that_conflicts_with_another_node_is_rolled_back(
    cluster: galera.Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with databases.fresh(sa.make_url(cluster.nodes[0].url())) as url, contextlib.ExitStack() as stack:
        urls = [sa.make_url(node.url(url.database or '')) for node in cluster.nodes]
        opened = [stack.enter_context(applications.database(url, mysql_wsrep_sync_wait=1)) for url in urls]
        failure = races.a_commit_that_conflicts_is_rolled_back(opened, monkeypatch)
    assert failure.args[0] == 1213
    assert 'A COMMIT failed' not in caplog.text


def test_history_with_a_node_and_workers_killed(
    cluster: galera.Cluster, node_urls: list[sa.URL], fleet_of_servers: list[servers.Server]
) -> None:
    with Load.running([server.url for server in fleet_of_servers], clients=9) as load:
        load.wait_for_accepted(101)
        cluster.nodes[2].kill()
        load.wait_for_accepted(101, since=time.monotonic())
        cluster.join(cluster.nodes[2])
        _wait_until_it_writes(fleet_of_servers[2].url)
        for server in fleet_of_servers:
            os.kill(server.workers()[0], signal.SIGKILL)
            load.wait_for_accepted(101, since=time.monotonic())
    check.assert_none(load, node_urls, interrupted=True)


def _wait_until_it_writes(url: str) -> None:
    """Return when the server accepts writes again, without any intervention."""
    with contextlib.closing(Client([url], token='admin')) as client:
        wait_until(lambda: client.request('PUT', f'/traits/CUSTOM_{uuid.uuid4().hex.upper()}').status == 201)
