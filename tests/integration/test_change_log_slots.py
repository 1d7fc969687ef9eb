"""The slots of the change log on every database: their numbers after commits, rollbacks and failures."""

from __future__ import annotations

import concurrent.futures
import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import change_log, change_log_slots, commit_outcome, connections, sql, tables
from placement.db.api import Database
from placement.db.batch import StatementBatch
from placement.db.commit_outcome import CommitOutcome
from placement.db.errors import RetryTransaction
from placement.db.retries import RetryPolicy
from placement.observability.metrics import Metrics
from tests.integration import tcp_proxy
from tests.support import databases, logs
from tests.support.event_hooks import listening
from tests.support.waiting import wait_until

everywhere = pytest.mark.parametrize('server', logs.SERVERS)
on_servers = pytest.mark.parametrize('server', [logs.POSTGRESQL, logs.MARIADB])


@pytest.fixture
def db(url: sa.URL) -> Iterator[Database]:
    """The database, opened."""
    db = logs.opened(url)
    yield db
    db.dispose()


@pytest.fixture
def other(url: sa.URL) -> Iterator[Database]:
    """The same, opened by another process."""
    db = logs.opened(url)
    yield db
    db.dispose()


@pytest.fixture
def providers(db: Database) -> list[int]:
    """Three providers; the database has one slot, which ``db`` uses."""
    return logs.add_providers(db, 3)


def newest(db: Database) -> dict[int, int]:
    with db.reader() as tx:
        logs.check(tx)
        return logs.sequences(tx)


def owned(db: Database) -> set[int]:
    """The ids of the slots that have an owner."""
    slots = tables.change_log_slots.c
    return {row.id for row in db.fetch_all(sa.select(slots.id).where(slots.owner.is_not(None)))}


@everywhere
def test_only_what_is_committed_has_a_number(db: Database, providers: list[int]) -> None:
    """The number of a transaction that is rolled back is used again, also if the next one appends nothing."""
    attempts = []

    def work(tx: sa.Connection) -> None:
        logs.move(tx, providers)
        attempts.append(1)
        if len(attempts) < 3:
            raise RetryTransaction

    def fail(tx: sa.Connection) -> None:
        logs.move(tx, providers)
        raise ZeroDivisionError

    ((slot, number),) = newest(db).items()
    db.write(work)
    with pytest.raises(ZeroDivisionError):
        db.write(fail)
    db.write(lambda tx: tx.execute(tables.projects.insert().values(external_id='project')))
    db.write(lambda tx: logs.move(tx, providers[:1]))
    assert newest(db) == {slot: number + 2}


# Taking and freeing ---------------------------------------------------------------------------------------


@everywhere
def test_a_slot_that_its_owner_freed_is_taken_again(db: Database, other: Database, providers: list[int]) -> None:
    """Its numbers continue. A slot that has an owner is not taken."""
    (slot,) = newest(db)
    other.write(lambda tx: logs.move(tx, providers))
    (added,) = newest(db).keys() - {slot}
    assert owned(db) == {slot, added}
    other.dispose()
    assert owned(db) == {slot}
    other.write(lambda tx: logs.move(tx, providers))
    assert newest(db)[added] == 2
    assert owned(db) == {slot, added}


@everywhere
@pytest.mark.parametrize(('hours', 'taken'), [(0.9, False), (1.1, True), (-0.9, False), (-1.1, True)])
def test_a_slot_whose_owner_is_silent_is_taken(
    db: Database, other: Database, providers: list[int], hours: float, taken: bool
) -> None:
    """After an hour; also if its time is in the future, as the clock was wrong then."""
    (slot,) = newest(db)
    logs.free_all(db, hours)
    other.write(lambda tx: logs.move(tx, providers))
    assert (newest(db).keys() == {slot}) is taken


