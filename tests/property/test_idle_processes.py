"""Over a virtual clock: whatever happened while a process had no requests, its next search sees the tables."""

from __future__ import annotations

import pathlib
import random
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from placement.db import change_log_slots
from tests.support import idle_processes, logs
from tests.support.idle_processes import HOUR, Process

STEPS = 120


@pytest.fixture
def url(server: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[sa.URL]:
    """The URL of an empty database, whose change log keeps few entries."""
    monkeypatch.setattr(change_log_slots, 'TRIM_INTERVAL_TRANSACTIONS', 5)
    monkeypatch.setattr(change_log_slots, 'KEPT_TRANSACTIONS', 12)
    with logs.fresh(server, tmp_path) as url:
        yield url


class Topology:
    """Some processes on one database, and what may happen to them."""

    def __init__(self, url: sa.URL, seed: int) -> None:
        self.url = url
        self.choose = random.Random(seed)
        self.processes = [Process(url) for _ in range(4)]
        self.dumps = [idle_processes.dump(self.processes[0].db)]
        self.events = {
            self.write: 40,
            self.search: 20,
            self.pass_time: 8,
            self.clock_jumps: 3,
            self.restart: 10,
            self.clone: 2,
            self.dump: 2,
            self.restore: 3,
        }

    def one(self) -> Process:
        return self.choose.choice(self.processes)

    def write(self) -> None:
        process = self.one()
        for _ in range(self.choose.choice([1, 1, 2, 30])):
            process.write(self.choose)

    def search(self) -> None:
        self.one().check()

    def pass_time(self) -> None:
        seconds = self.choose.choice([60, 2 * HOUR, 30 * HOUR, 500 * HOUR])
        idle_processes.pass_time(self.one().db, seconds)
        for process in self.processes:
            # The clock of a suspended process does not go on.
            process.now += self.choose.choice([seconds, seconds, 0])

    def clock_jumps(self) -> None:
        seconds = self.choose.choice([-500, -2, 2, 500]) * HOUR
        if self.choose.random() < 0.5:
            idle_processes.pass_time(self.one().db, seconds)
        else:
            self.one().now += seconds

    def restart(self) -> None:
        process = self.one()
        self.choose.choice([process.stop, process.kill])()
        self.processes[self.processes.index(process)] = Process(self.url)

    def clone(self) -> None:
        replaced = self.one()
        clone = self.one().clone(self.url)
        replaced.kill()
        self.processes[self.processes.index(replaced)] = clone

    def dump(self) -> None:
        self.dumps.append(idle_processes.dump(self.one().db))

    def restore(self) -> None:
        idle_processes.restore(self.one().db, self.choose.choice(self.dumps[-3:]))
        for process in self.processes:
            process.restored = True


@pytest.mark.parametrize('server', logs.SERVERS)
@pytest.mark.parametrize('seed', range(6))
def test_each_search_sees_the_tables(url: sa.URL, seed: int) -> None:
    topology = Topology(url, seed)
    for event in topology.choose.choices(list(topology.events), list(topology.events.values()), k=STEPS):
        event()
    for process in topology.processes:
        process.check()
        process.stop()
