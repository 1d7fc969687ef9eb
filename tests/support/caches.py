"""Checks of provider caches for every database: with writes from several processes, killed workers, several servers."""

from __future__ import annotations

import concurrent.futures
import contextlib
import itertools
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Sequence
from typing import Any

from placement.cache.refresh import ProviderCache
from placement.cache.snapshot import Snapshot
from placement.db.api import Database
from tests.support import races, servers
from tests.support.cache_equality import assert_same, compare
from tests.support.cache_histories import History, Send, Universe
from tests.support.history import fleet
from tests.support.history.client import Client, UnreachableError
from tests.support.waiting import SECONDS

# Equality ------------------------------------------------------------------------------------------------


def sender(client: Client) -> Send:
    """Sends requests over HTTP; those with an unknown outcome have no status."""

    def send(method: str, path: str, body: Any, version: str) -> tuple[int | None, Any]:
        try:
            reply = client.request(method, path, body, version=version)
        except UnreachableError:
            time.sleep(0.05)
            return None, None
        return reply.status, reply.body

    return send


class Writers:
    """Threads that send random histories to several servers, as long as the context lasts."""

    def __init__(self, urls: Sequence[str], count: int) -> None:
        self._urls = urls
        self._universe = Universe(random.randrange(2**32))
        self._stopping = threading.Event()
        self._histories: list[History] = []
        self._pool = concurrent.futures.ThreadPoolExecutor(count)
        self._count = count

    @property
    def accepted(self) -> int:
        """The number of writes that have been accepted by now."""
        return sum(
            number
            for history in self._histories
            for (_, was_accepted), number in [*history.answers.items()]
            if was_accepted
        )

    @property
    def errors(self) -> list[tuple[str, int]]:
        """Kind and status of the requests that failed with a server error."""
        return [error for history in self._histories for error in history.errors]

    def __enter__(self) -> Writers:
        self._running = [self._pool.submit(self._run, number) for number in range(self._count)]
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopping.set()
        self._pool.shutdown()
        for running in self._running:
            running.result()

    def _run(self, number: int) -> None:
        with contextlib.closing(Client(self._urls, token='admin', first=number)) as client:
            history = History(sender(client), self._universe, number)
            self._histories.append(history)
            if number == 0:
                history.populate()
            while not self._stopping.is_set():
                history.step()


#: The writes that are accepted before and after each kill, the kills, and the comparisons.
_MIN_ACCEPTED = 40
_MIN_KILLS = 6
_MIN_COMPARISONS = 50


def stay_equal(running: Sequence[servers.Server], observed: Sequence[Database]) -> None:
    """Let 8 clients write at random, and meanwhile compare a cache on each of ``observed`` with the tables.

    The workers of the servers are killed, one after the other. It ends when enough was written, killed and compared.
    """
    caches = [(ProviderCache(db), db) for db in observed]
    for provider_cache, _ in caches:
        provider_cache.up_to_date()
    compared = kills = 0
    kill_at = _MIN_ACCEPTED
    victims = itertools.cycle(running)
    end = time.monotonic() + SECONDS
    with Writers([server.url for server in running], 8) as writing:
        while compared < _MIN_COMPARISONS or kills < _MIN_KILLS or writing.accepted < kill_at:
            assert time.monotonic() < end, f'{compared=}, {writing.accepted=}, {kills=}'
            for provider_cache, db in caches:
                compare(provider_cache, db)
                # And with the normal update.
                provider_cache.up_to_date()
            compared += 1
            if kills < _MIN_KILLS and writing.accepted >= kill_at:
                with contextlib.suppress(IndexError, ProcessLookupError):
                    os.kill(next(victims).workers()[0], signal.SIGKILL)
                    kills += 1
                    kill_at = writing.accepted + _MIN_ACCEPTED
    for provider_cache, db in caches:
        compare(provider_cache, db)
        assert_same(*_states_at_one_time(provider_cache, ProviderCache(db)))
    assert writing.errors == []


def _states_at_one_time(first: ProviderCache, second: ProviderCache) -> tuple[Snapshot, Snapshot]:
    """Return the states of two caches between which nothing was committed, such as by a worker that was killed."""
    while True:
        states = first.up_to_date(), second.up_to_date()
        if first.up_to_date() is states[0]:
            return states


# Read your writes ----------------------------------------------------------------------------------------


