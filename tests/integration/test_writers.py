"""The writers of the log on every database: their numbers after commits, rollbacks, failures and forks."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from oslo_db import exception as db_exc

from placement import exception
from placement.db import changes, retention, tables
from placement.db.api import Database, TryAgain
from tests.support import logs

everywhere = pytest.mark.parametrize('server', logs.SERVERS)
on_servers = pytest.mark.parametrize('server', logs.SERVERS[1:])


@pytest.fixture
def url(server: str, tmp_path: pathlib.Path) -> Iterator[sa.URL]:
    """The URL of an empty database."""
    with logs.fresh(server, tmp_path) as made:
        yield made


@pytest.fixture
def db(url: sa.URL) -> Iterator[Database]:
    """The database, opened."""
    made = logs.opened(url)
    yield made
    made.dispose()


@pytest.fixture
def providers(db: Database) -> list[int]:
    """Three providers; the database has one writer."""
    return logs.add_providers(db, 3)


def newest(db: Database) -> dict[int, int]:
    with db.reader() as tx:
        logs.check(tx)
        return changes.newest(tx)


@everywhere
def test_only_what_is_committed_has_a_number(db: Database, providers: list[int]) -> None:
    attempts = []

    def work(tx: sa.Connection) -> None:
        logs.move(tx, providers)
        attempts.append(1)
        if len(attempts) < 3:
            raise TryAgain

    def fail(tx: sa.Connection) -> None:
        logs.move(tx, providers)
        raise ZeroDivisionError

    before = newest(db)
    db.write(work)
    with pytest.raises(ZeroDivisionError):
        db.write(fail)
    db.write(lambda tx: logs.move(tx, providers[:1]))
    assert sum(newest(db).values()) == sum(before.values()) + 2
    assert newest(db).keys() == before.keys()


@everywhere
def test_transactions_at_once_have_a_writer_each(db: Database, providers: list[int]) -> None:
    """They use them again later. On SQLite one transaction waits for the other, but has taken its writer before."""
    for _ in range(2):
        barrier = threading.Barrier(3)

        def run(number: int, barrier: threading.Barrier = barrier) -> None:
            barrier.wait()
            for _ in range(20):
                db.write(lambda tx: logs.move(tx, [providers[number]]))

        threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    found = newest(db)
    # Includes the writers that created the schema and the providers.
    assert len(found) <= 5
    assert sum(found.values()) >= 120


@on_servers
def test_a_conflict_in_the_entry_uses_the_number_again(
    server: str, url: sa.URL, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another transaction locks the row of the writer for longer than the lock timeout."""
    patience = {
        'postgresql': {'options': '-c lock_timeout=300'},
        'mariadb': {'init_command': 'SET SESSION innodb_lock_wait_timeout=1'},
    }
    hasty = logs.opened(url.update_query_dict(patience[server]))
    retried: list[str] = []
    monkeypatch.setattr(hasty.metrics, 'retried', retried.append)
    before = newest(hasty)
    hasty.write(lambda tx: logs.move(tx, providers))
    (writer,) = newest(hasty).keys() - before.keys()
    holder = sa.create_engine(url, poolclass=sa.NullPool)
    with holder.connect() as connection:
        connection.execute(sa.select(tables.writers).where(tables.writers.c.id == writer).with_for_update())
        waiting = threading.Thread(target=hasty.write, args=(lambda tx: logs.move(tx, providers),))
        waiting.start()
        while not retried:
            waiting.join(0.05)
            assert waiting.is_alive()
    waiting.join()
    assert newest(hasty) == {**before, writer: 2}
    hasty.dispose()


@everywhere
@pytest.mark.parametrize('done', [False, True])
@pytest.mark.parametrize('error', [KeyboardInterrupt, SystemExit, OSError])
def test_an_interrupted_commit_retires_the_writer(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, done: bool, error: type[BaseException]
) -> None:
    """It is not known whether the COMMIT succeeded, so the writer is never used again."""
    before = newest(db)
    commit = db.engine.dialect.do_commit

    def interrupted(connection: Any) -> None:
        monkeypatch.undo()
        if done:
            commit(connection)
        raise error('interrupted')

    monkeypatch.setattr(db.engine.dialect, 'do_commit', interrupted)
    with pytest.raises((error, db_exc.DBError)):
        db.write(lambda tx: logs.move(tx, providers))
    between = newest(db)
    assert sum(between.values()) == sum(before.values()) + done
    for _ in range(2):
        db.write(lambda tx: logs.move(tx, providers))
    after = newest(db)
    (new,) = after.keys() - between.keys()
    assert after == {**between, new: 2}


