"""The change log while many writers are killed: each snapshot of the log agrees with the tables."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
import sqlalchemy as sa

from placement.db import change_log
from placement.db.api import Database
from placement.db.change_log import Relation
from tests.support import applications, databases, logs
from tests.support.event_hooks import listening
from tests.support.objects import claim, create_provider

everywhere = pytest.mark.parametrize('server', logs.SERVERS)
on_servers = pytest.mark.parametrize('server', logs.SERVERS[1:])

PROCESSES = 3
KILLS = 6
#: How many new entries have to be seen before the next process is killed.
STEPS = 10


@pytest.fixture
def urls(server: str, tmp_path: pathlib.Path) -> Iterator[list[sa.URL]]:
    """URLs of an empty database, one for each node."""
    with logs.fresh(server, tmp_path) as url:
        yield [url]


@pytest.fixture(scope='module')
def cluster_urls() -> Iterator[list[sa.URL]]:
    """URLs of an empty database on a cluster, one for each of three nodes."""
    with databases.cluster(suspect_seconds=60) as cluster, databases.fresh(sa.make_url(cluster.nodes[0].url())) as url:
        nodes = [sa.make_url(node.url(url.database or '')) for node in cluster.nodes]
        # As the documentation tells operators, so that a test reads on one node what it wrote on another.
        nodes = [node.update_query_dict({'init_command': 'SET SESSION wsrep_sync_wait = 1'}) for node in nodes]
        with applications.database(nodes[0]) as db:
            db.sync()
        yield nodes


@contextlib.contextmanager
def opened(urls: Sequence[sa.URL]) -> Iterator[list[Database]]:
    opened_databases = [logs.opened(url) for url in urls]
    try:
        yield opened_databases
    finally:
        for db in opened_databases:
            db.dispose()


# What is visible -----------------------------------------------------------------------------------------


class Observer:
    """Reads the log of one node like a provider cache, and compares it with the tables at each step."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self.log_position = change_log.LogPosition()
        self._generations: Mapping[int, int] = {}
        self.steps = 0

    def look(self) -> None:
        """Take one step."""
        with self._db.reader() as tx:
            newest = change_log.read_log_position(tx, self.log_position)
            changes = change_log.read_since(tx, self.log_position, newest)
            assert newest == change_log.read_log_position(tx)
            generations = logs.generations(tx)
            logs.check(tx)
        moved = {id_ for id_ in generations if generations[id_] != self._generations.get(id_)}
        assert changes.keys() - {change_log.NO_PROVIDER} == moved
        assert self.log_position.relation(newest) in (Relation.SAME, Relation.NEWER)
        self.steps += newest != self.log_position
        self.log_position, self._generations = newest, generations


def watch_while_killing(urls: Sequence[sa.URL]) -> None:
    """Processes write through all nodes and are killed at random; meanwhile observers check each node."""
    choose = random.Random(9)
    with opened(urls) as dbs, contextlib.ExitStack() as stack:
        providers = logs.add_providers(dbs[0], 8)

        def start(number: int) -> subprocess.Popen[bytes]:
            url = urls[number % len(urls)].render_as_string(hide_password=False)
            arguments = [url, str(choose.random()), *map(str, providers)]
            process = subprocess.Popen([sys.executable, '-m', 'tests.support.log_load', *arguments])
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        processes = [start(number) for number in range(PROCESSES)]
        observers = [Observer(db) for db in dbs]
        for _ in range(KILLS):
            enough = observers[0].steps + STEPS
            kill_at = time.monotonic() + choose.random()
            while observers[0].steps < enough or time.monotonic() < kill_at:
                for observer in observers:
                    observer.look()
            victim = choose.randrange(PROCESSES)
            assert processes[victim].poll() is None
            processes[victim].kill()
            processes[victim] = start(victim)
        stack.close()
        # The last statements of the killed processes may still be running.
        log_positions: list[change_log.LogPosition] = []
        while not log_positions or log_positions != [observer.log_position for observer in observers]:
            log_positions = [observer.log_position for observer in observers]
            for observer in observers:
                observer.look()
        assert all(log_position == log_positions[0] for log_position in log_positions)


@everywhere
def test_log_and_tables_agree_in_every_snapshot(urls: list[sa.URL]) -> None:
    watch_while_killing(urls)


@pytest.mark.galera
def test_log_and_tables_agree_on_every_node(cluster_urls: list[sa.URL]) -> None:
    watch_while_killing(cluster_urls)


# Waiting between writers ---------------------------------------------------------------------------------


@on_servers
def test_a_writer_does_not_wait_for_the_entry_of_another(urls: list[sa.URL]) -> None:
    with opened([*urls, *urls, *urls]) as (holder, other, newcomer):
        providers = logs.add_providers(holder, 2)
        entered, may_commit = threading.Event(), threading.Event()

        def hold(_connection: sa.Connection) -> None:
            entered.set()
            assert may_commit.wait(60)

        other.write(lambda tx: logs.move(tx, [providers[1]]))
        holding = threading.Thread(target=holder.write, args=(lambda tx: logs.move(tx, [providers[0]]),))
        with listening(holder.engine, 'commit', hold):
            holding.start()
            try:
                assert entered.wait(60)
                began = time.monotonic()
                # Also a process that first has to take a slot.
                for writer in (other, newcomer):
                    writer.write(lambda tx: logs.move(tx, [providers[1]]))
                assert time.monotonic() - began < 30
                assert holding.is_alive()
            finally:
                may_commit.set()
                holding.join()
        with holder.reader() as tx:
            logs.check(tx)


def claims(db: Database, provider: str, count: int) -> Callable[[], None]:
    """Claim one unit of one provider for new consumers, one after another."""
    context = applications.administrator(db)

    def run() -> None:
        for _ in range(count):
            claim(context, {provider: {'VCPU': 1}})

    return run


@pytest.mark.galera
def test_nodes_that_write_different_providers_do_not_collide(
    cluster_urls: list[sa.URL], monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no certification failure, since no two nodes write the same rows of the log."""
    retried: list[str] = []
    with opened(cluster_urls) as dbs:
        context = applications.administrator(dbs[0])
        jobs = []
        for number in range(6):
            provider = create_provider(context, VCPU=1000)
            claims(dbs[0], provider.uuid, 1)()
            jobs.append(claims(dbs[number % 3], provider.uuid, 100))
        for db in dbs:
            monkeypatch.setattr(db.metrics, 'transaction_retried', retried.append)
        with concurrent.futures.ThreadPoolExecutor(len(jobs)) as pool:
            for done in [pool.submit(job) for job in jobs]:
                done.result()
        with dbs[1].reader() as tx:
            numbers = logs.sequences(tx)
    assert retried == []
    assert sum(numbers.values()) >= 600