class Alternating:
    """One client that writes through one process and searches through another, on a provider of its own."""

    def __init__(self, clients: Sequence[Client], rounds: int) -> None:
        self.missing: list[str] = []
        self.searches = 0
        self._clients = itertools.cycle(clients)
        self._rounds = rounds
        self._provider = races.provider(next(self._clients), 100)

    def run(self) -> None:
        """Make one change after the other, and search for each."""
        for _ in range(self._rounds):
            for change in (self._claim, self._resize, self._rename, self._grow):
                change()

    def _claim(self) -> None:
        """A claim of everything that is left, and its deletion."""
        consumer = str(uuid.uuid4())
        entry = races.claim([self._provider], None)
        entry['allocations'][self._provider]['resources']['VCPU'] = 100
        self._write('PUT', f'/allocations/{consumer}', entry)
        self._look('claimed', 'VCPU:1', is_present=False)
        self._write('DELETE', f'/allocations/{consumer}')
        self._look('given back', 'VCPU:100', is_present=True)

    def _resize(self) -> None:
        self._inventory(50)
        self._look('smaller', 'VCPU:51', is_present=False)
        self._inventory(100)
        self._look('larger', 'VCPU:100', is_present=True)

    def _inventory(self, total: int) -> None:
        self._guarded('inventories', {'inventories': {'VCPU': {'total': total}}})

    def _rename(self) -> None:
        name = str(uuid.uuid4())
        self._write('PUT', f'/resource_providers/{self._provider}', {'name': name})
        self._found(f'/resource_providers?name={name}', 'renamed', is_present=True)
        trait = f'CUSTOM_{uuid.uuid4().hex.upper()}'
        self._write('PUT', f'/traits/{trait}')
        reply = next(self._clients).request('GET', f'/resource_providers?required={trait}')
        self._note(reply.status == 200, 'a new trait')

    def _grow(self) -> None:
        """A child provider, which is created and deleted."""
        below = str(uuid.uuid4())
        tree = f'/resource_providers?in_tree={self._provider}&uuid={below}'
        body = {'name': below, 'uuid': below, 'parent_provider_uuid': self._provider}
        self._write('POST', '/resource_providers', body)
        self._found(tree, 'created', is_present=True, provider=below)
        self._write('DELETE', f'/resource_providers/{below}')
        self._found(tree, 'deleted', is_present=False, provider=below)

    def _guarded(self, path: str, body: dict[str, Any]) -> None:
        provider = f'/resource_providers/{self._provider}'
        generation = fleet.demand(next(self._clients), 'GET', provider)['generation']
        self._write('PUT', f'{provider}/{path}', {'resource_provider_generation': generation, **body})

    def _write(self, method: str, path: str, body: Any = None) -> None:
        fleet.demand(next(self._clients), method, path, body)

    def _look(self, what: str, resources: str, *, is_present: bool) -> None:
        self._found(f'/resource_providers?resources={resources}', what, is_present=is_present)
        path = f'/allocation_candidates?resources={resources}'
        response = fleet.demand(next(self._clients), 'GET', path)
        self._note((self._provider in response['provider_summaries']) == is_present, f'{what}: {path}')

    def _found(self, path: str, what: str, *, is_present: bool, provider: str | None = None) -> None:
        listed = fleet.demand(next(self._clients), 'GET', path)['resource_providers']
        is_listed = (provider or self._provider) in {row['uuid'] for row in listed}
        self._note(is_listed == is_present, f'{what}: {path}')

    def _note(self, right: bool, what: str) -> None:
        self.searches += 1
        if not right:
            self.missing.append(what)


def answered_changes_are_found(urls: Sequence[str], rounds: int = 5, callers: int = 4) -> None:
    """Several clients alternate between ``urls``. No search may lack a change that was answered before it was sent."""
    with contextlib.ExitStack() as stack:
        searchers: list[Alternating] = []
        for number in range(callers):
            clients = [stack.enter_context(contextlib.closing(Client([url], token='admin'))) for url in urls]
            # With an odd number of requests each round begins at the other process.
            searchers.append(Alternating(clients[number % len(urls) :] + clients[: number % len(urls)], rounds))
        with concurrent.futures.ThreadPoolExecutor(callers) as pool:
            list(pool.map(Alternating.run, searchers))
    assert [what for searcher in searchers for what in searcher.missing] == []
    assert sum(searcher.searches for searcher in searchers) > callers * rounds * 10