@on_servers
@pytest.mark.parametrize('deliver', [False, True])
def test_a_connection_that_breaks_in_the_commit(url: sa.URL, db: Database, providers: list[int], deliver: bool) -> None:
    with logs.breaking(url) as (proxy, through):
        far = logs.opened(through)
        try:
            far.write(lambda tx: logs.move(tx, providers))
            before = newest(db)
            proxy.break_next(deliver=deliver)
            with pytest.raises(exception.DatabaseUnavailable):
                far.write(lambda tx: logs.move(tx, providers))
            assert proxy.broken == 1
            far.write(lambda tx: logs.move(tx, providers))
            after = newest(db)
        finally:
            far.dispose()
    assert len(after.keys() - before.keys()) == 1
    assert sum(after.values()) == sum(before.values()) + 1 + deliver


@everywhere
def test_a_number_that_another_process_used(db: Database, providers: list[int]) -> None:
    """A copy of a running process, such as that in a cloned virtual machine, has the same writer."""
    before = newest(db)
    with db._log_writers.lend() as lent:
        writer = lent.writer_id
    with db._writer() as tx:
        changes.enter(tx, writer, before[writer] + 1, dict.fromkeys(providers, changes.What.USAGE))
        for id_ in providers:
            generation = tables.resource_providers.c.generation + 1
            tx.execute(
                tables.resource_providers.update()
                .where(tables.resource_providers.c.id == id_)
                .values(generation=generation)
            )
    db.write(lambda tx: logs.move(tx, providers))
    after = newest(db)
    (new,) = after.keys() - before.keys()
    assert after == {**before, writer: before[writer] + 1, new: 1}


_FORK = """
import os, sys
from tests.support import logs
db = logs.opened(sys.argv[1])
provider = int(sys.argv[2])
for _ in range(3):
    db.write(lambda tx: logs.move(tx, [provider]))
child = os.fork()
if child == 0:
    # The connections are the parent's.
    db.engine.dispose(close=False)
for _ in range(3):
    db.write(lambda tx: logs.move(tx, [provider]))
if child == 0:
    grandchild = os.fork()
    if grandchild == 0:
        db.engine.dispose(close=False)
    db.write(lambda tx: logs.move(tx, [provider]))
    if grandchild == 0:
        os._exit(0)
    assert os.waitpid(grandchild, 0)[1] == 0
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
db.write(lambda tx: logs.move(tx, [provider]))
"""


@everywhere
def test_a_fork_has_writers_of_its_own(url: sa.URL, db: Database, providers: list[int]) -> None:
    before = newest(db)
    text = url.render_as_string(hide_password=False)
    subprocess.run([sys.executable, '-c', _FORK, text, str(providers[0])], check=True, timeout=120)
    after = newest(db)
    assert sorted(after[writer] for writer in after.keys() - before.keys()) == [1, 4, 7]


def age(db: Database, writers: Sequence[int]) -> None:
    """Set the time of the entries of these writers to two days ago."""
    days = "datetime('now', '-2 days')" if db.engine.dialect.name == 'sqlite' else "now() - INTERVAL '2' DAY"
    with db.engine.begin() as tx:
        for table, column in ((tables.changes, tables.changes.c.writer_id), (tables.writers, tables.writers.c.id)):
            tx.execute(table.update().where(column.in_(writers)).values(created_at=sa.text(days)))


def writers(db: Database) -> set[int]:
    with db.reader() as tx:
        return set(tx.scalars(sa.select(tables.writers.c.id)))


def tidy(db: Database) -> int:
    """Remove silent writers; returns the number of steps."""
    for step in range(1000):
        with db._writer() as tx:
            if not retention.remove_silent(tx):
                return step
    raise AssertionError


