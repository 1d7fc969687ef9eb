"""The service on MySQL's Group Replication (InnoDB Cluster), with one primary and with several."""

from __future__ import annotations

import contextlib
import pathlib
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import change_log, tables
from tests.integration import caches, races
from tests.support import applications, databases, servers
from tests.support.history.client import Client
from tests.support.http_client import claim_body, create_provider, send_request
from tests.support.waiting import wait_until
from tools import mysql, nodes

pytestmark = pytest.mark.mysql


@pytest.fixture(scope='module')
def group() -> Iterator[mysql.Cluster]:
    """Three members, of which the first is the primary at the beginning."""
    with mysql.Cluster.running() as started:
        yield started


#: Seconds that a planned switchover may take under load.
MAX_SWITCHOVER_SECONDS = 40

#: Seconds after which a member that sees no majority of the group gives up. By default it waits for ever.
UNREACHABLE_MAJORITY_TIMEOUT = 'SET GLOBAL group_replication_unreachable_majority_timeout'


def test_a_planned_switchover_does_not_wait_for_claims(group: mysql.Cluster, tmp_path: pathlib.Path) -> None:
    """The server becomes read-only only when no statement waits for a row lock, which is 50 s without our limit."""
    accepted: list[str] = []
    durations: list[float] = []
    done = threading.Event()

    def claim_repeatedly() -> None:
        with contextlib.closing(Client([server.url], token='admin')) as client:
            while not done.is_set():
                consumer = str(uuid.uuid4())
                if client.request('PUT', f'/allocations/{consumer}', races.claim([host], None)).status == 204:
                    accepted.append(consumer)

    with databases.fresh(sa.make_url(group.nodes[0].url())) as url, servers.serving(url, tmp_path) as server:
        with contextlib.closing(Client([server.url], token='admin')) as client:
            host = races.provider(client, 1_000_000)
        with futures.ThreadPoolExecutor(8) as threads:
            callers = [threads.submit(claim_repeatedly) for _ in range(8)]
            try:
                for _ in range(2):
                    accepted.clear()
                    wait_until(lambda: len(accepted) > 50)
                    started = time.monotonic()
                    group.switch_primary(group.nodes[1])
                    durations.append(time.monotonic() - started)
                    group.switch_primary(group.nodes[0])
            finally:
                done.set()
        for caller in callers:
            caller.result()
    assert max(durations) < MAX_SWITCHOVER_SECONDS, durations


