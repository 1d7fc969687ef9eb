"""Failover drills: under load another database server takes over, and the proxy before it is moved to that one."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import functools
import math
import pathlib
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator

import pytest
import sqlalchemy as sa

import tools.galera
import tools.mysql
from placement import exception
from tests.integration import caches
from tests.integration.tcp_proxy import Proxy
from tests.support import applications, corruption, databases, local_servers, logs, servers
from tests.support.history import check
from tests.support.history.load import Load
from tests.support.waiting import wait_until

#: The longest time from the move of the proxy until all requests are answered as before. One that hangs takes 60 s.
MAX_OUTAGE_SECONDS = 20
#: Requests that have to be accepted before the failover, and again after it.
ACCEPTED_REQUESTS = 100


@dataclasses.dataclass(frozen=True)
class Cluster:
    """The primary, and two failovers in this order: as planned, and after ``kill -9``. They return the next primary."""

    primary: sa.URL
    switch_over: Callable[[], sa.URL]
    fail_over: Callable[[], sa.URL]
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    #: Whether a server that another one has taken over from answers no read with an older state.
    strict_reads: bool = True


@contextlib.contextmanager
def postgresql() -> Iterator[Cluster]:
    """A primary that confirms a COMMIT only when its standby has it, and a standby of that one."""
    with contextlib.ExitStack() as stack:
        primary = stack.enter_context(local_servers.running('postgresql'))
        standby = stack.enter_context(local_servers.running('postgresql', primary=primary))
        last = stack.enter_context(local_servers.running('postgresql', primary=standby))

        def switch_over() -> sa.URL:
            # It ends its sessions, and waits until the standby has received everything.
            primary.crash(signal.SIGINT)
            databases.execute(standby.url, 'SELECT pg_promote()')
            return _wait_for_standby_at_commit(standby.url)

        def fail_over() -> sa.URL:
            standby.crash(signal.SIGKILL)
            databases.execute(last.url, 'SELECT pg_promote()')
            return last.url

        yield Cluster(_wait_for_standby_at_commit(primary.url), switch_over, fail_over)


def _wait_for_standby_at_commit(url: sa.URL) -> sa.URL:
    databases.execute(url, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    databases.execute(url, 'SELECT pg_reload_conf()')
    wait_until(lambda: corruption.column(url, 'SELECT sync_state FROM pg_stat_replication') == ['sync'])
    return url


@contextlib.contextmanager
def galera() -> Iterator[Cluster]:
    """Three nodes, which may all write: nothing is promoted."""
    with tools.galera.Cluster.running() as cluster:
        first, second, third = (sa.make_url(node.url()) for node in cluster.nodes)

        def switch_over() -> sa.URL:
            databases.execute(first, 'SET GLOBAL read_only = 1')
            return second

        def fail_over() -> sa.URL:
            cluster.nodes[1].kill()
            return third

        yield Cluster(first, switch_over, fail_over, {'OS_PLACEMENT_DATABASE__MYSQL_WSREP_SYNC_WAIT': '1'})


@contextlib.contextmanager
def group_replication() -> Iterator[Cluster]:
    """Three members of MySQL's Group Replication, of which one accepts writes."""
    with tools.mysql.Cluster.running() as group:
        first, second, _ = group.nodes

        def switch_over() -> sa.URL:
            group.switch_primary(second)
            return sa.make_url(second.url())

        def fail_over() -> sa.URL:
            second.kill()
            wait_until(lambda: group.primary() is not None)
            primary = group.primary()
            assert primary is not None
            return sa.make_url(primary.url())

        yield Cluster(sa.make_url(first.url()), switch_over, fail_over, strict_reads=False)


@dataclasses.dataclass(frozen=True)
class Failover:
    """When it began, and when the proxy was moved to the new primary."""

    started: float
    moved: float

    def measure(self, load: Load, until: float) -> float:
        """Return the seconds from the move until the last request was answered as before.

        :param until: when the next failover began.
        """
        replies = [reply for reply in load.replies if reply.end >= self.started and reply.start < until]
        unavailable = [reply for reply in replies if reply.status == 503 and reply.end < until]
        assert {reply.headers.get('retry-after') for reply in unavailable} <= {'2'}
        outage = max([0.0, *(reply.end - self.moved for reply in unavailable)])
        wait = max(reply.end - max(reply.start, self.moved) for reply in replies)
        return max(outage, wait)