@everywhere
def test_silent_writers_are_removed(
    url: sa.URL, db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, '_CHUNK', 4)
    other = logs.opened(url)
    for _ in range(10):
        other.write(lambda tx: logs.move(tx, providers))
    (gone,) = (writer for writer, number in newest(db).items() if number == 10)
    with db._writer() as tx:
        tx.execute(tables.writers.insert().values(id=7))
    before = newest(db)
    assert tidy(db) == 0
    age(db, [gone, 7])
    assert tidy(db) > 3
    assert writers(db) == before.keys() - {gone}
    with db.reader() as tx:
        assert changes.newest(tx) == {writer: number for writer, number in before.items() if writer != gone}
    other.write(lambda tx: logs.move(tx, providers))
    other.dispose()
    with db.reader() as tx:
        assert [number for _, number in changes.newest(tx).items() - before.items()] == [1]


@everywhere
def test_an_old_writer_that_still_writes_stays(db: Database, providers: list[int]) -> None:
    """Its newest entry decides, not its creation nor its first entries."""
    db.write(lambda tx: logs.move(tx, providers))
    with db._log_writers.lend() as lent:
        writer = lent.writer_id
    age(db, sorted(writers(db)))
    db.write(lambda tx: logs.move(tx, providers))
    before = newest(db)
    tidy(db)
    assert newest(db) == {writer: before[writer]}


@everywhere
def test_a_silent_process_with_many_writers_takes_one_new(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would try each of its writers in turn, and give up."""
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(db._log_writers.lend())
    age(db, sorted(writers(db)))
    assert tidy(db) == 31
    retried: list[str] = []
    monkeypatch.setattr(db.metrics, 'retried', retried.append)
    db.write(lambda tx: logs.move(tx, providers))
    assert retried == ['Forgotten']


@everywhere
def test_two_processes_remove_writers_while_others_write_again(
    url: sa.URL, db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(retention, '_CHUNK', 5)
    # Always choose the same writer, so that both processes remove the same one.
    monkeypatch.setattr('secrets.choice', lambda silent: silent[0])
    sleepers = [logs.opened(url) for _ in range(6)]
    for sleeper in sleepers:
        for _ in range(12):
            sleeper.write(lambda tx: logs.move(tx, providers))
    age(db, sorted(writers(db)))

    def keep(opened: Database) -> None:
        keeper = retention.Housekeeper(opened._writer)
        for _ in range(60):
            keeper._due = 0
            keeper.pass_by()

    def wake(sleeper: Database) -> None:
        sleeper.write(lambda tx: logs.move(tx, providers))

    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = [pool.submit(keep, opened) for opened in (db, sleepers[0])]
        jobs += [pool.submit(wake, sleeper) for sleeper in sleepers[:3]]
    for job in jobs:
        job.result()
    assert caplog.records == []
    assert tidy(db) < 40
    with db.reader() as tx:
        found = logs.entries(tx)
    # Only the writers that wrote again are left, each with at least its newest entry and without a gap.
    assert len(found) == 3
    for numbers in found.values():
        seen = {number for number, _ in numbers}
        assert seen == set(range(min(seen), max(seen) + 1))
    for sleeper in sleepers:
        sleeper.dispose()


@everywhere
def test_a_writer_deletes_its_old_entries(db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It always keeps the newest ones, and all entries for some time."""
    for name, value in {'STRIDE': 5, 'KEPT_NUMBERS': 20, 'KEPT_SECONDS': 0}.items():
        monkeypatch.setattr(retention, name, value)
    with db._log_writers.lend() as lent:
        writer = lent.writer_id

    def numbers() -> list[int]:
        with db.reader() as tx:
            return sorted({number for number, _ in logs.entries(tx)[writer]})

    for _ in range(99):
        db.write(lambda tx: logs.move(tx, providers))
    assert numbers() == list(range(81, 101))
    monkeypatch.setattr(retention, 'KEPT_SECONDS', 600)
    for _ in range(50):
        db.write(lambda tx: logs.move(tx, providers))
    assert numbers() == list(range(81, 151))
    monkeypatch.setattr(retention, 'KEPT_SECONDS', 0)
    # It catches up: it deletes at most two entries for each that it adds.
    for _ in range(25):
        db.write(lambda tx: logs.move(tx, providers))
    assert numbers()[0] == 131
    with db.reader() as tx:
        upto = changes.newest(tx)
        others = {other: number for other, number in upto.items() if other != writer}
        assert changes.since(tx, {**others, writer: 131}, upto) == dict.fromkeys(providers, changes.What.USAGE)
        for vector in ({**others, writer: 130}, others):
            with pytest.raises(changes.Gap):
                changes.since(tx, vector, upto)
