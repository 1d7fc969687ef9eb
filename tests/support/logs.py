"""Databases for the tests of the change log, what is in the log, and a connection that breaks in a COMMIT."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
import socket
import threading
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import sqlalchemy as sa

from placement.db import change_log, tables
from placement.db.api import Database
from tests.support import applications, databases
from tests.support.tcp_proxy import PORTS, legible

#: A test with ``server`` as a parameter runs on each of these, on SQLite also without any server.
SERVERS = [
    'sqlite',
    pytest.param('postgresql', marks=pytest.mark.postgresql),
    pytest.param('mariadb', marks=pytest.mark.mariadb),
]

#: Not the name of an isolation level.
_COMMIT = re.compile(rb'(?<!READ )COMMIT')

_providers = tables.resource_providers


def opened(url: str | sa.URL, **options: object) -> Database:
    """Open a database as a process of the service does, with ``options`` of its group."""
    return Database(applications.options(url, placement_database=options))


@contextlib.contextmanager
def fresh(server: str, directory: Any) -> Iterator[sa.URL]:
    """The URL of a new database with the schema."""
    with contextlib.ExitStack() as stack:
        if server == 'sqlite':
            url = sa.make_url(f'sqlite:///{directory}/placement.sqlite')
        else:
            reason = databases.why_unavailable(server)
            if reason is not None:
                databases.unavailable(server, reason)
            url = stack.enter_context(databases.fresh(databases.server_url(server)))
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
            raise slot.taken()


def next_slot(db: Database) -> int:
    """Return the id of the slot that the next transaction of this process will use."""
    with db._slots.lease() as slot:
        return slot.slot_id


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
    slots = change_log.read_log_position(tx).slots
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


class BreakingProxy:
    """Forwards bytes to a database server, and on request breaks the connection at the next COMMIT.

    The server gets that COMMIT or does not, or gets it later; its answer is lost in any case.
    """

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(('127.0.0.1', 0))
        self.port = self._listener.getsockname()[1]
        self.broken = 0
        self._deliver: bool | None = None
        self._answer = False
        self._later: threading.Event | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def break_next(self, *, deliver: bool) -> None:
        """Break the connection of the next COMMIT, after or before it is forwarded."""
        self._deliver = deliver

    def hold_next(self, *, answer: bool = False) -> threading.Event:
        """Deliver the next COMMIT when the event is set.

        :param answer: the client waits for it and gets the answer; otherwise its half of the connection is broken.
        """
        self._deliver, self._answer, self._later = True, answer, threading.Event()
        return self._later

    def close(self) -> None:
        """Stop accepting connections."""
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                threading.Thread(target=self._upstream, args=(client, server), daemon=True).start()
                threading.Thread(target=self._downstream, args=(client, server), daemon=True).start()

    def _upstream(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                deliver = self._deliver
                if deliver is not None and _COMMIT.search(data):
                    self._deliver = None
                    self.broken += 1
                    if not self._answer:
                        client.shutdown(socket.SHUT_RDWR)
                    self._answer = False
                    if deliver:
                        if self._later is not None:
                            event, self._later = self._later, None
                            event.wait(60)
                        server.sendall(data)
                        # The answer of the server is dropped, but it has to arrive.
                        continue
                    break
                server.sendall(data)
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_WR)

    def _downstream(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(65536):
                with contextlib.suppress(OSError):
                    client.sendall(data)
        for end in (client, server):
            with contextlib.suppress(OSError):
                end.close()


@contextlib.contextmanager
def breaking(url: sa.URL) -> Iterator[tuple[BreakingProxy, sa.URL]]:
    """A proxy for the server of ``url``, and the URL through it."""
    server = url.get_backend_name()
    proxy = BreakingProxy(url.host or '127.0.0.1', url.port or PORTS[server])
    try:
        yield proxy, legible(url, proxy.port)
    finally:
        proxy.close()
