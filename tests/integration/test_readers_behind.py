"""Ways in which a process can be behind its database: its next search sees the tables.

Those that need no special moment are in tests/property/test_idle_processes.py: idleness, clones, jumps of the clock.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import pytest
import sqlalchemy as sa

from placement.cache.snapshot import Snapshot
from placement.db import change_log, change_log_reader, tables
from placement.db.commit_outcome import CommitOutcome
from placement.objects.resource_provider import ResourceProvider
from placement.ops.adoption import adopt
from tests.support import applications, databases, idle_processes, logs
from tests.support.event_hooks import listening
from tests.support.idle_processes import Process
from tests.support.objects import create_provider
from tests.support.waiting import wait_until
from tools import galera

everywhere = pytest.mark.parametrize('server', logs.SERVERS)


@pytest.fixture
def start(url: sa.URL) -> Iterator[Callable[[], Process]]:
    """Starts a process, which is stopped at the end."""
    with contextlib.ExitStack() as stack:

        def started() -> Process:
            process = Process(url)
            stack.callback(process.stop)
            return process

        yield started


@pytest.fixture
def reader(start: Callable[[], Process]) -> Process:
    """A process that has answered a search, in a database with one host."""
    process = start()
    create_provider(applications.administrator(process.db), 'host', VCPU=8)
    process.check()
    return process


def rename(process: Process, name: str) -> None:
    """Give the first provider another name."""
    context = applications.administrator(process.db)
    rows = process.db.fetch_all(sa.select(tables.resource_providers.c.uuid).order_by(tables.resource_providers.c.id))
    ResourceProvider.rename(context, rows[0].uuid, name)


def names(state: Snapshot) -> set[str | None]:
    return {provider.name for provider in state.providers()}


@pytest.mark.parametrize('server', [logs.MARIADB])
def test_a_text_of_rows_that_the_server_truncates(reader: Process, start: Callable[[], Process]) -> None:
    """MariaDB truncates the joined entries of the log without an error; the cache is loaded again instead."""

    def shorten(driver: Any, _record: object) -> None:
        with driver.cursor() as cursor:
            cursor.execute('SET SESSION group_concat_max_len = 200')

    writer = start()
    reader.db.engine.dispose()
    with listening(reader.db.engine, 'connect', shorten):
        for number in range(20):
            rename(writer, f'renamed {number}')
        assert names(reader.search()) == {'renamed 19'}
        reader.check()


# Restored -------------------------------------------------------------------------------------------------


@everywhere
@pytest.mark.parametrize(('lost', 'written'), [(0, 3), (3, 0), (3, 1), (3, 3), (3, 5), (1, 1)])
def test_a_restored_database(start: Callable[[], Process], reader: Process, lost: int, written: int) -> None:
    """Writes are lost, and others take their place: fewer, more, or as many, so that the numbers are the same again.

    The process that writes is another one before and after, but uses the same slot.
    """
    writer = start()
    rename(writer, 'before the dump')
    backup = idle_processes.dump(writer.db)
    for number in range(lost):
        rename(writer, f'lost {number}')
    reader.check()
    before = reader.provider_cache._state
    assert before is not None
    slot = logs.next_slot(writer.db).slot_id
    writer.kill()
    idle_processes.restore(reader.db, backup)
    logs.free(reader.db, slot)
    reader.restored = True
    later = start()
    for number in range(written):
        rename(later, f'after the restore {number}')
    with reader.db.reader() as tx:
        positions = change_log_reader.read_log_position(tx)
    if lost == written:
        # Only the tokens tell.
        assert {id_: position.sequence for id_, position in positions.slots.items()} == {
            id_: position.sequence for id_, position in before.log_position.slots.items()
        }
    if lost and written >= lost:
        # Noticed at once.
        reader.restored = False
    reader.check()
    rename(reader, 'by the reader')
    reader.check()


@everywhere
def test_a_database_that_was_returned_and_adopted_again(reader: Process, url: sa.URL) -> None:
    """Its new log is shorter than the old one. A process that stayed up is right with its first search."""
    for number in range(3):
        rename(reader, f'renamed {number}')
    reader.check()
    reader.db.dispose()
    engine = sa.create_engine(url, poolclass=sa.NullPool)
    assert not adopt.return_database(engine, lambda _step: None).problems
    with engine.begin() as tx:
        tx.execute(sa.text("UPDATE resource_providers SET name = 'by another service'"))
    assert not adopt.adopt_database(engine, 'project', 'user', lambda _step: None).problems
    assert names(reader.search()) == {'by another service'}
    reader.check()


# A node of a cluster --------------------------------------------------------------------------------------


@pytest.fixture(scope='module')
def nodes() -> Iterator[list[sa.URL]]:
    """URLs of an empty database on a cluster, one for each of three nodes."""
    with contextlib.ExitStack() as stack:
        # So long that the cluster survives that the machine stands still for a moment.
        cluster = stack.enter_context(galera.Cluster.running(suspect_seconds=60))
        url = stack.enter_context(databases.fresh(sa.make_url(cluster.nodes[0].url())))
        urls = [sa.make_url(node.url(url.database or '')) for node in cluster.nodes]
        with applications.database(urls[0]) as db:
            db.sync()
        yield urls


@pytest.mark.galera
def test_a_late_commit_on_another_node_fails(nodes: list[sa.URL]) -> None:
    """The transaction counts as not committed, as another node wrote to its slot, although that saw no lock of it."""
    first, other = logs.opened(nodes[0]), logs.opened(nodes[1])
    first.write(change_log.record_names)
    late = logs.next_slot(first)
    with sa.create_engine(nodes[0], poolclass=sa.NullPool).connect() as connection:
        logs.append(connection, late)
        wait_until(lambda: logs.look_up(other, late) is CommitOutcome.NOT_COMMITTED)
        with pytest.raises(sa.exc.OperationalError, match='1213'):
            connection.commit()
    first.write(change_log.record_names)
    first.dispose()
    other.dispose()


@pytest.mark.galera
def test_nodes_that_take_slots_at_once(nodes: list[sa.URL]) -> None:
    """Each transaction gets a slot of its own, also when those of several nodes want the same free one."""
    # Sessions see what other nodes have committed, as the documentation tells operators.
    current = {'init_command': 'SET SESSION wsrep_sync_wait = 1'}
    databases_of_nodes = [logs.opened(nodes[number % 3].update_query_dict(current)) for number in range(9)]
    for database in databases_of_nodes[:6]:
        database.write(change_log.record_names)
    for database in databases_of_nodes[:6]:
        database.dispose()
    sequences = sa.select(tables.change_log_slots.c.id, tables.change_log_slots.c.sequence)
    before = dict(map(tuple, databases_of_nodes[0].fetch_all(sequences)))
    barrier = threading.Barrier(9)

    def run(number: int) -> None:
        # The transactions are open at the same time. One that is retried does not wait for the others again.
        pauses = [lambda: barrier.wait(60)]

        def work(tx: sa.Connection) -> None:
            change_log.record_names(tx)
            if pauses:
                pauses.pop()()

        databases_of_nodes[number].write(work)

    with futures.ThreadPoolExecutor(9) as threads:
        list(threads.map(run, range(9)))
    after = dict(map(tuple, databases_of_nodes[0].fetch_all(sequences)))
    assert sorted(after[slot] - before.get(slot, 0) for slot in after if after[slot] != before.get(slot)) == [1] * 9
    for database in databases_of_nodes:
        database.dispose()