def test_a_claim_that_an_isolated_primary_rejects_may_have_been_made(
    group: mysql.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other members have received its transaction. They commit it, although COMMIT failed on the primary."""
    primary, other, _ = group.nodes
    failures: list[Exception] = []
    with (
        databases.fresh(sa.make_url(primary.url())) as url,
        applications.application(url, placement_database={'socket_timeout': 30}) as app,
    ):
        host = create_provider(app, VCPU=8)
        # Takes a slot, so that the COMMIT below is that of the claim.
        send_request(app, 'PUT', '/traits/CUSTOM_A', version='1.29')
        dialect = app.db.engine.dialect
        commit = dialect.do_commit

        def commit_in_isolation(connection: Any) -> None:
            monkeypatch.undo()
            try:
                with isolated(group, primary):
                    commit(connection)
            except Exception as error:
                failures.append(error)
                raise

        monkeypatch.setattr(dialect, 'do_commit', commit_in_isolation)
        response = send_request(app, 'PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 2}}))
        assert [error.args[0] for error in failures] == [3100]
        wait_until(lambda: other.value(f'SELECT used FROM {url.database}.placement_inventories') == 2)
        assert response.status_code == 503
        assert 'The change may have been made, or may still be made' in response.text
        rejoin(group, primary)


def test_a_member_that_has_left_its_group_is_unavailable(
    group: mysql.Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """With ``BEFORE`` it rejects reads, too, on every connection."""
    member = group.nodes[0]
    with databases.fresh(sa.make_url(member.url())) as url:
        consistent = url.update_query_dict({'init_command': "SET SESSION group_replication_consistency = 'BEFORE'"})
        with applications.application(consistent) as app, applications.database(consistent) as unconnected:
            host = create_provider(app, VCPU=8)
            requests: list[tuple[str, str, Any]] = [
                ('GET', '/resource_providers', None),
                ('GET', '/allocation_candidates?resources=VCPU:1', None),
                ('PUT', f'/allocations/{uuid.uuid4()}', claim_body({host: {'VCPU': 2}})),
            ]
            try:
                with isolated(group, member):
                    wait_until(lambda: member.value(mysql.HAS_FAILED) is not None)
                    responses = [send_request(app, *request) for request in requests]
                    with pytest.raises(exception.DatabaseUnavailable):
                        unconnected.fetch_all(sa.select(tables.traits))
            finally:
                rejoin(group, member)
            assert [(answer.status_int, answer.headers.get('Retry-After')) for answer in responses] == [(503, '2')] * 3
            assert '(3796, ' in caplog.text
            assert not [record for record in caplog.records if record.exc_info]
            assert [send_request(app, *request).status_int for request in requests] == [200, 200, 204]


@contextlib.contextmanager
def isolated(group: mysql.Cluster, member: nodes.Node) -> Iterator[None]:
    """Let a member seem to be the only one that is left of the group, and give up a second later."""
    # The others have no such limit: when they continue, they could leave the group, too.
    member.query(f'{UNREACHABLE_MAJORITY_TIMEOUT} = 1')
    processes = [node.process for node in group.nodes if node is not member and node.process]
    for process in processes:
        process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGCONT)


def rejoin(group: mysql.Cluster, member: nodes.Node) -> None:
    """Bring a member that has lost the majority back into the group, as its primary, for the tests that follow."""
    member.query('STOP GROUP_REPLICATION')
    wait_for_members(group.nodes[1:], 2)
    member.query("START GROUP_REPLICATION USER = 'root'")
    wait_for_members(group.nodes, 3)
    member.query(f'{UNREACHABLE_MAJORITY_TIMEOUT} = DEFAULT')
    group.switch_primary(member)


def wait_for_members(members: list[nodes.Node], count: int) -> None:
    """Return once each of these members sees so many in the group. Otherwise one could expel another one later."""
    online = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE member_state = 'ONLINE'"
    wait_until(lambda: all(node.value(online) == count for node in members))


@pytest.fixture(scope='module')
def primaries(group: mysql.Cluster) -> list[nodes.Node]:
    """The members, all of which accept writes and wait before they read until they have what the others committed."""
    group.nodes[0].query('SELECT group_replication_switch_to_multi_primary_mode()')
    for node in group.nodes:
        node.query("SET GLOBAL group_replication_consistency = 'BEFORE'")
    wait_until(lambda: all(group.is_writable(node) for node in group.nodes))
    return group.nodes


@pytest.fixture(scope='module')
def urls(primaries: list[nodes.Node]) -> Iterator[list[sa.URL]]:
    """The URLs of one empty database, one for each member."""
    with databases.fresh(sa.make_url(primaries[0].url())) as url:
        yield [sa.make_url(node.url(url.database or '')) for node in primaries]


@pytest.fixture(scope='module')
def services(urls: list[sa.URL], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[str]]:
    """The URLs of a service on each member."""
    directory: pathlib.Path = tmp_path_factory.mktemp('placement-api')
    with servers.serving(urls[0], directory) as first:
        followers = [servers.launch(url, directory) for url in urls[1:]]
        with servers.ready(*followers):
            yield [server.url for server in (first, *followers)]


@pytest.mark.parametrize('race', races.RACES)
def test_race_on_several_primaries(services: list[str], race: str) -> None:
    races.RACES[race](services)


def test_a_commit_that_conflicts_with_another_node_is_rolled_back(
    primaries: list[nodes.Node], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with databases.fresh(sa.make_url(primaries[0].url())) as url, contextlib.ExitStack() as stack:
        urls = [sa.make_url(node.url(url.database or '')) for node in primaries]
        opened = [stack.enter_context(applications.database(url)) for url in urls]
        failure = races.a_commit_that_conflicts_is_rolled_back(opened, monkeypatch)
    assert failure.args == (1180, "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT")
    assert 'A COMMIT failed' not in caplog.text


def test_a_transaction_that_waits_too_long_for_other_members_is_canceled(urls: list[sa.URL]) -> None:
    """A member cannot write what the others have committed, so its readers wait for ``wait_timeout``, with 3797."""
    impatient = urls[0].update_query_dict({'init_command': 'SET SESSION wait_timeout = 1'})
    # With ``BEFORE``, its last ROLLBACK would wait for the lock that it holds.
    eventual = urls[0].update_query_dict({'init_command': "SET SESSION group_replication_consistency = 'EVENTUAL'"})
    locker = sa.create_engine(eventual, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT')
    with applications.database(urls[1]) as writer, applications.database(impatient) as reader:
        writer.sync()
        with locker.connect() as connection:
            connection.exec_driver_sql('FLUSH TABLES WITH READ LOCK')
            writer.write(change_log.record_names)
            with pytest.raises(exception.TransactionInterrupted, match='not available') as raised:
                reader.fetch_all(sa.select(tables.change_log_slots))
    assert '(3797, ' in raised.value.for_operators


def test_searching_on_one_primary_what_was_written_on_another(services: list[str]) -> None:
    caches.answered_changes_are_found(services)


def test_no_claim_is_written_by_halves(urls: list[sa.URL]) -> None:
    with contextlib.ExitStack() as stack:
        races.no_claim_is_written_by_halves([stack.enter_context(applications.database(url)) for url in urls])