@everywhere
def test_a_silent_process_with_many_slots_takes_one_new(
    db: Database, other: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it would try each of its slots in turn, and fail."""
    for slot in [db.slots.lease() for _ in range(30)]:
        db.slots.committed(slot)
    logs.free_all(db)
    for slot in [other.slots.lease() for _ in range(30)]:
        with other._transaction(connections.Mode.WRITE) as tx:
            logs.append(tx, slot)
        other.slots.committed(slot)
    metrics = Metrics()
    monkeypatch.setattr(db, 'metrics', metrics)
    db.write(lambda tx: logs.move(tx, providers))
    [retries] = metrics.transaction_retries.collect()
    assert {sample.labels['reason']: sample.value for sample in retries.samples if '_total' in sample.name} == {
        'SlotTaken': 1
    }


@everywhere
def test_processes_that_take_slots_at_once(url: sa.URL, db: Database, providers: list[int]) -> None:
    """Each gets another one: free ones first, of which none is lost."""
    opened = [logs.opened(url) for _ in range(8)]
    for process in opened[:4]:
        process.write(lambda tx: logs.move(tx, providers))
    for process in opened[:4]:
        process.dispose()
    barrier = threading.Barrier(8)

    def run(process: Database) -> int:
        barrier.wait()
        slot = process.slots.lease()
        barrier.wait(60)
        process.slots.committed(slot)
        return slot.slot_id

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(run, opened))
    assert len(set(taken)) == 8
    count = db.fetch_all(sa.select(sa.func.count()).select_from(tables.change_log_slots))[0][0]
    # A process that finds a row locked that another one is just taking may insert a new one.
    assert 9 <= count <= 12
    for process in opened:
        process.dispose()


@everywhere
def test_a_worker_whose_master_has_ended_frees_its_slots(db: Database, providers: list[int]) -> None:
    """Its parent process is another one since then; its slots are the same."""
    before = newest(db)
    reader, writer = os.pipe()
    master = os.fork()
    if not master:
        if os.fork():
            # The worker writes before and after this process ends.
            os.read(reader, 1)
            os._exit(0)
        with contextlib.suppress(BaseException):
            _write_while_the_master_ends(db, providers, writer)
        os._exit(0)
    os.waitpid(master, 0)
    # The end of the pipe that the worker has closes with it.
    os.close(writer)
    assert os.read(reader, 1) == b''
    os.close(reader)
    after = newest(db)
    (added,) = after.keys() - before.keys()
    assert after == {**before, added: 2}
    assert owned(db) == before.keys()


def _write_while_the_master_ends(db: Database, providers: list[int], pipe: int) -> None:
    db.write(lambda tx: logs.move(tx, providers))
    master = os.getppid()
    os.write(pipe, b'1')
    wait_until(lambda: os.getppid() != master)
    db.write(lambda tx: logs.move(tx, providers))
    db.dispose()


#: A statement that fails, by the reason and the server.
FAILING = {
    ('canceled', 'postgresql'): 'SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)',
    ('canceled', 'mariadb'): 'KILL QUERY CONNECTION_ID()',
    ('read-only', 'postgresql'): "DO 'BEGIN RAISE SQLSTATE ''25006''; END'",
    ('read-only', 'mariadb'): "SIGNAL SQLSTATE 'HY000' SET MYSQL_ERRNO = 1290",
    ('ended', 'postgresql'): 'SELECT pg_terminate_backend(pg_backend_pid()), pg_sleep(1)',
    ('ended', 'mariadb'): 'KILL CONNECTION_ID()',
}


@on_servers
@pytest.mark.parametrize(
    ('reason', 'error', 'is_kept'),
    [
        ('canceled', exception.TransactionInterrupted, True),
        ('read-only', exception.DatabaseReadOnly, True),
        ('ended', exception.DatabaseUnavailable, False),
    ],
)
def test_the_slot_of_a_failed_transaction_is_kept_unless_the_connection_broke(
    server: str, db: Database, providers: list[int], reason: str, error: type[Exception], is_kept: bool
) -> None:
    """ROLLBACK succeeds, or the service has closed the connection, so the transaction is over."""

    def work(tx: sa.Connection) -> None:
        logs.move(tx, providers)
        batch = StatementBatch(tx)
        batch.add_statement(FAILING[reason, server])
        batch.defer()

    before = newest(db)
    for _ in range(5):
        with pytest.raises(error):
            db.write(work)
    db.write(lambda tx: logs.move(tx, providers))
    assert (newest(db) == {slot: number + 1 for slot, number in before.items()}) is is_kept
    assert (logs.idle_slots(db) == owned(db)) is is_kept


@on_servers
def test_a_locked_slot_is_not_waited_for(url: sa.URL, db: Database, other: Database, providers: list[int]) -> None:
    """Its owner was stopped in the middle of a transaction, a day ago."""
    before = newest(db)
    logs.free_all(db, hours=24)
    # Otherwise MariaDB would also lock the gaps between the rows.
    holder = sa.create_engine(url, poolclass=sa.NullPool, isolation_level='READ COMMITTED')
    with holder.connect() as connection:
        connection.execute(sa.select(tables.change_log_slots).with_for_update())
        other.write(lambda tx: logs.move(tx, providers))
    after = newest(db)
    (added,) = after.keys() - before.keys()
    assert after == {**before, added: 1}


# A COMMIT that fails --------------------------------------------------------------------------------------


def interrupt_commit(
    db: Database, monkeypatch: pytest.MonkeyPatch, error: Callable[[str], BaseException], *done: bool
) -> None:
    """Make the next COMMITs raise ``error``, each after it was done or not."""
    commit, remaining = db.engine.dialect.do_commit, list(done)

    def interrupted(connection: Any) -> None:
        is_done = remaining.pop(0)
        if not remaining:
            monkeypatch.setattr(db.engine.dialect, 'do_commit', commit)
        if is_done:
            commit(connection)
        raise error('interrupted')

    monkeypatch.setattr(db.engine.dialect, 'do_commit', interrupted)


@everywhere
@pytest.mark.parametrize('done', [False, True])
@pytest.mark.parametrize('error', [KeyboardInterrupt, SystemExit])
def test_an_interrupted_commit_abandons_the_slot(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, done: bool, error: type[BaseException]
) -> None:
    """It is not known whether the COMMIT succeeded, and the process is about to end."""
    ((slot, number),) = newest(db).items()
    interrupt_commit(db, monkeypatch, error, done)
    with pytest.raises(error):
        db.write(lambda tx: logs.move(tx, providers))
    assert newest(db) == {slot: number + done}
    for _ in range(2):
        db.write(lambda tx: logs.move(tx, providers))
    after = newest(db)
    (new,) = after.keys() - {slot}
    assert after == {slot: number + done, new: 2}


@everywhere
@pytest.mark.parametrize('done', [False, True])
def test_a_commit_that_fails_is_looked_up(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The transaction takes effect exactly once: it is run again unless it was committed."""
    attempts = []

    def work(tx: sa.Connection) -> str:
        attempts.append(1)
        logs.move(tx, providers)
        return 'result'

    ((slot, number),) = newest(db).items()
    interrupt_commit(db, monkeypatch, OSError, done)
    assert db.write(work) == 'result'
    assert len(attempts) == 2 - done
    with db.reader() as tx:
        assert set(logs.generations(tx).values()) == {1}
        # Without ``done`` a number was spent to prevent that the first attempt is committed later.
        assert logs.sequences(tx) == {slot: number + 2 - done}


@everywhere
def test_only_a_commit_proves_what_was_found(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The COMMIT that frees the slot fails, too. A synchronous standby may not have what this session could read."""
    monkeypatch.setattr(commit_outcome, '_SETTLE_SECONDS', 0.5)
    interrupt_commit(db, monkeypatch, OSError, True, False)
    with pytest.raises(exception.CommitInDoubt):
        db.write(lambda tx: logs.move(tx, providers))
    assert not any(record.exc_info for record in caplog.records)
    assert 'A COMMIT failed. According to the change log, its outcome is: unknown. interrupted' in caplog.messages
    with db.reader() as tx:
        assert set(logs.generations(tx).values()) == {1}


@on_servers
def test_a_commit_that_was_found_is_not_proved_if_the_database_is_read_only_now(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An administrator demotes the server while a COMMIT waits for a synchronous standby, and ends its session."""
    is_mysql = sql.is_mysql(db.engine.dialect)
    read_only = f'SET SESSION {"" if is_mysql else "CHARACTERISTICS AS "}TRANSACTION READ ONLY'
    monkeypatch.setattr(commit_outcome, '_SETTLE_SECONDS', 0.5)
    commit = db.engine.dialect.do_commit

    def lose_the_answer(connection: Any) -> None:
        commit(connection)
        monkeypatch.setattr(db.engine.dialect, 'do_commit', commit)
        sa.event.listen(db.engine, 'checkout', lambda connection, *_: connection.cursor().execute(read_only))
        raise OSError('lost')

    monkeypatch.setattr(db.engine.dialect, 'do_commit', lose_the_answer)
    with pytest.raises(exception.CommitInDoubt):
        db.write(lambda tx: logs.move(tx, providers))
    assert 'A COMMIT failed. According to the change log, its outcome is: unknown. lost' in caplog.messages
    with pytest.raises(exception.DatabaseReadOnly):
        db.write(lambda tx: logs.move(tx, providers))
    with db.reader() as tx:
        assert set(logs.generations(tx).values()) == {1}


@everywhere
@pytest.mark.parametrize('done', [False, True])
def test_a_failed_commit_of_a_slot_is_503_without_a_change(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """The transaction that needs it has not begun."""
    db.slots.release()
    interrupt_commit(db, monkeypatch, OSError, done)
    with pytest.raises(exception.TransactionInterrupted) as raised:
        db.write(lambda tx: logs.move(tx, providers))
    assert not isinstance(raised.value, exception.CommitInDoubt)
    db.write(lambda tx: logs.move(tx, providers))
    with db.reader() as tx:
        assert set(logs.generations(tx).values()) == {1}


@everywhere
@pytest.mark.parametrize('done', [False, True])
def test_a_commit_of_a_slot_that_conflicts_is_repeated(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """Even if it is in doubt: if it has taken a slot, the next attempt takes another one."""
    db.slots.release()
    driver: Any = db.engine.dialect.loaded_dbapi
    interrupt_commit(db, monkeypatch, functools.partial(driver.OperationalError, 3100), done)
    db.write(lambda tx: logs.move(tx, providers))
    with db.reader() as tx:
        assert set(logs.generations(tx).values()) == {1}


@everywhere
def test_a_commit_that_always_fails_is_503(db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients must not read it as a conflict with another request."""
    db._retry_policy = RetryPolicy(max_retries=0)
    interrupt_commit(db, monkeypatch, OSError, False)
    with pytest.raises(exception.TransactionInterrupted) as raised:
        db.write(lambda tx: logs.move(tx, providers))
    assert raised.value.for_operators == 'The database is not available at the moment. interrupted'


@everywhere
def test_a_commit_that_always_conflicts_is_409(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although it is in doubt, as on Group Replication: the slot shows that nothing was committed."""
    db._retry_policy = RetryPolicy(max_retries=0)
    driver: Any = db.engine.dialect.loaded_dbapi
    interrupt_commit(db, monkeypatch, functools.partial(driver.OperationalError, 3101), False)
    with pytest.raises(exception.ConcurrentProviderUpdate):
        db.write(lambda tx: logs.move(tx, providers))
    with db.reader() as tx:
        assert logs.generations(tx) == {}


@everywhere
def test_a_failed_commit_of_a_reader_is_503_without_a_change(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_commit(db, monkeypatch, OSError, False)
    with pytest.raises(exception.TransactionInterrupted) as raised, db.reader() as tx:
        logs.generations(tx)
    assert not isinstance(raised.value, exception.CommitInDoubt)


@everywhere
def test_a_failed_commit_of_nothing_recorded_is_503(
    db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change log does not know of it. Its slot is not locked, so it is used again."""
    slots = logs.idle_slots(db)
    interrupt_commit(db, monkeypatch, OSError, True)
    with pytest.raises(exception.CommitInDoubt):
        db.write(lambda tx: tx.execute(tables.projects.insert().values(external_id='project')))
    assert logs.idle_slots(db) == slots != set()


@on_servers
@pytest.mark.parametrize('fate', ['lost', 'delivered'])
def test_a_connection_that_breaks_in_the_commit(url: sa.URL, db: Database, providers: list[int], fate: str) -> None:
    """The transaction takes effect exactly once, and the caller gets its result."""
    with tcp_proxy.breaking(url) as (proxy, through):
        far = logs.opened(through)
        try:
            far.write(lambda tx: logs.move(tx, providers))
            proxy.next_commit = fate
            far.write(lambda tx: logs.move(tx, providers))
            assert proxy.broken == 1
            far.write(lambda tx: logs.move(tx, providers))
        finally:
            far.dispose()
    with db.reader() as tx:
        logs.check(tx)
        assert set(logs.generations(tx).values()) == {3}


#: What ends a session that does nothing in a transaction, and the codes that its COMMIT may fail with. MySQL sends
#: 4031, which PyMySQL reports as a lost connection, because the packet is no answer.
IDLE_LIMITS: dict[str, tuple[str, set[int | str]]] = {
    'postgresql': ("SET SESSION idle_in_transaction_session_timeout = '100ms'", {'25P03'}),
    'mariadb': ('SET SESSION wait_timeout = 1', {2006, 2013}),
}


@on_servers
def test_a_session_that_the_server_ends_before_its_commit(
    server: str, url: sa.URL, db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has rolled back. The service does not rely on that, but looks up the outcome, and repeats."""
    statement, codes = IDLE_LIMITS[server]
    attempts = []

    def work(tx: sa.Connection) -> str:
        attempts.append(1)
        logs.move(tx, providers)
        if len(attempts) == 1:
            tx.exec_driver_sql(statement)
        return 'result'

    db.engine.dispose()
    failures = logs.before_commit(db, monkeypatch, lambda: wait_until(lambda: not databases.has_other_sessions(url)))
    assert db.write(work) == 'result'
    (failure,) = failures
    assert (getattr(failure, 'sqlstate', None) or failure.args[0]) in codes
    assert len(attempts) == 2
    with db.reader() as tx:
        logs.check(tx)
        assert set(logs.generations(tx).values()) == {1}


@pytest.mark.parametrize('server', [logs.MARIADB])
def test_a_commit_that_waits_too_long_for_a_lock_is_rolled_back(
    url: sa.URL,
    db: Database,
    providers: list[int],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The evidence for 1205 in ``errors.ERRORS``: the outcome is not looked up, and the retry alone takes effect."""
    attempts = []
    locker = sa.create_engine(url, poolclass=sa.NullPool, isolation_level='AUTOCOMMIT')
    with locker.connect() as connection:

        def work(tx: sa.Connection) -> None:
            attempts.append(1)
            connection.exec_driver_sql('UNLOCK TABLES')
            tx.exec_driver_sql('SET SESSION lock_wait_timeout = 1')
            logs.move(tx, providers)

        failures = logs.before_commit(
            db, monkeypatch, lambda: connection.exec_driver_sql('FLUSH TABLES WITH READ LOCK').close()
        )
        db.write(work)
    assert [error.args[0] for error in failures] == [1205]
    assert len(attempts) == 2
    assert 'A COMMIT failed' not in caplog.text
    with db.reader() as tx:
        logs.check(tx)
        assert set(logs.generations(tx).values()) == {1}


@on_servers
def test_a_commit_that_the_server_gets_late(
    url: sa.URL, db: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its session is open in the server for longer than anybody waits: the outcome is unknown, and stays consistent."""
    monkeypatch.setattr(commit_outcome, '_SETTLE_SECONDS', 0.5)
    with tcp_proxy.breaking(url) as (proxy, through):
        far = logs.opened(through)
        far.write(lambda tx: logs.move(tx, providers[:1]))
        proxy.next_commit = 'late'
        with pytest.raises(exception.DatabaseUnavailable):
            far.write(lambda tx: logs.move(tx, providers[:1]))
        # Its slot is locked, so it uses another one.
        far.write(lambda tx: logs.move(tx, providers[1:]))
        assert sorted(newest(db).values()) == [1, 1, 2]
        proxy.deliver()
        wait_until(lambda: sorted(newest(db).values()) == [1, 2, 2])
        far.write(lambda tx: logs.move(tx, providers))
        newest(db)
        far.dispose()


@on_servers
def test_a_transaction_that_counts_as_not_committed_cannot_be_committed(
    url: sa.URL, db: Database, providers: list[int]
) -> None:
    """A session that has not reached its last statements yet finds that its slot has moved."""
    late = logs.next_slot(db)
    assert logs.look_up(db, late) is CommitOutcome.NOT_COMMITTED
    with sa.create_engine(url, poolclass=sa.NullPool).connect() as connection:
        (first, _rows), *_ = late.statements(db.engine.dialect.name, {1: change_log.ChangeKind.USAGE})
        assert connection.exec_driver_sql(first).rowcount == 0


@everywhere
@pytest.mark.parametrize('is_own', [False, True])
def test_a_failed_commit_on_a_slot_that_another_process_continued(
    db: Database, other: Database, providers: list[int], is_own: bool
) -> None:
    """The entry with the number of the transaction tells whose it was; unless it was deleted."""
    mine = logs.next_slot(db)
    if is_own:
        with db.engine.begin() as tx:
            logs.append(tx, mine)
    logs.free_all(db)
    for _ in range(2):
        other.write(change_log.record_names)
    assert logs.next_slot(other).slot_id == mine.slot_id
    logs.free_all(db)
    assert logs.look_up(db, mine) is (CommitOutcome.COMMITTED if is_own else CommitOutcome.NOT_COMMITTED)
    slots = tables.change_log_slots.c
    assert [owner for (owner,) in db.fetch_all(sa.select(slots.owner))] == [other.slots.owner]
    with db.engine.begin() as tx:
        tx.execute(tables.change_log.delete())
    assert logs.look_up(db, mine) is CommitOutcome.UNKNOWN
    assert owned(db) == {mine.slot_id}


@everywhere
@pytest.mark.parametrize('is_committed', [False, True])
def test_a_failed_commit_on_a_slot_that_another_process_took(
    db: Database, other: Database, providers: list[int], is_committed: bool
) -> None:
    """The other process has not written yet, so the slot still has the number of this one."""
    mine = logs.next_slot(db)
    if is_committed:
        with db.engine.begin() as tx:
            logs.append(tx, mine)
    logs.free_all(db)
    assert logs.next_slot(other).slot_id == mine.slot_id
    assert logs.look_up(db, mine) is (CommitOutcome.COMMITTED if is_committed else CommitOutcome.NOT_COMMITTED)
    assert owned(db) == {mine.slot_id}


#: How many rows the transaction of this session has written.
WRITTEN = {
    'postgresql': "SELECT n_tup_upd FROM pg_stat_xact_user_tables WHERE relname = 'placement_writer_slots'",
    'mariadb': 'SELECT trx_rows_modified FROM information_schema.innodb_trx'
    ' WHERE trx_mysql_thread_id = CONNECTION_ID()',
}


@on_servers
@pytest.mark.parametrize('is_taken', [False, True])
def test_a_look_up_that_finds_a_commit_writes(
    server: str,
    db: Database,
    other: Database,
    providers: list[int],
    monkeypatch: pytest.MonkeyPatch,
    is_taken: bool,
) -> None:
    """Even if another process has just taken or freed the slot. COMMIT waits for standbys only after a write."""
    mine = logs.next_slot(db)
    with db.engine.begin() as tx:
        logs.append(tx, mine)
    logs.free_all(db)
    other.write(change_log.record_names)
    if not is_taken:
        other.slots.release()
    written: list[int] = []
    commit = db.engine.dialect.do_commit

    def count_and_commit(connection: Any) -> None:
        # MariaDB shows its transactions as they were up to 0.1 s ago.
        time.sleep(0.2)
        with contextlib.closing(connection.cursor()) as cursor:
            cursor.execute(WRITTEN[server])
            written.append(*cursor.fetchone())
        commit(connection)

    monkeypatch.setattr(db.engine.dialect, 'do_commit', count_and_commit)
    assert logs.look_up(db, mine) is CommitOutcome.COMMITTED
    (count,) = written
    assert count > 0


@everywhere
def test_the_slot_of_a_failed_commit_is_freed(db: Database, providers: list[int]) -> None:
    assert logs.look_up(db, logs.next_slot(db)) is CommitOutcome.NOT_COMMITTED
    assert owned(db) == set()


@everywhere
def test_a_node_that_lags_behind_a_slot_does_not_decide(db: Database, providers: list[int]) -> None:
    ahead = logs.next_slot(db)
    ahead.sequence += 1
    with pytest.raises(RetryTransaction), db.engine.begin() as tx:
        commit_outcome._lock_row(tx, ahead)


# Two processes on one slot --------------------------------------------------------------------------------


@everywhere
def test_two_processes_forced_onto_one_slot_at_once(db: Database, other: Database, providers: list[int]) -> None:
    """Again and again, while both write from several threads: nothing is lost, and no number is used twice."""
    written: list[int] = []

    def run(number: int) -> None:
        writer = (db, other)[number % 2]
        for _ in range(15):
            writer.write(lambda tx: logs.move(tx, [providers[number % 3]]))
            written.append(number)

    def share() -> None:
        while (count := len(written)) < 6 * 15:
            logs.free_all(db)
            for writer in (db, other):
                writer.slots._idle.clear()
            wait_until(lambda count=count: len(written) > count)  # type: ignore[misc]

    with concurrent.futures.ThreadPoolExecutor(7) as pool:
        jobs = [pool.submit(share), *(pool.submit(run, number) for number in range(6))]
        for job in jobs:
            job.result()
    assert sum(newest(db).values()) == 2 + 6 * 15


# Trimming -------------------------------------------------------------------------------------------------


@everywhere
def test_an_owner_deletes_old_entries(
    db: Database, other: Database, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After TRIM_INTERVAL_TRANSACTIONS of the slot. The newest ones always stay, and those of other slots."""
    monkeypatch.setattr(change_log_slots, 'TRIM_INTERVAL_TRANSACTIONS', 5)
    monkeypatch.setattr(change_log_slots, 'KEPT_TRANSACTIONS', 20)
    (slot,) = newest(db)
    other.write(lambda tx: logs.move(tx, providers))
    (neighbor,) = newest(db).keys() - {slot}

    def numbers(slot: int) -> list[int]:
        with db.reader() as tx:
            return sorted({number for number, _ in logs.entries(tx)[slot]})

    for count, kept in ((22, range(1, 25)), (5, range(6, 30))):
        for _ in range(count):
            db.write(lambda tx: logs.move(tx, providers))
        assert numbers(slot) == list(kept)
    assert numbers(neighbor) == [1]


@on_servers
def test_a_write_does_not_wait_for_the_deletion_of_old_entries(
    url: sa.URL, providers: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MariaDB would lock the row of the slot if a subquery of the DELETE read it."""
    monkeypatch.setattr(change_log_slots, 'TRIM_INTERVAL_TRANSACTIONS', 5)
    monkeypatch.setattr(change_log_slots, 'KEPT_TRANSACTIONS', 2)
    process = logs.opened(url, lock_wait_timeout=1, max_transaction_retries=0)
    process.slots.is_trimmed_in_background = True
    for _ in range(10):
        process.write(lambda tx: logs.move(tx, providers))
    slot = logs.next_slot(process)
    written: list[int] = []

    def write(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.startswith(f'DELETE FROM {tables.change_log.name}'):
            process.write(lambda tx: logs.move(tx, providers))
            written.append(logs.next_slot(process).sequence)

    with listening(process.engine, 'after_cursor_execute', write):
        process.slots.trim()
    assert written == [slot.sequence + 1]
    with process.reader() as tx:
        assert min(logs.entries(tx)[slot.slot_id])[0] == slot.sequence - 1
    process.dispose()