def _address(url: sa.URL) -> tuple[str, int]:
    return url.host or '', url.port or 0


def _database(primary: sa.URL) -> sa.URL:
    """Create a database, on MySQL with an account that, unlike root, may not write while a server is read-only."""
    databases.execute(primary, 'CREATE DATABASE placement')
    if primary.get_backend_name() == 'postgresql':
        return primary.set(database='placement')
    databases.execute(primary, 'CREATE USER placement')
    databases.execute(primary, 'GRANT ALL ON placement.* TO placement')
    return primary.set(username='placement', database='placement')


@pytest.mark.parametrize(
    'cluster',
    [
        pytest.param(postgresql, marks=pytest.mark.postgresql),
        pytest.param(galera, marks=pytest.mark.galera),
        pytest.param(group_replication, marks=pytest.mark.mysql),
    ],
)
def test_failovers(cluster: Callable[[], contextlib.AbstractContextManager[Cluster]], tmp_path: pathlib.Path) -> None:
    with contextlib.ExitStack() as stack:
        members = stack.enter_context(cluster())
        database = _database(members.primary)
        proxy = stack.enter_context(Proxy(*_address(members.primary)))
        url = database.set(host='127.0.0.1', port=proxy.port)
        server = stack.enter_context(servers.serving(url, tmp_path, environment=members.environment))
        failovers = []
        with Load.running([server.url], clients=8, strict_reads=members.strict_reads) as load:
            load.wait_for_accepted(ACCEPTED_REQUESTS)
            primary = members.primary
            for take_over in (members.switch_over, members.fail_over):
                started, previous = time.monotonic(), _address(primary)
                primary = take_over()
                proxy.move(*_address(primary))
                failovers.append(Failover(started, time.monotonic()))
                load.wait_for_accepted(ACCEPTED_REQUESTS, since=time.monotonic())
                wait_until(functools.partial(_is_left, server, proxy, previous))
        check.assert_none(load, [database.set(port=primary.port)], interrupted=True)
        planned, killed = failovers
        assert planned.measure(load, killed.started) <= MAX_OUTAGE_SECONDS
        assert killed.measure(load, math.inf) <= MAX_OUTAGE_SECONDS
        assert load.unsent == 0
        # Two connections, which usually lead to both workers.
        caches.answered_changes_are_found([server.url] * 2, rounds=2)


#: The sessions whose COMMIT waits for a synchronous standby.
WAITING_COMMITS = "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"


@pytest.mark.postgresql
@pytest.mark.parametrize('is_back_in_time', [True, False])
def test_a_commit_that_is_killed_while_the_standby_is_gone(is_back_in_time: bool) -> None:
    """Everybody can read the change on the primary, but it is confirmed only when the standby has it."""
    with (
        local_servers.running('postgresql') as primary,
        local_servers.running('postgresql', primary=primary) as standby,
        applications.database(_database(primary.url), socket_timeout=60 if is_back_in_time else 2) as db,
        concurrent.futures.ThreadPoolExecutor(1) as pool,
    ):
        db.sync()
        providers = logs.add_providers(db, 1)
        _wait_for_standby_at_commit(primary.url)
        standby.crash()
        write = pool.submit(db.write, lambda tx: logs.move(tx, providers))
        wait_until(lambda: corruption.column(primary.url, WAITING_COMMITS))
        killed = corruption.column(primary.url, WAITING_COMMITS)
        databases.execute(primary.url, f'SELECT pg_terminate_backend({killed[0]})')
        # The COMMIT that frees the slot waits as well.
        wait_until(lambda: corruption.column(primary.url, WAITING_COMMITS) not in ([], killed))
        with db.reader() as tx:
            assert set(logs.generations(tx).values()) == {1}
        if not is_back_in_time:
            with pytest.raises(exception.CommitInDoubt):
                write.result()
        standby.start()
        if is_back_in_time:
            write.result()
        db.write(lambda tx: logs.move(tx, providers))
        with db.reader() as tx:
            assert set(logs.generations(tx).values()) == {2}


def _is_left(server: servers.Server, proxy: Proxy, address: tuple[str, int]) -> bool:
    """Whether no connection to a database is open. The exporter, which only reads, notices the failover at a scrape."""
    urllib.request.urlopen(server.metrics_url).close()
    return proxy.connections_to(*address) == 0
