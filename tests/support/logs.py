"""Databases for the tests of the change log, and what is in the log."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from placement import exception
from placement.db import change_log, change_log_reader, commit_outcome, tables
from placement.db.api import Database
from tests.support import applications, databases

POSTGRESQL = pytest.param('postgresql', marks=pytest.mark.postgresql)
MARIADB = pytest.param('mariadb', marks=pytest.mark.mariadb)
#: A test with ``server`` as a parameter runs on each of these, on SQLite also without any server.
SERVERS = ['sqlite', POSTGRESQL, MARIADB]

_providers = tables.resource_providers


def opened(url: str | sa.URL, **options: object) -> Database:
    """Open a database as a process of the service does, with ``options`` of its group."""
    return Database(applications.options(url, placement_database=options))


@contextlib.contextmanager
def fresh(server: str, directory: Any) -> Iterator[sa.URL]:
    """The URL of a new database with the schema."""
    with databases.empty(server, directory) as url:
        # It frees its slot of the log when it is closed.
        with applications.database(url) as db:
            db.sync()
        yield url


def add_providers(db: Database, count: int) -> list[int]:
    """Insert root providers; returns their ids."""
    uuids = [str(uuid.uuid4()) for _ in range(count)]

    def work(tx: sa.Connection) -> None:
        tx.execute(_providers.insert(), [{'uuid': uuid_, 'name': uuid_, 'generation': 0} for uuid_ in uuids])
        change_log.record_reload(tx)

    db.write(work)
    with db.reader() as tx:
        return list(tx.scalars(sa.select(_providers.c.id).order_by(_providers.c.id)))


def move(tx: sa.Connection, provider_ids: Sequence[int]) -> None:
    """The write of these tests: increments the generations of some providers, and records it."""
    for id_ in sorted(provider_ids):
        generation = _providers.c.generation + 1
        tx.execute(_providers.update().where(_providers.c.id == id_).values(generation=generation))
    change_log.record_usage(tx, provider_ids)


def append(tx: sa.Connection, slot: change_log.Slot) -> None:
    """Append an entry under a slot, which changes nothing."""
    for text, rows in slot.statements(tx.dialect.name, {change_log.NO_PROVIDER: change_log.ChangeKind.NAMES}):
        if tx.exec_driver_sql(text).rowcount != rows:
            raise change_log.SlotTaken


def before_commit(db: Database, monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> list[Any]:
    """Call ``action`` before the next COMMIT. Return a list, to which the driver's error of this COMMIT is appended."""
    commit = db.engine.dialect.do_commit
    failures: list[Any] = []

    def act_and_commit(connection: Any) -> None:
        monkeypatch.setattr(db.engine.dialect, 'do_commit', commit)
        action()
        try:
            commit(connection)
        except Exception as error:
            failures.append(error)
            raise

    monkeypatch.setattr(db.engine.dialect, 'do_commit', act_and_commit)
    return failures


def next_slot(db: Database) -> change_log.Slot:
    """Return a copy of the slot that the next transaction of this process will use."""
    slot = db.slots.lease()
    db.slots.committed(slot)
    return dataclasses.replace(slot)


def look_up(db: Database, slot: change_log.Slot) -> commit_outcome.CommitOutcome:
    """Find out whether the transaction of ``slot`` was committed, as after its COMMIT failed."""
    return commit_outcome.find_outcome(db.slot_transaction, slot, db.slots.owner, exception.CommitInDoubt())


def idle_slots(db: Database) -> set[int]:
    """Return the ids of the slots that this process can give to its next transactions, each to one."""
    ids = [slot.slot_id for slot in db.slots._idle]
    assert len(set(ids)) == len(ids), ids
    return set(ids)


def free(db: Database, slot_id: int) -> None:
    """Take a slot away from its owner."""
    slots = tables.change_log_slots
    with db.engine.begin() as tx:
        tx.execute(slots.update().where(slots.c.id == slot_id).values(owner=None))


def free_all(db: Database, hours: float = 2) -> None:
    """Set the time of every slot ``hours`` back, so that others may take it (after one hour)."""
    time = dt.datetime.now(dt.UTC).replace(tzinfo=None) - dt.timedelta(hours=hours)
    with db.engine.begin() as tx:
        tx.execute(tables.change_log_slots.update().values(updated_at=time))


def generations(tx: sa.Connection) -> dict[int, int]:
    """Provider id: generation, without those that are 0."""
    rows = tx.execute(sa.select(_providers.c.id, _providers.c.generation))
    return {id_: generation for id_, generation in rows if generation}


def sequences(tx: sa.Connection) -> dict[int, int]:
    """Slot id: its sequence number, without slots that were never used."""
    slots = change_log_reader.read_log_position(tx).slots
    return {slot: position.sequence for slot, position in slots.items() if position.sequence}


def entries(tx: sa.Connection) -> dict[int, list[tuple[int, int]]]:
    """Slot id: its numbers, each with a provider."""
    log = tables.change_log.c
    by_slot: dict[int, list[tuple[int, int]]] = {}
    for slot, number, provider in tx.execute(sa.select(log.slot_id, log.sequence, log.provider_id)):
        by_slot.setdefault(slot, []).append((number, provider))
    return by_slot


def check(tx: sa.Connection) -> None:
    """Checks every snapshot: no number is missing, and each increment of a generation is recorded exactly once."""
    log = entries(tx)
    newest = sequences(tx)
    assert log.keys() == newest.keys()
    for slot, numbers in log.items():
        assert {number for number, _ in numbers} == set(range(1, newest[slot] + 1))
    moved: dict[int, int] = {}
    for numbers in log.values():
        for _, provider in numbers:
            if provider != change_log.NO_PROVIDER:
                moved[provider] = moved.get(provider, 0) + 1
    assert moved == generations(tx)
